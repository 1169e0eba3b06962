"""E2M1, the four-bit float of NVFP4 and MXFP4: sign, two exponent bits, one mantissa bit; neither infinity nor NaN."""

from __future__ import annotations

import functools

import torch

from oracles.formats.grid import nearest
from oracles.precision import expect

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
LARGEST = 6.0


@functools.lru_cache
def _table(device: torch.device) -> torch.Tensor:
    return torch.tensor(VALUES, dtype=torch.float64, device=device)


def encode(x: torch.Tensor) -> torch.Tensor:
    """Codes 0..15 (uint8) of x: nearest, ties to the even code, saturating at 6 (infinity too), NaN to +6, -0 kept.

    As PTX ``cvt.rn.satfinite.e2m1x2.f32``. Any shape and floating dtype.
    """
    code = nearest(x.abs(), _table(x.device)[:8])
    sign = torch.where(torch.signbit(x) & ~x.isnan(), 8, 0)
    return (code + sign).to(torch.uint8)


def decode(codes: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Values of codes 0..15 (uint8, the high nibble 0), same shape."""
    return _table(codes.device).to(dtype)[codes.long()]


def pack(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [..., 2 n] -> [..., n]: the even index in the low nibble."""
    expect("formats.e2m1.pack", codes.shape[-1] % 2 == 0, "last size", codes.shape[-1], "an even number")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """uint8 (or int8, as checkpoints store it) [..., n] -> codes uint8 [..., 2 n]: inverse of ``pack``."""
    packed = packed.view(torch.uint8)
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
