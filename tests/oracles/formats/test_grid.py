"""Rounding to a table, against a search through the whole table in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles.formats.grid import nearest

VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def dumb(x: float) -> int:
    best = min(abs(Fraction(x) - Fraction(v)) for v in VALUES)
    close = [i for i, v in enumerate(VALUES) if abs(Fraction(x) - Fraction(v)) == best]
    return next(i for i in close if len(close) == 1 or i % 2 == 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_a_search_in_fractions(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    table = torch.tensor(VALUES, dtype=torch.float64)
    midpoints = (table[1:] + table[:-1]) / 2
    near = torch.cat((midpoints, midpoints * (1 + 2.0**-7), midpoints * (1 - 2.0**-8)))
    x = torch.cat((torch.rand(300, generator=rng).double() * 8, table, near)).to(dtype)
    assert nearest(x, table).tolist() == [dumb(v) for v in x.tolist()]


def test_the_last_value_takes_everything_above_it_and_nan() -> None:
    table = torch.tensor(VALUES, dtype=torch.float64)
    x = torch.tensor([6.0, 1e300, torch.inf, torch.nan], dtype=torch.float64)
    assert nearest(x, table).tolist() == [7, 7, 7, 7]
    assert nearest(torch.empty(0, 3), table).shape == (0, 3)
