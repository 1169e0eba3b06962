"""The expert that every token goes through: y = w2 (silu(min(w1 x, 10)) clamp(w3 x, -10, 10)), on weights in FP8.

x (t, d) bf16; w1, w3 (n, d), w2 (d, n) as E4M3 codes with UE8M0 scales per 128 x 128 block. Output: y (t, d) bf16.
No kernel yet; not proven by the oracle alone: rounding of the activations, one launch pair, overlap with the others.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import experts
from oracles.formats import fp8
from stages.shared import data, expert
from stages.shared.data import Tensors

NAMES = ("w1", "w3", "w2")


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Blocks of unequal size, the last ones ragged if d or the width are no multiple of 128."""
    found: Tensors = {"x": data.activations(case.t, case.d, rng=rng)}
    for name, w in expert.matrices(1, case.d, case.width, rng).items():
        rows = torch.exp2(-(torch.arange(w.shape[1]) // 128 % 3).float())[:, None]
        found[f"{name}_codes"], found[f"{name}_scales"] = fp8.quantize_128x128(w[0].float() * rows)
    return found


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64 on the values that codes and scales stand for."""
    return {"y": experts.shared(x["x"], *_values(x).values())}


def plain(x: Tensors, case: Any) -> Tensors:
    """f32, rounded once."""
    return {"y": experts.shared(x["x"], *_values(x).values(), dtype=torch.float32).bfloat16()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other activations, other scales."""
    if not case.t:
        return {}
    v, row = _values(x), x["x"].double()
    gate, up = row @ v["w1"].mT, row @ v["w3"].mT
    variants = {name: swiglu(gate, up) @ v["w2"].mT for name, swiglu in expert.swiglus().items()}
    down = {**x, "w2_scales": x["w2_scales"].roll(1, 0)}
    variants |= {
        # the routed experts' scale is applied here too
        "route_scale": 1.5 * experts.shared(x["x"], *v.values()),
        # exponents of the scales one too large
        "scale_times_two": experts.shared(x["x"], v["w1"], v["w3"], 2 * v["w2"]),
    }
    if x["w2_scales"].unique().numel() > 1:
        # scales of the neighbouring block of rows
        variants["scale_of_other_block"] = experts.shared(x["x"], *_values(down).values())
    return {name: {"y": y} for name, y in variants.items()}


def _values(x: Tensors) -> Tensors:
    return {name: fp8.dequantize_128x128(x[f"{name}_codes"], x[f"{name}_scales"]) for name in NAMES}
