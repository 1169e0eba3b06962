"""Rows that a quantiser gets wrong first, and rounding of one number at a time by search, to check tables against."""

from __future__ import annotations

import math

import torch

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E4M3 = [m * 2.0**-9 for m in range(8)] + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)][:-1]


def search(x: float, values: list[float]) -> float:
    """The nearest of the values to |x|, ties to the even index, with x's sign."""
    index = min(range(len(values)), key=lambda i: (abs(abs(x) - values[i]), i % 2))
    return math.copysign(values[index], x)


def rows(width: int, count: int = 6) -> torch.Tensor:
    """fp32 [count + 6, width]: biased noise of several sizes, an outlier, zeros, subnormals, powers of two, 448+."""
    rng = torch.Generator().manual_seed(width)
    noise = torch.randn(count, width, generator=rng) + 0.3
    noise *= torch.exp(2 * torch.randn(count, 1, generator=rng))
    special = torch.zeros(6, width)
    special[0] = 0.01 * torch.randn(width, generator=rng)
    special[0, width // 2] = -300.0
    special[2, 1] = 1e-40
    special[3] = 2.0**-20
    special[4] = torch.nextafter(torch.tensor(448.0), torch.tensor(torch.inf))
    special[5, 0] = -0.0
    special[5, -1] = 6.0
    return torch.cat((noise, special))
