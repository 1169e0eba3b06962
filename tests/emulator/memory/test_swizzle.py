"""The XOR patterns against the tables of the PTX manual."""

import numpy as np
import pytest

from emulator.memory import swizzle as sw

# Rows of 16-byte cells as the PTX manual prints them: cell j of row r holds source cell TABLE[r][j].
TABLES = {
    sw.NONE: [[0, 1, 2, 3, 4, 5, 6, 7]],
    sw.B32: [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    sw.B64: [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 2, 1, 0, 7, 6, 5, 4],
    ],
    sw.B128: [[c ^ r for c in range(8)] for r in range(8)],
    sw.B128_ATOM32: [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [6, 7, 4, 5, 2, 3, 0, 1],
    ],
    sw.B128_ATOM64: [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1, 2, 3]],
}


@pytest.mark.parametrize("pattern", TABLES, ids=lambda p: p.name)
def test_tables(pattern):
    table = TABLES[pattern]
    cells = pattern.apply(np.arange(64, dtype=np.int64) * 16) // 16
    for source, place in enumerate(cells.tolist()):
        row, column = divmod(place, 8)
        assert table[row % len(table)][column] == source % 8 and row == source // 8


@pytest.mark.parametrize("pattern", TABLES, ids=lambda p: p.name)
def test_it_is_its_own_inverse_and_keeps_the_low_bits(pattern):
    offsets = np.arange(4096, dtype=np.int64)
    once = pattern.apply(offsets)
    assert (pattern.apply(once) == offsets).all() and (once % 16 == offsets % 16).all()


def test_base_offset_shifts_the_row_phase():
    # Line 3 behaves as line 0 does without it, line 4 as line 1.
    line = np.arange(0, 128, 16, dtype=np.int64)
    assert sw.B128.apply(line + 384, base_offset=3).tolist() == (line + 384).tolist()
    assert sw.B128.apply(line + 512, base_offset=3).tolist() == ((line ^ 16) + 512).tolist()
    assert sw.B128.apply(np.array([0], dtype=np.int64), base_offset=1)[0] == 7 << 4


def test_tile_granules_work_on_absolute_offsets():
    tile = sw.tile_granules(1024 + 256, 4, 64, 128, sw.B128)
    assert tile.shape == (4, 4)
    for row in range(4):
        for cell in range(4):
            absolute = 1280 + row * 128 + cell * 16
            assert tile[row, cell] * 16 == absolute ^ (((absolute >> 7) & 7) << 4)


def test_tile_granules_without_rows():
    assert sw.tile_granules(0, 0, 64, 64, sw.NONE).shape == (0, 4)
