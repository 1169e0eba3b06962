"""Inputs, judgement and mistakes of the decode attention stages.

Fields of a case: lengths (tokens of each sequence, the query's own among them), h (heads), k (lanes of ids), entries
(rows of the pool, one of them NaN), counts (valid lanes of each sequence); `holes`: the first 16 lanes
hold -1 although later ones are valid; `data` biased or large_logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oracles import attention, cache
from oracles.precision import Kind
from stages.shared.data import Tensors, activations, vector

WIDTH, WINDOW, SCALE = 512, 128, 512**-0.5


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q, sink, the rings, the pool and ids into it."""
    b = len(case.lengths)
    lengths, counts = torch.tensor(case.lengths), torch.tensor(case.counts)
    # Small queries: the softmax is spread over many keys, and each of them counts.
    q, window = activations(b, case.h, WIDTH, rng=rng) / 8, activations(b, WINDOW, WIDTH, rng=rng)
    pool = activations(case.entries, WIDTH, rng=rng)
    if case.get("data", "biased") == "large_logits":
        # Logits of about -6e4: any finite value that stands for "hidden" would win.
        q, window, pool = (torch.full_like(t, v) for t, v in ((q, -53.0), (window, 50.0), (pool, 50.0)))
        window[..., -1], pool[..., -1] = torch.randn(b, WINDOW, generator=rng), torch.randn(case.entries, generator=rng)
    window[cache.ring_positions(lengths, WINDOW) < 0] = torch.nan
    poison = case.entries - 1
    pool[poison] = torch.nan
    ids = torch.stack([torch.randperm(max(poison, case.k), generator=rng)[: case.k] for _ in range(b)])
    hidden = torch.arange(case.k) >= counts[:, None]
    ids = torch.where(hidden, torch.where(torch.arange(case.k) % 2 == 0, poison, -1), ids % max(poison, 1))
    if case.get("holes", False):
        ids[:, :16] = -1
    return {
        "q": q,
        "window": window,
        "pool": pool,
        "ids": ids,
        "counts": counts,
        "lengths": lengths,
        "sink": 2 * vector(case.h, rng=rng) + case.get("sink", 0.0),
    }


def attended(
    x: Tensors,
    window: torch.Tensor,
    pool: torch.Tensor,
    *,
    scale: float = SCALE,
    sink: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    attend: Callable[..., tuple[torch.Tensor, torch.Tensor]] = attention.attention,
) -> Tensors:
    """out [b, h, 512] and lse [b, h]."""
    parts = [_ring(x, window), _chosen(x, pool)]
    sink = x["sink"] if sink is None else sink
    out, lse = attend(x["q"][:, None], parts, sink, scale=scale, dtype=dtype, kind=kind)
    return {"out": out[:, 0], "lse": lse[:, 0]}


def mistakes(
    x: Tensors, window: torch.Tensor, pool: torch.Tensor, attend: Callable[..., tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, Tensors]:
    """Attention with one known mistake each."""
    if not len(x["q"]):
        return {}
    right = attended(x, window, pool)
    clean = pool.nan_to_num(0.0)
    every = {**x, "counts": torch.full_like(x["counts"], x["ids"].shape[1])}
    beside = {**x, "ids": (x["ids"] + 1).clamp(max=len(pool) - 2)}
    none = {**x, "counts": torch.zeros_like(x["counts"])}
    joined = (x["sink"].double().exp() + right["lse"].exp()).log() if right["lse"].isfinite().all() else right["lse"]
    shifted = {**x, "lengths": (x["lengths"] - 1).clamp(min=1)}
    variants = {
        # lanes behind the count are read
        "lanes_past_count": attended(every, window, clean),
        # the entry beside the chosen one
        "entry_beside": attended(beside, window, clean),
        # compressed entries are not attended to
        "window_only": attended(none, window, pool),
        # the newest key is not in the window yet
        "newest_hidden": attended(shifted, window, pool),
        # the sink is left out
        "no_sink": attended(x, window, pool, sink=torch.full_like(x["sink"], -torch.inf)),
        # the sinks of other heads
        "sink_of_other_head": attended(x, window, pool, sink=x["sink"].roll(1, 0)),
        # logits are not scaled
        "no_scale": attended(x, window, pool, scale=1.0),
        # YaRN's mscale in the logits
        "mscale": attended(x, window, pool, scale=SCALE * 1.2772588722239782**2),
        # the LSE in base 2
        "lse_base_2": {"lse": right["lse"] / torch.log(torch.tensor(2.0, dtype=torch.float64))},
        # the sink is part of the LSE
        "lse_with_sink": {"lse": joined},
    }
    return variants


def _ring(x: Tensors, window: torch.Tensor) -> attention.Part:
    held = cache.ring_positions(x["lengths"], WINDOW)
    return window[:, None], (held >= 0)[:, None]


def _chosen(x: Tensors, pool: torch.Tensor) -> attention.Part:
    batch = pool.expand(len(x["q"]), *pool.shape)
    return attention.gather(batch, x["ids"][:, None], x["counts"][:, None])
