"""RMSNorm: weighted (hidden states, latents), without weight over each head, and over all streams at once (mHC)."""

from __future__ import annotations

import torch

from oracles.precision import Kind, expect, rounded


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """y = w x / sqrt(mean(x^2) + eps), the mean over the last dim and eps inside the root. The weight is w, not 1 + w.

    x [..., N], weight [N] or None (ones) -> [..., N]. A row of zeros gives zeros. simulated: y is rounded to x's
    dtype, once.
    """
    expect(
        "norm",
        weight is None or weight.shape == x.shape[-1:],
        "weight",
        getattr(weight, "shape", None),
        f"[{x.shape[-1]}]",
    )
    wide = x.to(dtype)
    y = wide * inverse_rms(wide, eps)
    return rounded(y if weight is None else y * weight.to(dtype), x.dtype, kind)


def inverse_rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dim, [..., 1]."""
    return torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
