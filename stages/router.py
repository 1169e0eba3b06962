"""Which experts a token goes to and with which weights.

With a = sqrt(softplus(x gate^T)): the k best of a + bias, or, in the first layers, a table's row for the token id;
weights are scale a / sum of a over the chosen, without the bias.

x (t, d), gate (e, d) bf16, bias (e) f32 or table (v, k) int64 with ids (t). Outputs: weights (t, k) f32; experts (t, k)
int64, best first, ties to the lower (`ties`: experts in pairs of the same gate and bias).
No kernel yet; not proven by the oracle alone: syncs, sorting tokens by expert.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import router
from stages.shared import data
from stages.shared.data import Tensors

VOCABULARY = 300


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Biases that change the choice; logits beyond where e^z overflows, if the case says `large`."""
    x, gate = data.activations(case.t, case.d, rng=rng), data.matrix(case.e, case.d, rng=rng)
    if case.get("large", False):
        gate = gate * 200
    bias = data.vector(case.e, rng=rng)
    if case.get("ties", False):
        gate, bias = gate[torch.arange(case.e) // 2], bias[torch.arange(case.e) // 2]
    if not case.get("hashed", False):
        return {"x": x, "gate": gate, "bias": bias}
    order = torch.rand(VOCABULARY, case.e, generator=rng).argsort(1)[:, : case.k]
    return {"x": x, "gate": gate, "table": order, "ids": torch.randint(0, VOCABULARY, (case.t,), generator=rng)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """In fp64."""
    return _routed(x, case)


def plain(x: Tensors, case: Any) -> Tensors:
    """In f32."""
    found = _routed(x, case, dtype=torch.float32)
    return {"weights": found["weights"].float(), "experts": found["experts"]}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other choices, other weights."""
    if not case.t:
        return {}
    right = _routed(x, case)
    a = router.affinities(x["x"], x["gate"])
    chosen = a.gather(1, right["experts"])
    z = x["x"].double() @ x["gate"].double().mT
    sigmoid = torch.sigmoid(z).gather(1, right["experts"])
    variants = {
        # the scale is applied twice
        "scale_twice": {"weights": right["weights"] * case.scale},
        # weights are not scaled to a sum
        "not_normalised": {"weights": chosen * case.scale},
        # softmax over the chosen instead
        "softmax": {"weights": torch.softmax(z.gather(1, right["experts"]), 1) * case.scale},
        # sigmoid scores, as in the model before
        "sigmoid": {"weights": sigmoid / sigmoid.sum(1, keepdim=True) * case.scale},
        # softplus without the root
        "no_root": {"weights": chosen.square() / chosen.square().sum(1, keepdim=True) * case.scale},
        # experts in the order of their ids
        "by_id": {"experts": right["experts"].sort(1).values},
    }
    if "bias" in x:
        order = (a + x["bias"].double()).sort(dim=1, descending=True, stable=True).indices[:, : case.k]
        biased = (a + x["bias"].double()).gather(1, order)
        flipped = (a + x["bias"].double()).flip(1).sort(dim=1, descending=True, stable=True).indices[:, : case.k]
        variants |= {
            # the bias is part of the weights
            "bias_in_weights": {"weights": biased / biased.sum(1, keepdim=True) * case.scale},
            # the choice without the bias
            "no_bias": _routed({**x, "bias": torch.zeros_like(x["bias"])}, case),
            # ties to the higher expert
            "ties_to_higher": {"experts": case.e - 1 - flipped},
        }
    else:
        variants |= {
            # the neighbour's row of the table
            "next_row": _routed({**x, "ids": (x["ids"] + 1) % VOCABULARY}, case),
            # hash layers routed by score
            "by_score": {"experts": a.sort(dim=1, descending=True, stable=True).indices[:, : case.k]},
        }
    return variants


def _routed(x: Tensors, case: Any, dtype: torch.dtype = torch.float64) -> Tensors:
    weights, experts = router.route(
        x["x"],
        x["gate"],
        k=case.k,
        scale=case.scale,
        bias=x.get("bias"),
        table=x.get("table"),
        ids=x.get("ids"),
        dtype=dtype,
    )
    return {"weights": weights, "experts": experts}
