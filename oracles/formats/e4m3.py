"""E4M3 (the finite-only variant, "fn"): largest value 448, subnormals down to 2^-9, no infinity, NaN at 0x7F and
0xFF.
"""

from __future__ import annotations

import functools
import math

import torch

from oracles.formats.grid import nearest

LARGEST = 448.0
NAN = 0x7F


@functools.lru_cache
def _table(device: torch.device) -> torch.Tensor:
    positive = [
        math.ldexp(code & 7, -9) if code < 8 else math.ldexp(8 + (code & 7), (code >> 3) - 10) for code in range(127)
    ]
    values = [*positive, math.nan, *(-v for v in positive), math.nan]
    return torch.tensor(values, dtype=torch.float64, device=device)


def encode(x: torch.Tensor) -> torch.Tensor:
    """Bytes (uint8) of x: nearest, ties to even, saturating at 448 (infinity too), NaN to 0x7F, -0 kept.

    As PTX ``cvt.rn.satfinite.e4m3x2.f32``. Any shape and floating dtype; rounded once, from the dtype given.
    """
    code = nearest(x.abs(), _table(x.device)[:127])
    code = torch.where(torch.signbit(x), code + 128, code)
    return torch.where(x.isnan(), NAN, code).to(torch.uint8)


def decode(codes: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Values of bytes (uint8), same shape; 0x7F and 0xFF are NaN."""
    return _table(codes.device).to(dtype)[codes.long()]
