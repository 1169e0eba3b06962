"""The k best entries of every query among those that it may see, ties to the lower index, -1 where there are fewer.

scores (t, w) f32, counts (t) int64: entries w < count are visible, later ones may hold anything. Outputs: ids (t, k)
int64, best first, exactly.
No kernel yet; not proven by the oracle alone: no global lock, launches.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import indexer
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Scores in steps of 1/`grain`, so that many are equal, or all different; garbage and NaN behind the counts."""
    if case.get("grain"):
        scores = (torch.randn(case.t, case.w, generator=rng) * case.grain).round() / case.grain
    else:
        scores = torch.rand(case.t, case.w, generator=rng).argsort(1).float() - case.w / 2
    low = case.get("low", 0)
    counts = torch.randint(low, case.w + 1, (case.t,), generator=rng)
    if case.t > 1:
        counts[0], counts[-1] = low, case.w
    hidden = torch.arange(case.w) >= counts[:, None]
    garbage = torch.where(torch.arange(case.w) % 2 == 0, torch.inf, torch.nan)
    return {"scores": torch.where(hidden, garbage, scores), "counts": counts}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """A stable sort."""
    return {"ids": indexer.topk(x["scores"], x["counts"], case.k)}


def plain(x: Tensors, case: Any) -> Tensors:
    """Row by row in Python."""
    rows = []
    for scores, count in zip(x["scores"].tolist(), x["counts"].tolist(), strict=True):
        order = sorted(range(count), key=lambda w: (-scores[w], w))[: case.k]
        rows.append(order + [-1] * (case.k - len(order)))
    return {"ids": torch.tensor(rows, dtype=torch.int64).view(case.t, case.k)}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other entries, other orders."""
    if not case.t or not case.w:
        return {}
    scores, counts, k = x["scores"], x["counts"], case.k
    right = indexer.topk(scores, counts, k)
    flipped = indexer.topk(scores.flip(1).nan_to_num(0.0), torch.full_like(counts, case.w), k)
    everything = scores.nan_to_num(0.0, posinf=1e30)
    return {
        # ties to the higher index
        "ties_to_higher": {"ids": _ties_high(scores, counts, k)},
        # what is not visible is ranked too
        "not_masked": {"ids": indexer.topk(everything, torch.full_like(counts, case.w), k)},
        # the window that is still open counts as an entry
        "one_too_many": {"ids": indexer.topk(everything, counts + 1, k)},
        # the smallest instead of the largest
        "smallest": {"ids": indexer.topk(-scores, counts, k)},
        # missing ones are 0 instead of -1
        "zeros_for_missing": {"ids": right.clamp(min=0)},
        # positions of the reversed row
        "reversed": {"ids": flipped},
        # the first k, unranked
        "first_k": {"ids": torch.where(right < 0, right, torch.arange(k).expand_as(right))},
    }


def _ties_high(scores: torch.Tensor, counts: torch.Tensor, k: int) -> torch.Tensor:
    rows = []
    for row, count in zip(scores.tolist(), counts.tolist(), strict=True):
        order = sorted(range(count), key=lambda w: (-row[w], -w))[:k]
        rows.append(order + [-1] * (k - len(order)))
    return torch.tensor(rows, dtype=torch.int64)
