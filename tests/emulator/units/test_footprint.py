"""What operations touch: predicted reads and writes against what changes and what matters."""

import numpy as np

from emulator.memory.shared import SharedMemory
from emulator.memory.tmem import TensorMemory
from emulator.units.footprint import copy_touches, mma_touches
from emulator.units.tcgen05 import Form, Product, execute_copy, execute_mma


def matrix_descriptor(at, lbo=0, sbo=1024, layout=2):
    return at >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | 1 << 46 | layout << 61


def words(touches, cta, kind):
    where = [t.where for t in touches if t.cta == cta and t.space == "tensor" and t.kind == kind]
    return set(np.concatenate(where).tolist()) if where else set()


def changed(tensor):
    lanes, columns = np.nonzero(tensor.words != 0xFFFFFFFF)
    return set((lanes << 16 | columns).tolist())


def run(product, group=1):
    places = []
    for _ in range(group):
        smem = SharedMemory(1 << 16)
        smem.u16[:] = 0x3C00
        tensor = TensorMemory()
        tensor.alloc(512)
        places.append((smem, tensor))
    execute_mma(product, places)
    return places


def test_written_words_of_every_layout():
    for m, n, form in (
        (128, 16, Form("f16")),
        (64, 16, Form("f16")),
        (64, 64, Form("f16", weights=True)),
        (32, 64, Form("f16", weights=True)),
        (128, 32, Form("f16", pair=True)),
        (256, 32, Form("f16", pair=True)),
    ):
        word = 1 << 4 | n >> 3 << 17 | m >> 4 << 24
        product = Product(form, 8, matrix_descriptor(0), matrix_descriptor(32768), word, False)
        touches = mma_touches(product)
        for cta, (_, tensor) in enumerate(run(product, 2 if form.pair else 1)):
            assert words(touches, cta, "write") == changed(tensor)
            assert not words(touches, cta, "read")


def test_disabled_lanes_are_not_written_and_an_accumulator_is_read():
    word = 1 << 4 | 2 << 17 | 8 << 24
    product = Product(
        Form("f16"), 0, matrix_descriptor(0), matrix_descriptor(32768), word, True, disable_lanes=[0xFFFFFFFF, 0, 0, 1]
    )
    touches = mma_touches(product)
    written = {w >> 16 for w in words(touches, 0, "write")}
    assert written == set(range(32, 128)) - {96}
    assert len(words(touches, 0, "read")) == 128 * 16


def test_shared_reads_are_exactly_the_operand_bytes():
    word = 1 << 4 | 2 << 17 | 8 << 24
    product = Product(Form("f16"), 0, matrix_descriptor(0), matrix_descriptor(32768), word, False)
    reads = [t for t in mma_touches(product) if t.space == "shared"]
    assert {t.nbytes for t in reads} == {16} and sum(t.where.size * 16 for t in reads) == (128 + 16) * 32
    places = run(product)
    smem, tensor = places[0]
    kept = np.zeros(smem.u8.size, bool)
    for t in reads:
        kept[(t.where[:, None] + np.arange(16)).ravel()] = True
    smem.u8[~kept] = 0xFF
    execute_mma(product, places)
    assert (tensor.words[:, :16].view(np.float32) == 16).all()


def test_scale_factors_and_a_in_tensor_memory():
    word = 1 << 7 | 1 << 10 | 8 << 17 | 1 << 27
    product = Product(
        Form("mxf4nvf4", a_from_tensor=True, block="block16"),
        0,
        100,
        matrix_descriptor(0),
        word,
        False,
        scales=(200, 220),
    )
    reads = words(mma_touches(product), 0, "read")
    assert {w & 0xFFFF for w in reads} == {*range(100, 108), 200, 201, 202, 203, 220, 221}
    assert 5 << 16 | 200 in reads and 37 << 16 | 201 in reads and 5 << 16 | 201 not in reads
    assert {w >> 16 for w in reads if w & 0xFFFF == 221} == set(range(128))


def test_copies():
    smem, tensor = SharedMemory(4096), TensorMemory()
    tensor.alloc(64)
    smem.u32[:] = 1
    word = matrix_descriptor(0, 16, 128, 0)
    for shape, multicast in (("32x128b", "warpx4"), ("4x256b", None), ("64x128b", "warpx2::01_23")):
        tensor.words[:] = 0xFFFFFFFF
        execute_copy(smem, tensor, 12, word, shape, multicast)
        touches = copy_touches(12, word, shape, multicast)
        assert words(touches, 0, "write") == changed(tensor)
        assert touches[0].where.max() < 4096
