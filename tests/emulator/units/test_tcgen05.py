"""tcgen05.mma and tcgen05.cp on memories, against float64 products placed and read back by hand."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.shared import SharedMemory
from emulator.units.formats import HOLDER_SHIFT
from emulator.units.instruction import BITS, KINDS
from emulator.units.tcgen05 import Form, Product, check, execute_copy, execute_mma
from tests.emulator.units.tensor_cases import (
    A_AT,
    A_COLUMN,
    B_AT,
    D_COLUMN,
    K_MAJOR_128,
    instruction,
    matrix_descriptor,
    memory,
    put,
    put_padded,
    random_codes,
    read_d,
    values,
)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(
    ("kind", "a", "b", "d", "m", "n", "form"),
    [
        ("f16", "f16", "f16", "f32", 128, 64, {}),
        ("f16", "bf16", "f16", "f32", 64, 24, {}),
        ("f16", "f16", "f16", "f16", 128, 16, {}),
        ("f16", "bf16", "bf16", "f32", 256, 32, {"pair": True}),
        ("f16", "f16", "f16", "f32", 128, 64, {"pair": True}),
        ("f16", "f16", "f16", "f32", 64, 128, {"weights": True}),
        ("f16", "f16", "f16", "f32", 32, 64, {"weights": True}),
        ("f16", "f16", "f16", "f32", 128, 64, {"weights": True}),
        ("tf32", "tf32", "tf32", "f32", 128, 40, {}),
        ("f8f6f4", "e4m3", "e5m2", "f32", 128, 64, {}),
        ("f8f6f4", "e2m3", "e3m2", "f32", 64, 16, {}),
        ("f8f6f4", "e2m1", "e4m3", "f16", 128, 32, {}),
        ("i8", "s8", "u8", "s32", 128, 32, {}),
        ("i8", "u8", "s8", "s32", 256, 64, {"pair": True}),
    ],
)
def test_kinds_and_layouts(kind, a, b, d, m, n, form, mode):
    k, group = KINDS[kind].k, 2 if form.get("pair") else 1
    places = memory(group)
    lbo, sbo, layout = K_MAJOR_128
    word_a, word_b = matrix_descriptor(A_AT, lbo, sbo, layout), matrix_descriptor(B_AT, lbo, sbo, layout)
    codes_a, codes_b = random_codes(a, m, k, 1), random_codes(b, n, k, 2)
    for i, (smem, tensor) in enumerate(places):
        for name, codes, word, count in ((a, codes_a, word_a, m // group), (b, codes_b, word_b, n // group)):
            mine = codes[i * count : (i + 1) * count]
            if BITS[name] < 8:
                put_padded(smem, word, mine, BITS[name])
            else:
                put(smem, word, mine, BITS[name], False)
        tensor.words[:] = {"f32": 0x3F800000, "f16": 0x3C00, "s32": 0xFFFFFFF0}[d]
    product = Product(Form(kind, **form), D_COLUMN, word_a, word_b, instruction(kind, m, n, a, b, d), True)
    check(product, places)
    execute_mma(product, places, mode)
    words = read_d(places, m, n, form.get("pair", False), form.get("weights", False))
    want = values(a, codes_a) @ values(b, codes_b).T + (-16 if d == "s32" else 1)
    if d == "s32":
        assert (words.view(np.int32) == want).all()
    elif d == "f16":
        assert (words >> 16 == 0).all()
        assert np.allclose(words.astype(np.uint16).view(np.float16), want, rtol=1e-3, atol=2e-3)
    else:
        assert np.allclose(words.view(np.float32), want, rtol=1e-6, atol=1e-5)
    again = Product(product.form, D_COLUMN, word_a, word_b, product.descriptor, False)
    execute_mma(again, places, mode)
    words = read_d(places, m, n, form.get("pair", False), form.get("weights", False))
    if d == "f32":
        assert np.allclose(words.view(np.float32), want - 1, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name", "mn_a", "mn_b", "geometry"),
    [
        ("f16", "f16", 1, 0, (8192, 1024, 2)),
        ("f16", "bf16", 0, 1, (8192, 1024, 2)),
        ("f16", "f16", 1, 1, (4096, 512, 4)),
        ("f16", "f16", 1, 1, (2048, 256, 6)),
        ("f16", "f16", 1, 1, (2048, 128, 0)),
        ("f8f6f4", "e4m3", 1, 1, (4096, 1024, 2)),
        ("tf32", "tf32", 1, 1, (4096, 512, 1)),
    ],
)
def test_mn_major_operands(kind, name, mn_a, mn_b, geometry):
    k, (smem, tensor) = KINDS[kind].k, memory()[0]
    plain = (0, 1024, 2)
    word_a = matrix_descriptor(A_AT, *(geometry if mn_a else plain))
    word_b = matrix_descriptor(B_AT, *(geometry if mn_b else plain))
    codes_a, codes_b = random_codes(name, 128, k, 3), random_codes(name, 64, k, 4)
    put(smem, word_a, codes_a, BITS[name], bool(mn_a))
    put(smem, word_b, codes_b, BITS[name], bool(mn_b))
    product = Product(
        Form(kind), D_COLUMN, word_a, word_b, instruction(kind, 128, 64, name, name, mn_a=mn_a, mn_b=mn_b), False
    )
    execute_mma(product, [(smem, tensor)])
    want = values(name, codes_a) @ values(name, codes_b).T
    assert np.allclose(tensor.words[:, :64].view(np.float32), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "a", "m", "form"),
    [
        ("f16", "bf16", 128, {}),
        ("f16", "f16", 64, {}),
        ("f16", "f16", 64, {"weights": True}),
        ("f16", "f16", 32, {"weights": True}),
        ("f16", "f16", 128, {"pair": True}),
        ("tf32", "tf32", 128, {}),
        ("f8f6f4", "e5m2", 128, {}),
        ("f8f6f4", "e2m1", 128, {}),
        ("f8f6f4", "e3m2", 128, {}),
    ],
)
def test_a_from_tensor_memory(kind, a, m, form):
    """A lies in the lanes of D; where N is split over lane groups, every group has its copy."""
    k, n, group = KINDS[kind].k, 64, 2 if form.get("pair") else 1
    places = memory(group)
    b = a if BITS[a] >= 8 else "e4m3"
    codes_a, codes_b = random_codes(a, m, k, 5), random_codes(b, n, k, 6)
    word_b = matrix_descriptor(B_AT, *K_MAJOR_128)
    rows, lane0 = m // group, 16 if m == 64 and not form else 0
    for i, (smem, tensor) in enumerate(places):
        put(smem, word_b, codes_b[i * n // group : (i + 1) * n // group], BITS[b], False)
        mine = codes_a[i * rows : (i + 1) * rows]
        if a in HOLDER_SHIFT:
            mine = mine << np.uint8(HOLDER_SHIFT[a])
        packed = np.ascontiguousarray(mine).view(np.uint32)
        for lane in range(128):
            row = lane % rows
            if lane0:
                row = lane % 32 - 16 + 16 * (lane // 32) if lane % 32 >= 16 else None
            if row is not None:
                tensor.words[lane, A_COLUMN : A_COLUMN + 8] = packed[row]
    word = instruction(kind, m, n, a, b)
    product = Product(
        Form(kind, a_from_tensor=True, **form), lane0 << 16 | D_COLUMN, lane0 << 16 | A_COLUMN, word_b, word, False
    )
    check(product, places)
    execute_mma(product, places, "exact")
    words = read_d(places, m, n, form.get("pair", False), form.get("weights", False), lane0)
    want = values(a, codes_a) @ values(b, codes_b).T
    assert np.allclose(words.view(np.float32), want, rtol=1e-6, atol=1e-5)


def plain_case(**form):
    (smem, tensor), word = memory()[0], matrix_descriptor(A_AT, *K_MAJOR_128)
    smem.u16[:] = 0x3C00
    return (
        Product(Form("f16", **form), D_COLUMN, word, word, instruction("f16", 128, 16, "f16", "f16"), True),
        smem,
        tensor,
    )


def test_disabled_lanes_keep_their_words():
    product, smem, tensor = plain_case()
    masked = Product(
        product.form, product.d, product.a, product.b, product.descriptor, False, disable_lanes=[1, 0, 0, 1 << 31]
    )
    check(masked, [(smem, tensor)])
    execute_mma(masked, [(smem, tensor)])
    d = tensor.words[:, :16]
    assert (d[[0, 127]] == 0xFFFFFFFF).all() and (d[1:127].view(np.float32) == 16).all()
    with pytest.raises(IllegalInstruction, match="2 words; .cta_group::1 needs 4"):
        check(Product(masked.form, 0, masked.a, masked.b, masked.descriptor, False, [0, 0]), [(smem, tensor)])


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_scaled_input_d_and_negation(mode):
    product, smem, tensor = plain_case(scale_d=2)
    tensor.words[:] = np.float32(8).view(np.uint32)
    negated = product.descriptor | 1 << 13
    changed = Product(product.form, 0, product.a, product.b, negated, True)
    check(changed, [(smem, tensor)])
    execute_mma(changed, [(smem, tensor)], mode)
    assert (tensor.words[:, :16].view(np.float32) == -14).all()


def test_uninitialised_accumulators_stay_visible():
    product, smem, tensor = plain_case()
    execute_mma(product, [(smem, tensor)])
    assert np.isnan(tensor.words[:, :16].view(np.float32)).all() and (tensor.words[:, 16:] == 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 480}, r"D of tensor memory columns 480..495: not allocated"),
        ({"d": 16 << 16}, "lane 16; allowed: 0"),
        ({"b": 3 << 61 | 1 << 46}, "swizzle mode 3"),
        ({"a": 0}, "bits 46..48 are 0"),
        ({"descriptor": 0}, "M = 0"),
        ({"form": Form("f16", scale_d=16)}, "scale-input-d 16"),
        ({"form": Form("f8f6f4", scale_d=1)}, "scale-input-d 1"),
        ({"form": Form("f16", a_from_tensor=True), "a": 460}, "A of tensor memory columns 460..467: not allocated"),
        ({"form": Form("f16", a_from_tensor=True), "a": 16 << 16}, "A at lane 16 and D at lane 0"),
    ],
)
def test_check_refuses(change, message):
    product, smem, tensor = plain_case()
    tensor.dealloc(0, 512)
    tensor.alloc(256)
    fields = {"form": product.form, "d": 0, "a": product.a, "b": product.b, "descriptor": product.descriptor} | change
    with pytest.raises(IllegalInstruction, match=message):
        check(Product(**fields, enable=True), [(smem, tensor)])


def test_an_operand_beyond_shared_memory():
    product, _, tensor = plain_case()
    with pytest.raises(MemoryFault, match="matrix descriptor read"):
        execute_mma(product, [(SharedMemory(8192), tensor)])


@pytest.mark.parametrize(
    ("shape", "multicast", "rows", "columns", "lane0"),
    [
        ("128x256b", None, 128, 8, 0),
        ("128x128b", None, 128, 4, 0),
        ("4x256b", None, 4, 8, 28),
        ("64x128b", "warpx2::02_13", 64, 4, 0),
        ("64x128b", "warpx2::01_23", 64, 4, 0),
        ("32x128b", "warpx4", 32, 4, 0),
    ],
)
def test_copies(shape, multicast, rows, columns, lane0):
    smem, tensor = memory()[0]
    smem.u32[:] = np.arange(smem.u32.size)
    word = matrix_descriptor(1024, 4096, 128, 0)
    execute_copy(smem, tensor, lane0 << 16 | 40, word, shape, multicast)
    used = np.argwhere((tensor.words != 0xFFFFFFFF).any(1)).ravel().tolist()
    for lane in used:
        if multicast == "warpx2::01_23":
            row = lane % 32 + 32 * (lane // 64)
        else:
            row = (lane - lane0) // 32 if rows == 4 else lane % rows
        at = (1024 + row % 8 * 16 + row // 8 * 128) // 4
        want = [at + c % 4 + c // 4 * 1024 for c in range(columns)]
        assert tensor.words[lane, 40 : 40 + columns].tolist() == want
    assert len(used) == (4 if rows == 4 else 128)
    assert (tensor.words[:, 40 + columns :] == 0xFFFFFFFF).all()


def test_decompressing_copy_feeds_an_mma():
    """The padded e2m1 rows that an MMA can read from shared memory, copied to tensor memory as its A, give the same."""
    smem, tensor = memory()[0]
    codes_a, codes_b = random_codes("e2m1", 128, 32, 10), random_codes("e4m3", 16, 32, 11)
    word_a, word_b = matrix_descriptor(A_AT, *K_MAJOR_128), matrix_descriptor(B_AT, *K_MAJOR_128)
    put_padded(smem, word_a, codes_a, 4)
    put(smem, word_b, codes_b, 8, False)
    execute_copy(smem, tensor, A_COLUMN, word_a, "128x256b", None, "b8x16.b4x16_p64")
    word = instruction("f8f6f4", 128, 16, "e2m1", "e4m3")
    execute_mma(Product(Form("f8f6f4", a_from_tensor=True), 0, A_COLUMN, word_b, word, False), [(smem, tensor)])
    execute_mma(Product(Form("f8f6f4"), 64, word_a, word_b, word, False), [(smem, tensor)])
    assert (tensor.words[:, :16] == tensor.words[:, 64:80]).all()
    want = values("e2m1", codes_a) @ values("e4m3", codes_b).T
    assert np.allclose(tensor.words[:, :16].view(np.float32), want, rtol=1e-6, atol=1e-6)


def test_copy_errors():
    smem, tensor = memory()[0]
    word = matrix_descriptor(0, 16, 128, 0)
    with pytest.raises(IllegalInstruction, match="to lane 32; allowed: 0$"):
        execute_copy(smem, tensor, 32 << 16, word, "32x128b", "warpx4")
    with pytest.raises(IllegalInstruction, match="to lane 32; allowed: 0..31"):
        execute_copy(smem, tensor, 32 << 16, word, "4x256b")
    with pytest.raises(IllegalInstruction, match="the last column is 511"):
        execute_copy(smem, tensor, 510, word, "32x128b", "warpx4")
    with pytest.raises(IllegalInstruction, match="no such instruction"):
        execute_copy(smem, tensor, 0, word, "32x128b")
