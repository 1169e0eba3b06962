"""Passes that do several operations in one launch: compositions, with a rounding only where a value leaves the kernel.

Each takes a ``quantise`` from ``formats`` (values -> what is stored, e.g. ``fp8.quantize_1x128`` or
``functools.partial(nvfp4.quantize, global_scale=g)``) and returns what it returns. With an identity in its place the
result is the ideal one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from oracles import mhc
from oracles.experts import swiglu
from oracles.norm import rms_norm
from oracles.rope import rotate

Stored = TypeVar("Stored")
Encoder = Callable[[torch.Tensor], Stored]


def rmsnorm_quantize(x: torch.Tensor, weight: torch.Tensor, quantise: Encoder[Stored], *, eps: float = 1e-6) -> Stored:
    """quantise(norm(x) w): x [..., N], weight [N]. The norm is not rounded on its way, except to the fp32 that a
    kernel has.
    """
    return quantise(rms_norm(x, weight, eps=eps).float())


def mhc_pre_rmsnorm_quantize(
    streams: torch.Tensor,
    fn: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    weight: torch.Tensor,
    quantise: Encoder[Stored],
    *,
    eps: float = 1e-6,
) -> tuple[Stored, torch.Tensor, torch.Tensor]:
    """quantise(norm(x) w), C [..., n], M [..., n, n] of ``mhc.pre``; x itself is not stored and so not rounded."""
    x, c, m = mhc.pre(streams, fn, scale, base, norm_eps=eps)
    return quantise(rms_norm(x, weight, eps=eps).float()), c, m


def swiglu_quantize(
    gate: torch.Tensor, up: torch.Tensor, quantise: Encoder[Stored], *, limit: float | None = 10.0
) -> Stored:
    """quantise(silu(min(gate, limit)) clamp(up)): gate, up [..., I]."""
    return quantise(swiglu(gate, up, limit=limit).float())


def qk_norm_rope(
    q: torch.Tensor, kv: torch.Tensor, kv_norm: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """rope of the norm over each head of q [..., H, c] (no weight), and rope of norm(kv) w, kv [..., c]; cos and sin
    [..., r / 2].
    """
    return (
        rotate(rms_norm(q, eps=eps), cos[..., None, :], sin[..., None, :]),
        rotate(rms_norm(kv, kv_norm, eps=eps), cos, sin),
    )


def rope_quantize(o: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, quantise: Encoder[Stored]) -> Stored:
    """Epilogue of attention: o [..., H, c] rotated by minus the query's position, then quantised along c."""
    return quantise(rotate(o, cos[..., None, :], sin[..., None, :], inverse=True).float())
