"""The planted faults of the caches do what they say, and nothing else."""

from __future__ import annotations

import torch

from model.cache import Rows
from mutants.cache import MUTANTS


def pool() -> Rows:
    return Rows(2, 4, 8, "fp32", torch.device("cpu"))


def test_growing_keeps_every_row_beside_a_right_pool() -> None:
    mutant, right, wrong = MUTANTS["grows_by_cat"](), pool(), pool()
    for step in range(3):
        values = torch.full((1, 8), float(step))
        right.append(torch.tensor([step]), values)
        mutant.append(wrong, torch.tensor([step]), values)
    assert torch.equal(wrong.data, right.data)
    assert [t.shape for t in mutant.grown.values()] == [(3, 8)]


def test_row_by_row_is_right_and_pinned_is_wrong() -> None:
    rows, values = torch.tensor([5, 1]), torch.arange(16.0).view(2, 8)
    right, looped, pinned = pool(), pool(), pool()
    right.append(rows, values)
    MUTANTS["row_by_row"].append(looped, rows, values)
    MUTANTS["first_row_pinned"].append(pinned, rows, values)
    assert torch.equal(looped.data, right.data)
    assert torch.equal(pinned.data[1, 1], values[1]) and float(pinned.data[0].abs().sum()) == 0
