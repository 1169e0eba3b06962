"""Routed experts in NVFP4: every token through its experts, weighted and summed.

y = sum_e w2_e (weight_e silu(min(w1_e x, 10)) clamp(w3_e x, -10, 10)); weights as codes, E4M3 block scales and a global
scale for each expert (w1 and w3 share theirs). x (t, d) bf16, weights (t, k) f32, experts (t, k) int64, codes
(e, n, k / 2) and scales (e, n, k / 16) uint8, globals (e) f32. Output: y (t, d) bf16. Experts without a token are part
of every case.
No kernel yet; not proven by the oracle alone: activations in FP4, tokens sorted by expert, speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oracles import experts
from oracles.formats import nvfp4
from stages.shared import data, expert
from stages.shared.data import Tensors

NAMES = ("w1", "w3", "w2")


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Global scales that differ from expert to expert; the last expert is nobody's, some tokens share all of theirs."""
    values = expert.matrices(case.e, case.d, case.width, rng)
    size = 0.5 + torch.rand(case.e, 1, 1, generator=rng)
    found: Tensors = {"x": data.activations(case.t, case.d, rng=rng)}
    pair = torch.stack(
        [nvfp4.global_scale(torch.stack((a, b))) for a, b in zip(values["w1"], values["w3"], strict=True)]
    )
    for name in NAMES:
        alone = torch.stack([nvfp4.global_scale(w) for w in values[name].float()])
        scale = pair if name != "w2" else alone
        found[f"{name}_codes"], found[f"{name}_scales"] = nvfp4.quantize(values[name], scale[:, None, None])
        found[f"{name}_global"] = scale * size[:, 0, 0]
    order = torch.rand(case.t, case.e - 1, generator=rng).argsort(1)[:, : case.k]
    if case.t > 2:
        order[1] = order[0]
    weights = torch.rand(case.t, case.k, generator=rng) + 0.1
    return found | {"experts": order, "weights": 2.5 * weights / weights.sum(1, keepdim=True)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64 on the values that codes and scales stand for."""
    return {"y": _through(x, case, _values(x), torch.float64)}


def plain(x: Tensors, case: Any) -> Tensors:
    """f32 on values rounded to bf16."""
    values = {name: w.bfloat16() for name, w in _values(x).items()}
    return {"y": _through(x, case, values, torch.float32).bfloat16()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other activations, other weights, other experts."""
    if not case.t:
        return {}
    right = _values(x)
    variants = {name: _by_hand(x, right, swiglu) for name, swiglu in expert.swiglus().items()}
    ones = {**x, "weights": torch.ones_like(x["weights"])}
    swapped = {**x, "w1_codes": (x["w1_codes"] >> 4) | (x["w1_codes"] << 4)}
    globals_ = {f"{name}_global": x[f"{name}_global"].roll(1, 0) for name in NAMES}
    rolled = {f"{name}_scales": x[f"{name}_scales"].roll(1, 1) for name in NAMES}
    variants |= {
        # experts are not weighted
        "not_weighted": _through(ones, case, right, torch.float64),
        # every slot has the weight of the first
        "first_weight": _through(
            {**x, "weights": x["weights"][:, :1].expand_as(x["weights"])}, case, right, torch.float64
        ),
        # the neighbouring expert
        "next_expert": _through({**x, "experts": (x["experts"] + 1) % case.e}, case, right, torch.float64),
        # only the first expert
        "one_expert": _through(
            {**x, "experts": x["experts"][:, :1], "weights": x["weights"][:, :1]}, case, right, torch.float64
        ),
        # the global scale of another expert
        "global_of_other": _through(x, case, _values({**x, **globals_}), torch.float64),
        # block scales of the row before
        "scale_of_other_row": _through(x, case, _values({**x, **rolled}), torch.float64),
        # high nibble first
        "nibbles_swapped": _through(x, case, _values(swapped), torch.float64),
    }
    return {name: {"y": y} for name, y in variants.items()}


def _values(x: Tensors) -> Tensors:
    return {
        name: nvfp4.dequantize(x[f"{name}_codes"], x[f"{name}_scales"], x[f"{name}_global"][:, None, None])
        for name in NAMES
    }


def _through(x: Tensors, case: Any, values: Tensors, dtype: torch.dtype) -> torch.Tensor:
    stacks = (values[name] for name in NAMES)
    return experts.routed(x["x"], x["weights"], x["experts"], *stacks, dtype=dtype)


def _by_hand(x: Tensors, values: Tensors, swiglu: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Token by token, with another activation."""
    rows = []
    for row, weights, chosen in zip(x["x"].double(), x["weights"].double(), x["experts"].tolist(), strict=True):
        parts = [
            values["w2"][e] @ (w * swiglu(values["w1"][e] @ row, values["w3"][e] @ row))
            for w, e in zip(weights, chosen, strict=True)
        ]
        rows.append(torch.stack(parts).sum(0))
    return torch.stack(rows)
