"""SwiGLU with its limits and quantisation in one launch: an expert's hidden values are never rounded to BF16.

    h = quantise(silu(min(gate, limit)) clamp(up, -limit, limit)),   gate, up BF16; NVFP4 or FP8

Outputs: codes and scales, exact, against fp64 arithmetic rounded once to fp32; `y`, read from them, against h itself.
Not proven here: speed; that no value lies so near a midpoint that the fp32 error of h (2^-21) gives it the other code.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.fused
from kernels.swiglu_quantize import swiglu_quantize
from oracles.experts import swiglu
from stages.shared import passes
from stages.shared.passes import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """gate and up, halves of one tensor as a projection of both writes them, many beyond the limit; the global
    scale."""
    both = 2 * passes.matrix(case, rng, 2 * case.k)
    x = {"both": both}
    return x | passes.scale_for(case, hidden(x, case))


def halves(x: Tensors, case: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """gate and up."""
    return x["both"][:, : case.k], x["both"][:, case.k :]


def limit(case: Any) -> float | None:
    """The limit of the case; 0 says none."""
    return case.get("limit", 10.0) or None


def hidden(x: Tensors, case: Any) -> torch.Tensor:
    """h as fp32 numbers."""
    return oracles.fused.swiglu_quantize(*halves(x, case), lambda y: y, limit=limit(case))


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel."""
    settings = passes.form(case) | {"limit": limit(case), "ctas": case.get("ctas", None)}
    return passes.named(swiglu_quantize(*halves(x, case), x.get("g"), **settings, backend=backend, kernel=mutant))


def values(outputs: Tensors, case: Any) -> Tensors:
    """y over the global scale: the numbers that the outputs stand for."""
    return {"y": passes.decoded(outputs, torch.ones(()), case)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The composition of SwiGLU and the format."""
    return passes.composed(hidden(x, case), x.get("g"), case, kind)


def plain(x: Tensors, case: Any) -> Tensors:
    """The same by torch."""
    return oracle(x, case, "simulated")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The output with one known mistake each."""
    if case.m == 0:
        return {}
    found = passes.mistakes(hidden(x, case), x.get("g"), case)
    gate, up = (half.double() for half in halves(x, case))
    most = limit(case) or torch.inf
    changed = {
        # no limits at all, or none of one of the two: look at limited()
        "clamp_missing": swiglu(gate, up, limit=None),
        "up_not_clamped_below": swiglu(gate.clamp(max=most), up.clamp(max=most), limit=None),
        # gate is limited from below, too
        "gate_clamped_below": swiglu(gate.clamp(-most, most), up.clamp(-most, most), limit=None),
        # limits behind the activation
        "clamp_after_silu": torch.nn.functional.silu(gate).clamp(max=most) * up.clamp(-most, most),
        # gate and up change places
        "up_activated": swiglu(up, gate, limit=limit(case)),
        # a sigmoid without its argument in front
        "sigmoid_for_silu": torch.sigmoid(gate.clamp(max=most)) * up.clamp(-most, most),
    }
    found |= {name: passes.encoded(y.float(), x.get("g"), case) for name, y in changed.items()}
    return passes.with_values(found, torch.ones(()), case)
