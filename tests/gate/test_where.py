"""Where an output is wrong, in blocks of rows and columns."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import pytest
import torch

from gate.where import describe, error_map


def mask(shape, *places):
    made = torch.zeros(shape, dtype=torch.bool)
    for place in places:
        made[place] = True
    return made


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (mask((4,), 2), "25% of elements; element 2 only"),
        (mask((), ()), "100% of elements"),
        (mask((32, 16), slice(None)), "100% of elements"),
        (mask((128, 64), slice(32, 64)), "25% of elements; rows by 32 (warps): 0 100 0 0 %; rows 32–63 only; columns by 16: 25 25 25 25 %"),
        (mask((128, 64), (slice(None), slice(16, 32))), "25% of elements; rows by 32 (warps): 25 25 25 25 %; columns by 16: 0 100 0 0 %; columns 16–31 only"),
        (mask((2, 3, 64, 16), (1, slice(0, 2))), "33% of elements; dim 0 at 1 only, there dim 1 at 0 1 only, there rows by 32 (warps): 100 100 %"),
        (mask((1000, 8), 999), "1% of elements; rows by 128: 0 0 0 0 0 0 0 1 %; row 999 only"),
        (mask((300,), slice(100, 103)), "1% of elements; elements by 64: 0 5 0 0 0 %; elements 100–102 only"),
    ],
)  # fmt: skip
def test_description(made, text):
    assert describe(made) == text


def test_none_and_all_are_never_rounded():
    made = mask((1000, 100), (0, 0))
    assert describe(made).startswith("1% of elements")
    assert describe(~made).startswith("99% of elements")


def test_error_map_has_at_most_32_by_32_blocks_and_keeps_every_error():
    found = error_map(mask((2, 300, 200), (1, 299, 199)))
    assert (found.rows, found.columns, found.row_block, found.column_block) == (600, 200, 32, 8)
    assert len(found.percent) == 19 and {len(row) for row in found.percent} == {25}
    assert found.percent[-1][-1] == 1 and sum(map(sum, found.percent)) == 1


def test_error_map_of_a_vector_is_one_row():
    found = error_map(mask((8,), 3))
    assert found.percent == [[0, 0, 0, 100, 0, 0, 0, 0]]
