"""Block-scaled tcgen05.mma: where the scale factors lie, and what happens when copies are missing."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.units.formats import decode
from emulator.units.instruction import BITS, KINDS
from emulator.units.tcgen05 import Form, Product, check, execute_mma
from tests.emulator.units.tensor_cases import (
    A_AT,
    B_AT,
    D_COLUMN,
    K_MAJOR_128,
    SFA_COLUMN,
    SFB_COLUMN,
    matrix_descriptor,
    memory,
    put,
    put_packed,
    put_padded,
    put_scales,
    random_codes,
    read_d,
    scaled_instruction,
    values,
)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(
    ("kind", "a", "b", "block", "scale", "sfa", "sfb", "m", "n", "pair"),
    [
        ("mxf8f6f4", "e4m3", "e5m2", 32, "ue8m0", 3, 1, 128, 200, False),
        ("mxf8f6f4", "e2m1", "e3m2", 32, "ue8m0", 0, 2, 128, 64, False),
        ("mxf8f6f4", "e4m3", "e4m3", 32, "ue8m0", 1, 1, 256, 256, True),
        ("mxf4", "e2m1", "e2m1", 32, "ue8m0", 2, 0, 128, 64, False),
        ("mxf4nvf4", "e2m1", "e2m1", 16, "ue4m3", 0, 0, 128, 256, False),
        ("mxf4nvf4", "e2m1", "e2m1", 16, "ue4m3", 0, 0, 256, 64, True),
        ("mxf4nvf4", "e2m1", "e2m1", 16, "ue4m3", 0, 0, 128, 256, True),
        ("mxf4nvf4", "e2m1", "e2m1", 32, "ue8m0", 0, 2, 128, 64, True),
    ],
)
def test_block_scaled(kind, a, b, block, scale, sfa, sfb, m, n, pair, mode):
    k, group = KINDS[kind].k, 2 if pair else 1
    factors, rows, places = k // block, m // group, memory(2 if pair else 1)
    word_a, word_b = matrix_descriptor(A_AT, *K_MAJOR_128), matrix_descriptor(B_AT, *K_MAJOR_128)
    codes_a, codes_b = random_codes(a, m, k, 7), random_codes(b, n, k, 8)
    rng = np.random.default_rng(9)
    low, high = (125, 130) if scale == "ue8m0" else (0x30, 0x48)
    scale_a, scale_b = (rng.integers(low, high, (r, factors), dtype=np.uint8) for r in (m, n))
    for i, (smem, tensor) in enumerate(places):
        for name, codes, word, count in ((a, codes_a, word_a, rows), (b, codes_b, word_b, n // group)):
            mine = codes[i * count : (i + 1) * count]
            if kind != "mxf8f6f4":
                put_packed(smem, word, mine)
            elif BITS[name] < 8:
                put_padded(smem, word, mine, BITS[name])
            else:
                put(smem, word, mine, 8, False)
        put_scales(tensor, SFA_COLUMN, scale_a[i * rows : (i + 1) * rows], range(4), sfa)
        if rows == 64:
            for half in range(2):
                quarters = (2 * half, 2 * half + 1)
                put_scales(tensor, SFB_COLUMN, scale_b[half * n // 2 : (half + 1) * n // 2], quarters, sfb)
        else:
            put_scales(tensor, SFB_COLUMN, scale_b, range(4), sfb)
    product = Product(
        Form(kind, pair, block=f"block{block}"),
        D_COLUMN,
        word_a,
        word_b,
        scaled_instruction(kind, m, n, a, b, scale, sfa, sfb),
        False,
        scales=(sfa << 30 | SFA_COLUMN, sfb << 30 | SFB_COLUMN),
    )
    check(product, places)
    execute_mma(product, places, mode)
    left = values(a, codes_a) * np.repeat(decode(scale, scale_a), block, 1)
    right = values(b, codes_b) * np.repeat(decode(scale, scale_b), block, 1)
    assert np.allclose(read_d(places, m, n, pair).view(np.float32), left @ right.T, rtol=1e-5, atol=1e-4)


def scaled_case():
    """An nvfp4 product of ones with ones and scales of one; B's scales only in the first two quarters."""
    (smem, tensor), n = memory()[0], 16
    word_a, word_b = matrix_descriptor(A_AT, *K_MAJOR_128), matrix_descriptor(B_AT, *K_MAJOR_128)
    put_packed(smem, word_a, np.full((128, 64), 2, np.uint8))
    put_packed(smem, word_b, np.full((n, 64), 2, np.uint8))
    put_scales(tensor, SFA_COLUMN, np.full((128, 4), 0x38, np.uint8), range(4), 0)
    put_scales(tensor, SFB_COLUMN, np.full((n, 4), 0x38, np.uint8), range(2), 0)
    word = scaled_instruction("mxf4nvf4", 128, n, "e2m1", "e2m1", "ue4m3")
    form = Form("mxf4nvf4", block="block16")
    return Product(form, D_COLUMN, word_a, word_b, word, False, scales=(SFA_COLUMN, SFB_COLUMN)), smem, tensor


def test_a_missing_copy_of_the_scales_shows_in_its_quarter():
    product, smem, tensor = scaled_case()
    for mode in ("exact", "fast"):
        execute_mma(product, [(smem, tensor)], mode)
        d = tensor.words[:, :16].view(np.float32)
        assert (d[:64] == 64).all() and np.isnan(d[64:]).all()


def test_scale_factor_errors():
    product, smem, tensor = scaled_case()
    bare = Product(product.form, 0, product.a, product.b, product.descriptor, False)
    with pytest.raises(IllegalInstruction, match="without scale factors"):
        check(bare, [(smem, tensor)])
    with pytest.raises(IllegalInstruction, match="without scale factors"):
        execute_mma(bare, [(smem, tensor)])
    moved = Product(product.form, 0, product.a, product.b, product.descriptor, False, scales=(32 << 16, 0))
    with pytest.raises(IllegalInstruction, match="scale factors at lane 32"):
        check(moved, [(smem, tensor)])
