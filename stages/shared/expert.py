"""Weights and mistakes of the stages of experts: h = silu(min(w1 x, 10)) clamp(w3 x, -10, 10), y = w2 h."""

from __future__ import annotations

from collections.abc import Callable

import torch

from oracles import experts
from stages.shared import data
from stages.shared.data import Tensors

SwiGlu = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Gates and ups on both sides of their limits.
GAIN = 4.0


def matrices(count: int, d: int, width: int, rng: torch.Generator) -> Tensors:
    """w1, w3 (count, width, d) and w2 (count, d, width) f32, for the stage to store in its format."""
    shapes = {"w1": (count, width, d), "w3": (count, width, d), "w2": (count, d, width)}
    return {
        name: GAIN * data.matrix(*shape, rng=rng, dtype=torch.float32) if name != "w2" else data.matrix(*shape, rng=rng)
        for name, shape in shapes.items()
    }


def swiglus() -> dict[str, SwiGlu]:
    """Activations with one known mistake each."""
    silu = torch.nn.functional.silu
    return {
        # no limit
        "no_limit": lambda gate, up: silu(gate) * up,
        # gate is limited from below too
        "gate_from_below": lambda gate, up: silu(gate.clamp(-1, 10)) * up.clamp(-10, 10),
        # up is limited from above only
        "up_from_above": lambda gate, up: silu(gate.clamp(max=10)) * up.clamp(max=10),
        # gate and up exchanged: w1 and w3
        "exchanged": lambda gate, up: experts.swiglu(up, gate),
        # the sigmoid alone
        "sigmoid": lambda gate, up: torch.sigmoid(gate.clamp(max=10)) * up.clamp(-10, 10),
    }
