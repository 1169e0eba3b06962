"""The Walsh-Hadamard rotation of index queries and keys: Sylvester order, scaled to be its own inverse."""

from __future__ import annotations

import functools

import torch

from oracles.precision import expect


@functools.lru_cache
def matrix(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> torch.Tensor:
    """H [n, n] = n^-0.5 (-1)^popcount(i & j), n a power of two; symmetric, H H = 1. Shared by all callers: not to be
    changed.
    """
    expect("formats.hadamard", n > 0 and n & (n - 1) == 0, "n", n, "a power of two")
    h = torch.ones(1, 1, dtype=torch.float64)
    while h.shape[0] < n:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return (h * n**-0.5).to(dtype).to(device)


def transform(x: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """x [..., n] -> x H [..., n]. Both sides of a dot product must be rotated, or none."""
    return x.to(dtype) @ matrix(x.shape[-1], dtype=dtype, device=x.device)
