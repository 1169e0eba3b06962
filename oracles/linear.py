"""Linears: one, several of the same input, and block-diagonal groups. No bias; weights are [out, in]."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oracles.precision import Quantiser, expect


def linear(
    x: torch.Tensor, w: torch.Tensor, *, dtype: torch.dtype = torch.float64, activation: Quantiser | None = None
) -> torch.Tensor:
    """y = x w^T. x [..., K], w [N, K] (values, dequantised) -> [..., N]. activation: how the kernel rounds x."""
    expect("linear", x.shape[-1] == w.shape[-1], "x.shape", tuple(x.shape), f"[..., {w.shape[-1]}]")
    return (activation(x) if activation else x).to(dtype) @ w.to(dtype).mT


def multi_linear(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    *,
    dtype: torch.dtype = torch.float64,
    activation: Quantiser | None = None,
) -> list[torch.Tensor]:
    """Several linears of one input, which is rounded once: x [..., K], w_i [N_i, K] -> [..., N_i] each."""
    x = activation(x) if activation else x
    return [linear(x, w, dtype=dtype) for w in weights]


def grouped_linear(
    x: torch.Tensor, w: torch.Tensor, *, dtype: torch.dtype = torch.float64, activation: Quantiser | None = None
) -> torch.Tensor:
    """y[..., g, :] = x[..., g, :] w_g^T. x [..., G, K], w [G, N, K] or [G N, K] (groups one after the other) -> [...,
    G, N].
    """
    groups, k = x.shape[-2:]
    w = w.unflatten(0, (groups, -1)) if w.ndim == 2 else w
    expect("grouped_linear", w.shape[0] == groups and w.shape[2] == k, "w.shape", tuple(w.shape), f"[{groups}, N, {k}]")
    flat = (activation(x) if activation else x).to(dtype).reshape(-1, groups, k).transpose(0, 1)
    return (flat @ w.to(dtype).mT).transpose(0, 1).reshape(*x.shape[:-1], w.shape[1])
