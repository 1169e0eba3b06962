"""Register fragments against the formulas of the PTX manual, element by element, and sparse metadata."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.units import fragments

LANES = [(lane, lane >> 2, lane % 4) for lane in range(32)]


def numbered(count, dtype=np.uint32):
    """Registers whose value names them: 32 register + lane."""
    return [np.arange(32, dtype=dtype) + dtype(32 * k) for k in range(count)]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_matrix_a(count):
    """m16n8k16 f16 (9.7.14.5.8): a0..a3 of register pairs at row groupID or groupID + 8, words 4 apart."""
    found = fragments.matrix_a(numbered(count))
    assert found.shape == (16, 2 * count)
    for lane, g, t in LANES:
        for i in range(count):
            assert found[g + 8 * (i % 2), t + 4 * (i // 2)] == 32 * i + lane


def test_matrix_a_of_eight_rows():
    found = fragments.matrix_a(numbered(1, np.uint64))
    assert found.shape == (8, 4) and all(found[g, t] == lane for lane, g, t in LANES)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_b(count):
    found = fragments.matrix_b(numbered(count))
    assert found.shape == (8, 4 * count)
    assert all(found[g, t + 4 * i] == 32 * i + lane for lane, g, t in LANES for i in range(count))


@pytest.mark.parametrize("count", [4, 16, 128])
def test_accumulator(count):
    """c_i at row groupID (+ 8 for i & 2), column 2 t + (i & 1), 8 columns every four registers."""
    registers = numbered(count)
    found = fragments.accumulator(registers)
    assert found.shape == (16, 2 * count)
    for lane, g, t in LANES:
        for i in range(count):
            assert found[g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2] == 32 * i + lane
    assert (fragments.registers_of(found) == np.stack(registers)).all()


def test_accumulator_of_eight_rows():
    registers = numbered(2, np.uint64)
    found = fragments.accumulator(registers)
    assert all(found[g, 2 * t + i] == 32 * i + lane for lane, g, t in LANES for i in range(2))
    assert (fragments.registers_of(found) == np.stack(registers)).all()


@pytest.mark.parametrize("count", [2, 8, 64])
def test_accumulator_of_halves(count):
    registers = [x | (x + np.uint32(0x8000)) << np.uint32(16) for x in numbered(count)]
    found = fragments.accumulator(registers, halves=True)
    assert found.shape == (16, 4 * count) and found.dtype == np.uint16
    for lane, g, t in LANES:
        for i in range(count):
            row, column = g + 8 * (i % 2), 8 * (i // 2) + 2 * t
            assert found[row, column] == 32 * i + lane and found[row, column + 1] == 0x8000 + 32 * i + lane
    assert (fragments.registers_of(found) == np.stack(registers)).all()


def metadata_of(codes, selector, by_row):
    """Registers that hold the given codes [16, n], written by the formulas of the captured words."""
    words = [0] * 32
    for row in range(16):
        g, h = row % 8, row // 8
        for n, code in enumerate(codes[row]):
            if by_row:
                lane, shift = 4 * g + h + (2 * (n // 8) if len(codes[row]) == 16 else 2 * selector), 4 * (n % 8)
            elif len(codes[row]) == 8:
                lane, shift = 4 * g + 2 * selector + n // 4, 16 * h + 4 * (n % 4)
            else:
                lane, shift = 4 * g + selector, 16 * h + 4 * n
            words[lane] |= int(code) << shift
    return np.array(words, np.uint32)


@pytest.mark.parametrize(("bits", "stored", "codes"), [(16, 16, 8), (16, 8, 4), (8, 32, 16), (8, 16, 8), (4, 64, 16)])
def test_positions(bits, stored, codes):
    rng = np.random.default_rng(bits + stored)
    legal = np.array([4, 8, 9, 12, 13, 14])
    given = legal[rng.integers(0, 6, (16, codes))]
    for selector in range(fragments.selectors(codes, bits <= 8)):
        metadata = metadata_of(given, selector, bits <= 8)
        found = fragments.positions(metadata, selector, bits, stored, True)
        assert found.shape == (16, stored)
        for row in range(16):
            want = [4 * n + x for n, code in enumerate(given[row]) for x in (code & 3, code >> 2)]
            if bits == 4:
                want = [2 * x + y for x in want for y in (0, 1)]
            assert found[row].tolist() == want


@pytest.mark.parametrize(("stored", "codes"), [(8, 8), (4, 4)])
def test_positions_of_tf32(stored, codes):
    given = np.where(np.random.default_rng(stored).integers(0, 2, (16, codes)), 14, 4)
    metadata = metadata_of(given, 0, False)
    found = fragments.positions(metadata, 0, 32, stored, False)
    assert (found == 2 * np.arange(codes) + (given == 14)).all()


@pytest.mark.parametrize(
    ("bits", "code", "ordered", "good"),
    [(16, 5, False, False), (16, 1, False, True), (16, 1, True, False), (32, 8, False, False), (8, 15, False, False)],
)
def test_undefined_metadata(bits, code, ordered, good):
    stored = {16: 16, 32: 8, 8: 32}[bits]
    codes = np.full((16, {16: 8, 32: 8, 8: 16}[bits]), 4)
    codes[3, 2] = code
    metadata = metadata_of(codes, 0, bits == 8)
    if good:
        # positions 1 and 0, in this order
        assert fragments.positions(metadata, 0, bits, stored, ordered)[3, 4:6].tolist() == [9, 8]
        return
    with pytest.raises(IllegalInstruction, match=f"code {code:#x} for row 3, group 2 is undefined"):
        fragments.positions(metadata, 0, bits, stored, ordered)


def test_spread():
    dense = fragments.spread(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 3], [1, 2]]))
    assert dense.tolist() == [[1, 0, 0, 2], [0, 3, 4, 0]]
