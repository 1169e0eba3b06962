"""Scores of the lightning indexer: I[t, w] = sum_h u[t, h] relu(q[t, h] . k[w]), on the keys that the cache holds.

q (t, h, 128) bf16, u (t, h) f32, k (w, 128) bf16. `format` fp8 or fp4 rounds rotated queries and keys as the cache
does, bf16 leaves them. Outputs: scores (t, w) f32; and the same as scores_ideal, judged by the unrounded oracle.
No kernel yet; not proven by the oracle alone: paging, causal bounds (indexer_topk reads only what is visible), speed.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import indexer
from oracles.formats import hadamard, index_entry
from stages.shared import data
from stages.shared.data import Tensors

WIDTH = 128


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Head weights of both signs; keys with a common direction, so that scores are large."""
    return {
        "q": data.activations(case.t, case.h, WIDTH, rng=rng),
        "k": data.activations(case.w, WIDTH, rng=rng),
        "u": torch.randn(case.t, case.h, generator=rng) * 128**-0.5 * case.h**-0.5,
    }


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64; simulated: of what the format holds."""
    q, k = x["q"], x["k"]
    if kind == "simulated":
        q, k = _held(q, case), _held(k, case)
    return data.both(indexer.scores(q, k, x["u"]), "scores")


def plain(x: Tensors, case: Any) -> Tensors:
    """f32 products of what the format holds."""
    return data.both(indexer.scores(_held(x["q"], case), _held(x["k"], case), x["u"], dtype=torch.float32), "scores")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other sums."""
    if not case.t or not case.w:
        return {}
    q, k, u = _held(x["q"], case).double(), _held(x["k"], case).double(), x["u"].double()
    dots = torch.einsum("thd,wd->thw", q, k)
    variants = {
        # no relu
        "no_relu": torch.einsum("th,thw->tw", u, dots),
        # relu of the weighted sum
        "relu_outside": torch.relu(torch.einsum("th,thw->tw", u, dots)),
        # weights made positive
        "weights_positive": indexer.scores(q, k, u.abs()),
        # one head less
        "last_head_dropped": indexer.scores(q[:, :-1], k, u[:, :-1]),
        # the scale of the weights is missing
        "not_scaled": indexer.scores(q, k, u) * (128 * case.h) ** 0.5,
        # every query has the weights of the one before
        "other_weights": indexer.scores(q, k, u.roll(1, 0)),
        # key w is read at w - 1
        "key_beside": indexer.scores(q, k.roll(1, 0), u),
    }
    if case.format != "bf16":
        # queries are rotated, keys are not
        variants["one_side_rotated"] = indexer.scores(hadamard.transform(x["q"].double()), x["k"], u)
    return {name: data.both(scores, "scores") for name, scores in variants.items()}


def _held(x: torch.Tensor, case: Any) -> torch.Tensor:
    """What the format holds of rotated values."""
    if case.format == "bf16":
        return x
    turned = hadamard.transform(x, dtype=torch.float32)
    return index_entry.rounded_fp8(turned) if case.format == "fp8" else index_entry.rounded_fp4(turned)
