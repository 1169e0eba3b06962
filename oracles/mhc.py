"""Manifold-constrained hyper-connections: n residual streams, mixed before and after each sublayer, and down to one
at the end.

With v = the n d values of a token, stream after stream, and z = (fn v) / sqrt(mean(v^2) + norm_eps):

    A_j  = sigmoid(z_j scale_0 + base_j) + eps                     x = sum_j A_j X_j
    C_j  = 2 sigmoid(z_{n+j} scale_1 + base_{n+j})
    M    = sinkhorn(z_{2n+nj+k} scale_2 + base_{2n+nj+k})          row j the source stream, column k the destination
    X'_k = C_k y + sum_j M_jk X_j
"""

from __future__ import annotations

import torch

from oracles.norm import inverse_rms
from oracles.precision import Kind, expect, rounded


def sinkhorn(logits: torch.Tensor, *, iterations: int = 20, eps: float = 1e-6) -> torch.Tensor:
    """Nearly doubly stochastic [..., n, n]: softmax of the rows plus eps, columns divided by (sum + eps), then
    ``iterations`` - 1 times rows and columns. The last step normalises columns.
    """
    m = torch.softmax(logits, dim=-1) + eps
    m = m / (m.sum(dim=-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        m = m / (m.sum(dim=-1, keepdim=True) + eps)
        m = m / (m.sum(dim=-2, keepdim=True) + eps)
    return m


def _mixes(
    streams: torch.Tensor, fn: torch.Tensor, norm_eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The streams in the compute dtype, and z [..., rows of fn]."""
    n, d = streams.shape[-2:]
    expect("mhc", fn.shape[-1] == n * d, "fn.shape", tuple(fn.shape), f"[rows, {n * d}]")
    wide = streams.to(dtype)
    v = wide.flatten(-2)
    return wide, (v @ fn.to(dtype).mT) * inverse_rms(v, norm_eps)


def pre(
    streams: torch.Tensor,
    fn: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    *,
    iterations: int = 20,
    eps: float = 1e-6,
    norm_eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Streams [..., n, d], fn [2 n + n n, n d], scale [3], base [2 n + n n] -> x [..., d], C [..., n], M [..., n, n].

    simulated: x is rounded to the streams' dtype, C and M to fp32.
    """
    n = streams.shape[-2]
    expect("mhc.pre", fn.shape[0] == base.shape[0] == 2 * n + n * n, "rows of fn", fn.shape[0], f"{2 * n + n * n}")
    wide, z = _mixes(streams, fn, norm_eps, dtype)
    scale, base = scale.to(dtype), base.to(dtype)
    a = torch.sigmoid(z[..., :n] * scale[0] + base[:n]) + eps
    c = 2.0 * torch.sigmoid(z[..., n : 2 * n] * scale[1] + base[n : 2 * n])
    m = sinkhorn((z[..., 2 * n :] * scale[2] + base[2 * n :]).unflatten(-1, (n, n)), iterations=iterations, eps=eps)
    x = (a[..., None, :] @ wide).squeeze(-2)
    return rounded(x, streams.dtype, kind), rounded(c, torch.float32, kind), rounded(m, torch.float32, kind)


def post(
    y: torch.Tensor,
    streams: torch.Tensor,
    c: torch.Tensor,
    m: torch.Tensor,
    *,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """X'_k = C_k y + sum_j M_jk X_j: y [..., d], streams [..., n, d], C [..., n], M [..., n, n] -> [..., n, d].

    The sum is over the FIRST index of M. simulated: rounded to the streams' dtype.
    """
    mixed = m.to(dtype).mT @ streams.to(dtype)
    return rounded(mixed + c.to(dtype)[..., None] * y.to(dtype)[..., None, :], streams.dtype, kind)


def head(
    streams: torch.Tensor,
    fn: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    *,
    eps: float = 1e-6,
    norm_eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """x = sum_j A_j X_j with A = sigmoid(z scale + base) + eps: streams [..., n, d], fn [n, n d], scale [1], base [n]
    -> [..., d].
    """
    n = streams.shape[-2]
    expect("mhc.head", fn.shape[0] == base.shape[0] == n, "rows of fn", fn.shape[0], f"{n}")
    wide, z = _mixes(streams, fn, norm_eps, dtype)
    a = torch.sigmoid(z * scale.to(dtype) + base.to(dtype)) + eps
    return rounded((a[..., None, :] @ wide).squeeze(-2), streams.dtype, kind)
