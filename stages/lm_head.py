"""Logits of the vocabulary from the last hidden state: norm(x) W^T, summed and kept in fp32.

x (t, d), norm (d), weight (v, d) bf16. Output: logits (t, v) f32.
No kernel yet; not proven by the oracle alone: speed, quantised heads.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import head
from stages.shared import data
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Hidden states as large as late residual streams are."""
    return {
        "x": 30 * data.activations(case.t, case.d, rng=rng),
        "norm": data.norm(case.d, rng),
        "weight": data.matrix(case.v, case.d, rng=rng),
    }


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64; simulated: the normed state is rounded to bf16."""
    simulated = "simulated" if kind == "simulated" else "ideal"
    return data.both(head.logits(x["x"], x["norm"], x["weight"], kind=simulated), "logits")  # type: ignore[arg-type]


def plain(x: Tensors, case: Any) -> Tensors:
    """The norm rounded to bf16, the product in f32."""
    return data.both(head.logits(x["x"], x["norm"], x["weight"], dtype=torch.float32, kind="simulated"), "logits")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other norms, other rows, other precisions."""
    if not case.t:
        return {}
    state, norm, weight = x["x"].double(), x["norm"].double(), x["weight"].double()
    right = head.logits(x["x"], x["norm"], x["weight"], kind="simulated")
    variants = {
        # no final norm
        "no_norm": state @ weight.mT,
        # a norm without its weight
        "no_weight": head.logits(state, torch.ones_like(norm), weight),
        # the weight is 1 + w
        "one_plus_weight": head.logits(state, 1 + norm, weight),
        # logits rounded to bf16
        "bf16_logits": right.bfloat16().double(),
        # the row before
        "row_beside": right.roll(1, 1),
        # the last columns are not computed
        "tail_dropped": torch.cat((right[:, :-1], torch.zeros_like(right[:, -1:])), 1),
    }
    return {name: data.both(logits, "logits") for name, logits in variants.items()}
