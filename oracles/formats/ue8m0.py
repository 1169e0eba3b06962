"""UE8M0: a byte b that means 2^(b - 127), 255 being NaN. There is no zero. Block scales of FP8 and MXFP4."""

from __future__ import annotations

import functools
import math
from typing import Literal

import torch

from oracles.precision import expect

Policy = Literal["ceil", "floor", "nearest"]
"""``ceil``: the next power of two above (nothing clips). ``floor``: below. ``nearest``: by value, 1.5 x 2^k to the
even byte.
"""

BIAS = 127
NAN = 255


@functools.lru_cache
def _table(device: torch.device) -> torch.Tensor:
    values = [math.ldexp(1.0, byte - BIAS) for byte in range(255)]
    return torch.tensor([*values, math.nan], dtype=torch.float64, device=device)


def encode(x: torch.Tensor, policy: Policy = "ceil") -> torch.Tensor:
    """Bytes (uint8) of x >= 0, any floating dtype, by exponent and mantissa: no logarithm, no second rounding.

    Below 2^-127 (zero included): 0. Above 2^127 (infinity included): 254. NaN or negative: 255.
    """
    expect("formats.ue8m0.encode", policy in ("ceil", "floor", "nearest"), "policy", policy, "ceil, floor, nearest")
    mantissa, exponent = torch.frexp(x.double())  # mantissa in [0.5, 1)
    exponent = exponent + (BIAS - 1)
    if policy == "ceil":
        exponent = exponent + (mantissa > 0.5)
    elif policy == "nearest":
        exponent = exponent + ((mantissa > 0.75) | ((mantissa == 0.75) & (exponent % 2 == 1)))
    byte = torch.where(x == 0, 0, exponent.clamp(0, 254))
    byte = torch.where(x.isinf(), 254, byte)
    return torch.where(x >= 0, byte, NAN).to(torch.uint8)  # NaN compares false


def decode(codes: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """2^(b - 127) of bytes (uint8), same shape; 255 is NaN. 2^-127 is a subnormal of fp32 and exact there."""
    return _table(codes.device).to(dtype)[codes.long()]


def scale_byte(amax: torch.Tensor, largest: float, *, floor: float = 0.0, policy: Policy = "ceil") -> torch.Tensor:
    """Byte of the block scale s of values up to ``amax`` in a format that ends at ``largest``.

    ceil: the smallest power of two with largest * s >= max(amax, floor), so that nothing clips. floor (OCP MX): the
    power of two of amax over that of ``largest``, under which the top of a block may clip. The quotient is taken in
    fp64: exact for fp32 amax.
    """
    quotient = torch.maximum(amax.double(), amax.new_tensor(floor, dtype=torch.float64))
    if policy == "floor":
        largest = 2.0 ** (math.frexp(largest)[1] - 1)
    return encode(quotient / largest, policy)
