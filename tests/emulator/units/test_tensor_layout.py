"""Register maps against CuTe's layouts of the same instructions, accumulator layouts, and copy shapes."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.memory.tmem import TensorMemory
from emulator.units.tensor_layout import accumulator, copy_shape, register_map

# CuTe's DstLayout of the x1 atoms: (thread shape, thread strides), (value shape, value strides) in bits, and the bits
# of one lane; bit index -> lane = bit / width, column = bit % width / 32.
ATOMS = {
    "16x256b": (((4, 64), (8, 256)), ((2, 32), (2, 2048)), 256),
    "16x128b": (((4, 32), (8, 128)), ((2, 1024),), 128),
    "16x64b": (((2, 512), (2, 32), (8, 64)), (), 64),
    "32x32b": (((32, 32),), (), 32),
    "16x32bx2": (((16, 64), (2, 32)), (), 64),
}


def unravel(index, modes):
    bit = 0
    for size, stride in modes:
        bit += index % size * stride
        index //= size
    return bit


@pytest.mark.parametrize("shape", ATOMS)
def test_single_steps_are_cute_s_layouts(shape):
    threads, values, width = ATOMS[shape]
    found = register_map(shape, 1, 1)
    registers = int(np.prod([s for s, _ in values], dtype=int))
    assert found.registers == registers
    for t in range(32):
        for r in range(registers):
            bit = unravel(t, threads) + unravel(r, values)
            assert (found.lane[r, t], found.column[r, t]) == (bit // width, bit % width // 32), (t, r)


@pytest.mark.parametrize("shape", ATOMS)
@pytest.mark.parametrize("num", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("packed", [False, True])
def test_store_then_load(shape, num, packed):
    half = 64 * (1 + packed)
    found = register_map(shape, num, half, packed)
    lanes = 16 if shape.startswith("16") else 32
    words = {(int(a), int(b)) for a, b in zip(found.lane.ravel(), found.column.ravel(), strict=True)}
    assert len(words) == found.registers * 32 and max(a for a, _ in words) == lanes - 1
    if shape != "16x32bx2":
        assert found.columns == found.registers * 32 // lanes * (1 + packed)
    tensor = TensorMemory()
    values = np.random.default_rng(0).integers(0, 1 << 32, (found.registers, 32), dtype=np.uint32)
    first = min(64, 512 - found.columns)
    found.store(tensor, 32, first, list(values))
    assert (found.load(tensor, 32, first) == values).all()
    touched = tensor.words != 0xFFFFFFFF
    assert not touched[:32].any() and not touched[64:].any() and not touched[:, :first].any()
    assert not touched[:, first + found.columns :].any()


def test_steps_advance_by_whole_atoms():
    for shape, columns in (("16x256b", 8), ("16x128b", 4), ("16x64b", 2), ("32x32b", 1)):
        one, four = register_map(shape, 1), register_map(shape, 4)
        for i in range(4):
            rows = slice(i * one.registers, (i + 1) * one.registers)
            assert (four.column[rows] == one.column + columns * i).all() and (four.lane[rows] == one.lane).all()


def test_halves_of_16x32bx2():
    found = register_map("16x32bx2", 4, 40)
    assert found.column[3, 15] == 3 and found.column[3, 16] == 43 and found.lane[0, 17] == 1 and found.columns == 44


def test_packing_takes_low_halves_of_two_columns():
    tensor = TensorMemory()
    tensor.words[0, :4] = [0xAAAA0001, 0xBBBB0002, 0xCCCC0003, 0xDDDD0004]
    assert register_map("32x32b", 2, 0, True).load(tensor, 0, 0)[:, 0].tolist() == [0x00020001, 0x00040003]
    register_map("32x32b", 1, 0, True).store(tensor, 0, 2, [np.full(32, 0x12345678, np.uint32)])
    assert tensor.words[0, 2:4].tolist() == [0x5678, 0x1234]


@pytest.mark.parametrize(
    ("shape", "num"), [("16x256b", 64), ("32x32b", 3), ("32x32b", 256), ("16x128b", 128), ("8x8", 1)]
)
def test_counts_and_shapes_that_do_not_exist(shape, num):
    with pytest.raises(ValueError, match="tcgen05"):
        register_map(shape, num)


def place(rows, n, pair=False, weights=False, lane0=0):
    """{(row, column of N): (lane, column)} of an accumulator."""
    out = {}
    for part in accumulator(rows, n, pair, weights, lane0):
        for r in range(rows):
            for j in range(part.first, part.last):
                out[r, j] = (int(part.index[r]), j - part.first)
        everything = np.arange(128)
        assert (everything[part.lanes] == part.index).all()
    return out


def test_accumulators():
    assert place(128, 8)[77, 5] == (77, 5)
    assert place(64, 16)[17, 5] == (33, 5) and place(64, 16, lane0=16)[63, 15] == (127, 15)
    b = place(64, 32, pair=True)
    assert b[10, 15] == (10, 15) and b[10, 16] == (74, 0) and b[63, 31] == (127, 15)
    assert place(64, 64, weights=True)[5, 40] == (69, 8)
    g = place(32, 64, weights=True)
    assert g[3, 15] == (3, 15) and g[3, 16] == (35, 0) and g[31, 63] == (127, 15)
    for layout in (place(128, 16), place(64, 16), b, g):
        assert len(set(layout.values())) == len(layout)


@pytest.mark.parametrize(("args", "allowed"), [((128, 8, False, False, 16), "0"), ((64, 8, False, False, 8), "0, 16")])
def test_lane_alignment(args, allowed):
    with pytest.raises(IllegalInstruction, match=f"allowed: {allowed}$"):
        accumulator(*args)


def test_copy_lanes():
    assert copy_shape("128x256b", None).lanes.ravel().tolist() == list(range(128))
    assert copy_shape("4x256b", None).lanes.ravel().tolist() == [0, 32, 64, 96]
    assert copy_shape("64x128b", "warpx2::02_13").lanes[40].tolist() == [40, 104]
    assert copy_shape("64x128b", "warpx2::01_23").lanes[[3, 40]].tolist() == [[3, 35], [72, 104]]
    assert copy_shape("32x128b", "warpx4").lanes[5].tolist() == [5, 37, 69, 101]
    for shape, multicast in (("64x128b", None), ("32x128b", "warpx2::01_23"), ("128x128b", "warpx4")):
        with pytest.raises(IllegalInstruction, match="no such instruction"):
            copy_shape(shape, multicast)
