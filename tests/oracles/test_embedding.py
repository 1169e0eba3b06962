"""Embedding rows, once per stream."""

from __future__ import annotations

import torch

from oracles.embedding import streams


def test_every_stream_is_the_row_of_the_token() -> None:
    weight = torch.arange(12.0).view(4, 3)
    got = streams(torch.tensor([[2, 0], [3, 3]]), weight, n=4)
    assert got.shape == (2, 2, 4, 3) and got.dtype == torch.float64
    for j in range(4):
        assert got[:, :, j].tolist() == [[[6, 7, 8], [0, 1, 2]], [[9, 10, 11], [9, 10, 11]]]
    assert streams(torch.empty(0, dtype=torch.long), weight, n=2).shape == (0, 2, 3)
