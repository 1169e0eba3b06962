"""The lightning indexer: which compressed entries a query attends to (CSA layers).

    I[t, w] = sum_h u[t, h] relu(q[t, h] . k[w])      u may be negative, so may I
    the min(k, count) largest among w < count, count = (t + 1) // m

Keys are entries of an index compressor (``compressor`` with D = 128). A Hadamard rotation of queries AND keys changes
no score.
"""

from __future__ import annotations

import torch

from oracles.formats import hadamard
from oracles.linear import linear
from oracles.precision import Kind, Quantiser, expect, rounded
from oracles.rope import rotate


def queries(
    qr: torch.Tensor,
    wq_b: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    heads: int,
    rotated: bool = False,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """rope(qr wq_b^T), without a norm: qr [..., R], wq_b [H D, R], cos and sin [..., r / 2] -> [..., H, D].

    rotated: then Hadamard. simulated: the product, the rotated and the transformed queries are rounded to qr's dtype.
    """
    wide = rounded(linear(qr, wq_b, dtype=dtype, activation=activation), qr.dtype, kind).unflatten(-1, (heads, -1))
    q = rounded(rotate(wide, cos[..., None, :], sin[..., None, :], dtype=dtype), qr.dtype, kind)
    return rounded(hadamard.transform(q, dtype=dtype), qr.dtype, kind) if rotated else q


def head_weights(
    x: torch.Tensor,
    weights_proj: torch.Tensor,
    *,
    head_dim: int = 128,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """u = x weights_proj^T head_dim^-0.5 H^-0.5: x [..., d], weights_proj [H, d] -> [..., H]. simulated: the product
    is rounded to x's dtype.
    """
    u = rounded(linear(x, weights_proj, dtype=dtype), x.dtype, kind)
    return u * (head_dim**-0.5 * weights_proj.shape[0] ** -0.5)


def visible_counts(positions: torch.Tensor, ratio: int) -> torch.Tensor:
    """Entries that a query at int64 positions [...] may see: (p + 1) // ratio, its own last window included once it
    is full.
    """
    return (positions + 1) // ratio


def scores(
    q: torch.Tensor, k: torch.Tensor, u: torch.Tensor, *, dtype: torch.dtype = torch.float64, kind: Kind = "ideal"
) -> torch.Tensor:
    """I: q [..., T, H, D], k [..., W, D], u [..., T, H] -> [..., T, W]. simulated: I is rounded to fp32."""
    tokens, heads = q.shape[-3:-1]
    expect("indexer.scores", u.shape[-2:] == q.shape[-3:-1], "u.shape", tuple(u.shape), f"[..., {tokens}, {heads}]")
    dots = q.to(dtype).flatten(-3, -2) @ k.to(dtype).mT
    positive = torch.relu(dots).unflatten(-2, (tokens, heads))
    return rounded((u.to(dtype)[..., None, :] @ positive).squeeze(-2), torch.float32, kind)


def topk(scores: torch.Tensor, counts: torch.Tensor, k: int) -> torch.Tensor:
    """Ids int64 [..., k] of the largest of scores [..., W] among w < counts [...], best first, ties to the lower id.

    After the min(k, count) valid ones: -1. k may exceed W. -inf is a valid score and never loses to an entry that is
    not visible; NaN ranks with it.
    """
    width = scores.shape[-1]
    visible = torch.arange(width, device=scores.device) < counts[..., None]
    ranked = scores.masked_fill(~visible | scores.isnan(), -torch.inf)
    ids = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    ids = torch.nn.functional.pad(ids, (0, max(k - width, 0)))
    return ids.masked_fill(torch.arange(k, device=scores.device) >= counts.clamp(max=width)[..., None], -1)
