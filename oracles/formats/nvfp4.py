"""NVFP4: E2M1 values in blocks of 16 with one E4M3 scale each, under one fp32 scale for the whole tensor.

Every step is one fp32 operation, rounded to nearest, in this order:

    block scale  s = E4M3(amax / (6 g))        code = E2M1(x / (s g))        value = code s g

A block whose scale rounds to 0 (all zeros, or amax below 2^-10 of 6 g) has codes of magnitude 0: nothing is divided
by zero. A scale above 448 saturates and its block clips at 6 (g too small). NaN in a block makes its scale NaN: the
block reads back as NaN. Infinity saturates at the largest value of its block, 6 x 448 g. g is read on the device and
never by the host.
"""

from __future__ import annotations

import torch

from oracles.formats import e2m1, e4m3
from oracles.precision import expect

BLOCK = 16
RANGE = e2m1.LARGEST * e4m3.LARGEST


def global_scale(x: torch.Tensor) -> torch.Tensor:
    """amax / (6 x 448), an fp32 scalar tensor: 1 for a tensor of zeros or without elements; NaN for NaN or infinity."""
    if x.numel() == 0:
        return torch.ones((), dtype=torch.float32, device=x.device)
    amax = x.abs().amax().float()
    return torch.where(amax == 0, 1.0, torch.where(amax.isfinite(), amax / RANGE, torch.nan))


def quantize(x: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., K] -> packed uint8 [..., K / 2] (low nibble = even index) and scales, E4M3 bytes [..., K / 16].

    global_scale: fp32, > 0, a scalar or [..., 1] for one scale a row.
    """
    expect("formats.nvfp4", x.shape[-1] % BLOCK == 0, "K", x.shape[-1], f"a multiple of {BLOCK}")
    blocks = x.float().unflatten(-1, (x.shape[-1] // BLOCK, BLOCK))
    g = global_scale.float()
    scales = e4m3.encode(blocks.abs().amax(dim=-1) / (e2m1.LARGEST * g))
    step = (e4m3.decode(scales, dtype=torch.float32) * g)[..., None]
    # Under a scale of 0 every code is a signed 0.
    quotient = blocks / torch.where(step == 0, torch.inf, step)
    return e2m1.pack(e2m1.encode(quotient).flatten(-2)), scales


def dequantize(
    packed: torch.Tensor, scales: torch.Tensor, global_scale: torch.Tensor, *, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """packed uint8 [..., K / 2], scales E4M3 bytes [..., K / 16], the global scale -> [..., K]."""
    blocks = e2m1.decode(e2m1.unpack(packed), dtype=dtype).unflatten(-1, (scales.shape[-1], BLOCK))
    return (blocks * (e4m3.decode(scales, dtype=dtype) * global_scale.to(dtype))[..., None]).flatten(-2)


def rounded(x: torch.Tensor, global_scale: torch.Tensor) -> torch.Tensor:
    """x [..., K] as its NVFP4 form under the global scale reads back, in x's dtype."""
    return dequantize(*quantize(x, global_scale), global_scale, dtype=x.dtype)
