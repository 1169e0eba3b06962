"""Core attention of V4: one latent is key and value of all heads, one softmax over window and compressed entries, a
sink.

    l_j = scale q_h . K_j          o_h = sum_j exp(l_j - mu) K_j / (sum_j exp(l_j - mu) + exp(sink_h - mu))

The sink is a term of the denominator and has no value. ``fmha`` is the general form with separate keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oracles.precision import Kind, expect, rounded

Part = tuple[torch.Tensor, torch.Tensor]
"""Keys kv [..., S, c] of all queries, or [..., T, S, c] of each query its own; and visible, bool, broadcastable to
[..., T, S].
"""


def attention(
    q: torch.Tensor,
    parts: Sequence[Part],
    sink: torch.Tensor | None,
    *,
    scale: float,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [..., T, H, c], parts, sink [H] or None -> out [..., T, H, c] and lse [..., T, H] = ln sum_j exp(l_j),
    without the sink.

    What is invisible may hold anything, NaN and infinity too. A visible row that is not finite makes its query NaN. A
    query that sees nothing: 0 and -inf. simulated: exp(l - max l) and the output are rounded to q's dtype, the sum is
    of what is not rounded.
    """
    keys, logits = [], []
    for kv, visible in parts:
        clean, part = _logits(q.to(dtype), kv.to(dtype), visible, scale)
        keys.append(clean)
        logits.append(part)
    joined = torch.cat(logits, dim=-1)
    if joined.shape[-1] == 0:
        return q.new_zeros(q.shape, dtype=dtype), q.new_full(q.shape[:-1], -torch.inf, dtype=dtype)
    # Without the sink: then P is what a kernel rounds. exp(sink - mu) may be infinite, and the output 0 is the limit.
    top = joined.amax(dim=-1, keepdim=True)
    mu = top.masked_fill(top == -torch.inf, 0.0)
    p = torch.exp(joined - mu)
    row_sum = p.sum(dim=-1, keepdim=True)
    total = row_sum if sink is None else row_sum + torch.exp(sink.to(dtype)[:, None] - mu)
    p = rounded(p, q.dtype, kind).split([part.shape[-1] for part in logits], dim=-1)
    out = sum(_weighted(weights, kv) for weights, kv in zip(p, keys, strict=True))
    out = out / total.masked_fill(total == 0.0, 1.0)
    return rounded(out, q.dtype, kind), (mu + row_sum.log()).squeeze(-1)


def _logits(
    q: torch.Tensor, kv: torch.Tensor, visible: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys with zeros for rows that are not finite, and l [..., T, H, S]: -inf where invisible, NaN where visible
    and not finite.
    """
    expect("attention", kv.shape[-1] == q.shape[-1], "kv.shape", tuple(kv.shape), f"[..., {q.shape[-1]}]")
    finite = kv.abs().amax(dim=-1).isfinite()
    clean = torch.where(finite[..., None], kv, 0.0)
    if kv.ndim < q.ndim:
        dots = (q.flatten(-3, -2) @ clean.mT).unflatten(-2, q.shape[-3:-1])
        finite = finite[..., None, :]
    else:
        dots = q @ clean.mT
    dots = (dots * scale).masked_fill(~finite[..., None, :], torch.nan)
    return clean, dots.masked_fill(~visible[..., None, :], -torch.inf)


def _weighted(p: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    """sum_s p[..., T, H, s] kv[..., s, :], kv of all queries or of each."""
    if kv.ndim < p.ndim:
        return (p.flatten(-3, -2) @ kv).unflatten(-2, p.shape[-3:-1])
    return p @ kv


def gather(pool: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor | None = None) -> Part:
    """Of each query its own keys: pool [..., P, c], ids int64 [..., T, K] -> kv [..., T, K, c], visible bool [..., T,
    K].

    Visible are ids of 0 .. P - 1 and, with counts [..., T], lanes below the count: what ids holds past it is not read.
    """
    rows = pool.shape[-2]
    visible = (ids >= 0) & (ids < rows)
    if counts is not None:
        visible = visible & (torch.arange(ids.shape[-1], device=ids.device) < counts[..., None])
    if rows == 0:
        return pool.new_zeros((*ids.shape, pool.shape[-1])), visible
    batch = pool.shape[:-2]
    base = (torch.arange(batch.numel(), device=ids.device) * rows).view(*batch, 1, 1)
    return pool.reshape(-1, pool.shape[-1])[torch.where(visible, ids, 0) + base], visible


def window_visible(q_positions: torch.Tensor, k_positions: torch.Tensor, window: int = 128) -> torch.Tensor:
    """0 <= p - s < window, itself included: q_positions [..., T], k_positions [..., S] -> bool [..., T, S].

    A negative key position is an empty slot of the ring.
    """
    distance = q_positions[..., :, None] - k_positions[..., None, :]
    return (distance >= 0) & (distance < window) & (k_positions >= 0)[..., None, :]


def compressed_visible(q_positions: torch.Tensor, entries: int, ratio: int) -> torch.Tensor:
    """w < (p + 1) // ratio: q_positions [..., T] -> bool [..., T, entries]."""
    return torch.arange(entries, device=q_positions.device) < ((q_positions + 1) // ratio)[..., None]


def selected_visible(ids: torch.Tensor, entries: int) -> torch.Tensor:
    """The ids [..., T, k] of ``indexer.topk`` as a mask, bool [..., T, entries]; -1 selects nothing."""
    mask = torch.zeros((*ids.shape[:-1], entries + 1), dtype=torch.bool, device=ids.device)
    return mask.scatter(-1, torch.where(ids < 0, entries, ids), True)[..., :entries]
