"""Rotary position embedding on the last dims of a vector: interleaved pairs, forward and inverse, plain or YaRN
frequencies.

    pair i of the last r dims (2 i, 2 i + 1), angle a = p f_i:   (e, o) -> (e cos a - o sin a, e sin a + o cos a)
    plain  f_i = theta^(-2 i / r)
    YaRN   f_i (1 - rho_i) + (f_i / factor) rho_i,  rho_i = clamp((i - lo) / (hi - lo), 0, 1),
           lo = floor(dim(beta_fast)), hi = ceil(dim(beta_slow)), dim(b) = r ln(original / (2 pi b)) / (2 ln theta)

There is no mscale: neither cos and sin nor the softmax scale change with YaRN. Angles are the fp32 product of
position and frequency, as in the models that were trained with it: at 1e6 that is 1.5e-2 from the exact angle, so it
is part of the definition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from oracles.precision import Kind, expect, rounded


@dataclass(frozen=True)
class Yarn:
    """Parameters of the YaRN interpolation of frequencies."""

    factor: float = 16.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_positions: int = 65536


def frequencies(
    dim: int = 64, *, theta: float = 10000.0, yarn: Yarn | None = None, device: torch.device | None = None
) -> torch.Tensor:
    """f_i for i = 0 .. dim / 2 - 1, fp32 [dim / 2], computed in fp64 and rounded once."""
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    f = theta ** (-2.0 * pairs / dim)
    if yarn is not None:
        bounds = (
            dim * math.log(yarn.original_positions / (beta * 2.0 * math.pi)) / (2.0 * math.log(theta))
            for beta in (yarn.beta_fast, yarn.beta_slow)
        )
        low, high = (max(math.floor(next(bounds)), 0), min(math.ceil(next(bounds)), dim - 1))
        ramp = ((pairs - low) / max(high - low, 1e-3)).clamp(0.0, 1.0)
        f = f * (1.0 - ramp) + f / yarn.factor * ramp
    return f.float().to(device)


def angles(
    positions: torch.Tensor, freqs: torch.Tensor, *, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of fp32(p) fp32(f_i). positions int64 [...], freqs fp32 [r / 2] -> two of [..., r / 2]."""
    angle = (positions.float()[..., None] * freqs.float()).to(dtype)
    return angle.cos(), angle.sin()


def rotate(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    inverse: bool = False,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """Rotate the last r dims of x by the angles (inverse: by minus the angles), copy the others. A new tensor.

    x [..., N], cos and sin [..., r / 2], broadcast over the leading dims: for heads [T, H, N] pass [T, 1, r / 2].
    simulated: the result is rounded to x's dtype.
    """
    r = 2 * cos.shape[-1]
    expect("rope", r <= x.shape[-1], "x.shape", tuple(x.shape), f"at least {r} in the last dim")
    wide = x.to(dtype)
    even, odd = wide[..., -r:].unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos.to(dtype), (-sin if inverse else sin).to(dtype)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    return rounded(torch.cat((wide[..., :-r], turned), dim=-1), x.dtype, kind)
