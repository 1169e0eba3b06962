"""Attention as the paper writes it, in fp64: one matrix of logits per head, one softmax, no tiles.

``simulated``: P and the output are rounded to the input dtype, all else is exact.
"""

from __future__ import annotations

import math

import torch

from oracles.precision import Kind, rounded


def logits(q: torch.Tensor, k: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """s[b, h, i, j] = scale * sum_d q[b, i, h, d] k[b, j, h // g, d], and -inf where causal and j > i + s_kv - s_q.

    q (b, s_q, h, d), k (b, s_kv, h_kv, d), g = h / h_kv -> fp64 (b, h, s_q, s_kv).
    """
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    s = scale * torch.einsum("bihd,bjhd->bhij", q.double(), k.double())
    if causal:
        s_q, s_kv = s.shape[-2:]
        hidden = torch.arange(s_kv) > torch.arange(s_q)[:, None] + (s_kv - s_q)
        s = s.masked_fill(hidden, -math.inf)
    return s


def identity(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float, causal: bool = False, kind: Kind = "ideal"
) -> torch.Tensor:
    """out[i] = sum_j p[i, j] v[j] with p = s, 0 where hidden: two products and no softmax. fp64 (b, s_q, h, d)."""
    s = logits(q, k, scale, causal)
    p = s.masked_fill(s == -math.inf, 0.0)
    return rounded(_weighted(rounded(p, q.dtype, kind), v), q.dtype, kind)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float, causal: bool = False, kind: Kind = "ideal"
) -> tuple[torch.Tensor, torch.Tensor]:
    """out = softmax(s) v = sum_j exp(s_j - m) v_j / sum_j exp(s_j - m), m = max_j s_j; lse = ln sum_j exp(s_j).

    q (b, s_q, h, d), k and v (b, s_kv, h_kv, d) -> fp64 out (b, s_q, h, d) and lse (b, h, s_q).
    A row that sees no key: 0 and -inf.
    """
    s = logits(q, k, scale, causal)
    lse = torch.logsumexp(s, dim=-1) if s.shape[-1] else s.new_full(s.shape[:-1], -math.inf)
    m = s.amax(dim=-1, keepdim=True) if s.shape[-1] else lse[..., None]
    p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0))
    row_sum = p.sum(dim=-1).transpose(1, 2)[..., None]
    out = _weighted(rounded(p, q.dtype, kind), v) / row_sum.masked_fill(row_sum == 0.0, 1.0)
    return rounded(out, q.dtype, kind), lse


def _weighted(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """sum_j p[b, h, i, j] v[b, j, h // g, d] -> (b, i, h, d)."""
    v = v.repeat_interleave(p.shape[1] // v.shape[2], dim=2)
    return torch.einsum("bhij,bjhd->bihd", p, v.double())
