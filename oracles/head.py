"""The end of the model: final norm and vocabulary projection. ``mhc.head`` mixes the streams down before it."""

from __future__ import annotations

import torch

from oracles.linear import linear
from oracles.norm import rms_norm
from oracles.precision import Kind, rounded


def logits(
    x: torch.Tensor,
    norm: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """norm(x) weight^T: x [..., d], norm [d], weight [V, d] -> [..., V]. simulated: norm(x) is rounded to x's dtype,
    logits to fp32.
    """
    return rounded(linear(rms_norm(x, norm, eps=eps, dtype=dtype, kind=kind), weight, dtype=dtype), torch.float32, kind)
