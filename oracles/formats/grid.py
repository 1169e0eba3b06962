"""Rounding to a short table of values: the common part of E2M1 and E4M3."""

from __future__ import annotations

import torch


def nearest(magnitude: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Index of the nearest of ``values`` (fp64, rising from 0), ties to the even index, the last one for all above it.

    magnitude >= 0, any floating dtype: the comparison is made in fp64, in which midpoints are exact. NaN: the last
    index.
    """
    midpoints = (values[1:] + values[:-1]) / 2
    x = magnitude.double()
    below = torch.searchsorted(midpoints, x)  # how many midpoints are < x
    tie = x == midpoints[below.clamp(max=len(midpoints) - 1)]
    return torch.where(tie & (below % 2 == 1), below + 1, below)
