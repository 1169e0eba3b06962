"""Caches with one planted fault each; see `MUTANTS`."""

from __future__ import annotations

import torch

from model.cache import Rows


class GrowsByCat:
    """Keeps every appended row in a tensor that grows by `torch.cat`, beside the pool."""

    def __init__(self) -> None:
        self.grown: dict[int, torch.Tensor] = {}

    def append(self, pool: Rows, rows: torch.Tensor, values: torch.Tensor) -> None:
        """The append, and the copy that grows."""
        pool.append(rows, values)
        before = self.grown.get(id(pool), values[:0])
        self.grown[id(pool)] = torch.cat((before, values))


class RowByRow:
    """Appends in a Python loop, one launch for each row."""

    @staticmethod
    def append(pool: Rows, rows: torch.Tensor, values: torch.Tensor) -> None:
        """Row after row."""
        for i in range(len(rows)):
            pool.append(rows[i : i + 1], values[i : i + 1])


class FirstRowPinned:
    """Writes every row to the place of the first one."""

    @staticmethod
    def append(pool: Rows, rows: torch.Tensor, values: torch.Tensor) -> None:
        """The last row wins."""
        for i in range(len(rows)):
            pool.append(rows[:1], values[i : i + 1])


MUTANTS = {"grows_by_cat": GrowsByCat, "row_by_row": RowByRow, "first_row_pinned": FirstRowPinned}
