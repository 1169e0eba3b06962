"""Partial rotary embedding of the last 64 dimensions of every head, and its inverse.

    (e, o) -> (e cos a - o sin a, e sin a + o cos a) for the pairs (2 i, 2 i + 1), a = f32(p) f32(f_i)

x (t, h, c) bf16, positions (t) int64, of which cos and sin are made, fp32. Frequencies: theta 10000 plain (`yarn:
false`), or 160000 with YaRN, as the layers that compress have them. Output: y (t, h, c) bf16, exact against fp64
arithmetic on those cos and sin, and `y_ideal`, the same tensor, against exact angles. The kernel works in place, on a
copy of the input. Not proven here: speed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernels.rope import rope as kernel_rope
from oracles import rope
from stages.shared import data, passes
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Heads, and positions from `start` on; the last one is `last`, if the case has it."""
    positions = torch.arange(case.t) + case.get("start", 0)
    if case.t and case.get("last") is not None:
        positions[-1] = case.last
    x = data.activations(case.t, case.h, case.c, rng=rng)
    if case.t and case.get("hostile", False):
        x[0, 0, -1], x[-1, -1, 0], x[0, -1, -64:] = float("nan"), float("inf"), -0.0
    x = passes.heads_apart(x) if case.get("layout", "packed") == "padded" else x
    cos, sin = (angles.float() for angles in rope.angles(positions, data.frequencies(case.yarn)))
    return {"x": x, "positions": positions, "cos": cos, "sin": sin}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel, in place on a copy."""
    y = passes.copied(x["x"])
    flat = y[:, 0] if case.get("flat", False) else y
    kernel_rope(flat, x["cos"], x["sin"], inverse=case.get("inverse", False), backend=backend, kernel=mutant)
    return {"y": y, "y_ideal": y}


def bench(x: Tensors, case: Any, backend: Any) -> Callable[[], Any]:
    """The kernel alone, in place, without the copy."""
    return partial(kernel_rope, x["x"], x["cos"], x["sin"], inverse=case.get("inverse", False), backend=backend)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64 rotation; ideal: by the f32 angle; simulated: by its cos and sin as fp32 numbers, then rounded."""
    if kind == "ideal":
        return _both(_turned(x["x"].double(), x["positions"], case))
    cos, sin = x["cos"][:, None], x["sin"][:, None]
    return _both(rope.rotate(x["x"], cos, sin, inverse=case.get("inverse", False), kind="simulated"))


def _both(y: torch.Tensor) -> Tensors:
    return {"y": y, "y_ideal": y}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same with cos and sin in f32, products in f32, one rounding."""
    cos, sin = rope.angles(x["positions"], data.frequencies(case.yarn), dtype=torch.float32)
    turned = rope.rotate(x["x"], cos[:, None], sin[:, None], inverse=case.get("inverse", False), dtype=torch.float32)
    return _both(turned.bfloat16())


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other pairs, other angles, other dims."""
    if not case.t:
        return {}
    wide, positions = x["x"].double(), x["positions"]
    front, back = wide[..., :64], wide[..., 64:]
    half = wide.clone()
    half[..., -64:] = half[..., -64:].unflatten(-1, (2, 32)).transpose(-1, -2).flatten(-2)
    turned = _turned(half, positions, case)
    turned[..., -64:] = turned[..., -64:].unflatten(-1, (32, 2)).transpose(-1, -2).flatten(-2)
    variants = {
        # pairs (i, i + 32) instead of neighbours: look at turned() in kernels/rope/simt.py
        "half_split": turned,
        # the other direction
        "inverse": _turned(wide, -positions, case),
        # the position of the neighbour
        "next_position": _turned(wide, positions + 1, case),
        # the other layers' base
        "other_base": _turned(wide, positions, case, yarn=not case.yarn),
        # index of the row instead of the position
        "row_for_position": _turned(wide, torch.arange(case.t), case),
    }
    if case.c > 64:
        # the first 64 dims instead of the last
        variants["first_dims"] = torch.cat((_turned(front, positions, case), back), -1)
    if case.yarn:
        # YaRN's mscale on cos and sin
        scaled = _turned(wide, positions, case)
        scaled[..., -64:] *= 1.2772588722239782
        variants["mscale"] = scaled
    return {name: _both(y) for name, y in variants.items()}


def _turned(x: torch.Tensor, positions: torch.Tensor, case: Any, yarn: bool | None = None) -> torch.Tensor:
    cos, sin = rope.angles(positions, data.frequencies(case.yarn if yarn is None else yarn))
    return rope.rotate(x, cos[:, None], sin[:, None], inverse=case.get("inverse", False))
