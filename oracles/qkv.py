"""Projections of attention: queries through a low-rank latent, and the one latent that is key and value of all."""

from __future__ import annotations

import torch

from oracles.linear import linear
from oracles.norm import rms_norm
from oracles.precision import Kind, Quantiser, rounded
from oracles.rope import rotate


def q_projection(
    x: torch.Tensor,
    wq_a: torch.Tensor,
    q_norm: torch.Tensor,
    wq_b: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    heads: int,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """qr = norm(x wq_a^T) w; q = rope(norm without weight, over each head, of qr wq_b^T).

    x [..., d], wq_a [R, d], q_norm [R], wq_b [H c, R], cos and sin [..., r / 2] -> q [..., H, c] and qr [..., R] (the
    indexer reads it). simulated: both products, qr and q are rounded to x's dtype.
    """
    low = rounded(linear(x, wq_a, dtype=dtype, activation=activation), x.dtype, kind)
    qr = rounded(rms_norm(low, q_norm, eps=eps, dtype=dtype), x.dtype, kind)
    wide = rounded(linear(qr, wq_b, dtype=dtype, activation=activation), x.dtype, kind).unflatten(-1, (heads, -1))
    q = rotate(rms_norm(wide, eps=eps, dtype=dtype), cos[..., None, :], sin[..., None, :], dtype=dtype)
    return rounded(q, x.dtype, kind), qr


def kv_projection(
    x: torch.Tensor,
    wkv: torch.Tensor,
    kv_norm: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """k = rope(norm(x wkv^T) w): x [..., d], wkv [c, d], kv_norm [c], cos and sin [..., r / 2] -> [..., c], key and
    value in one.

    simulated: the product and k are rounded to x's dtype. What the cache rounds is ``formats.kv.rounded``.
    """
    wide = rounded(linear(x, wkv, dtype=dtype, activation=activation), x.dtype, kind)
    return rounded(rotate(rms_norm(wide, kv_norm, eps=eps, dtype=dtype), cos, sin, dtype=dtype), x.dtype, kind)
