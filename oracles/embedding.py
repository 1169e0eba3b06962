"""Token embedding, spread over the residual streams."""

from __future__ import annotations

import torch


def streams(ids: torch.Tensor, weight: torch.Tensor, *, n: int = 4, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """X[..., j, :] = weight[ids] for j = 0 .. n - 1, unscaled. ids int64 [...], weight [V, d] -> [..., n, d], all
    streams one memory.
    """
    rows = torch.nn.functional.embedding(ids, weight).to(dtype)
    return rows[..., None, :].expand(*ids.shape, n, weight.shape[1])
