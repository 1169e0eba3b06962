"""RMSNorm and quantisation in one launch: the normed row is not rounded on its way.

    y = quantise(w x / sqrt(mean(x^2) + eps)),   x BF16, w BF16 or fp32; NVFP4 under a given global scale, or FP8

Outputs: codes and scales, exact, against the norm in fp64 rounded once to fp32; `y`, read from them, against the norm
itself. Not proven here: speed.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.fused
from kernels.rmsnorm_quantize import rmsnorm_quantize
from oracles.norm import rms_norm
from stages.shared import passes
from stages.shared.passes import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x, w and, for NVFP4, the global scale of their norm."""
    x = passes.matrix(case, rng)
    w = passes.norm_weight(case.k, case.get("weight", "bf16"), rng)
    return {"x": x, "w": w} | passes.scale_for(case, rms_norm(x, w).float())


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel."""
    settings = passes.form(case) | {"eps": case.get("eps", 1e-6), "ctas": case.get("ctas", None)}
    return passes.named(rmsnorm_quantize(x["x"], x["w"], x.get("g"), **settings, backend=backend, kernel=mutant))


def values(outputs: Tensors, case: Any) -> Tensors:
    """y over the global scale: the numbers that the outputs stand for."""
    return {"y": passes.decoded(outputs, torch.ones(()), case)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The composition of the norm and the format."""
    return passes.composed(normed(x, case), x.get("g"), case, kind)


def normed(x: Tensors, case: Any) -> torch.Tensor:
    """The norm as fp32 numbers."""
    return oracles.fused.rmsnorm_quantize(x["x"], x["w"], lambda y: y, eps=case.get("eps", 1e-6))


def plain(x: Tensors, case: Any) -> Tensors:
    """The same by torch."""
    return oracle(x, case, "simulated")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The output with one known mistake each."""
    if case.m == 0:
        return {}
    right = normed(x, case)
    found = passes.mistakes(right, x.get("g"), case)
    wide, w = x["x"].double(), x["w"].double()
    eps = case.get("eps", 1e-6)
    width = -(-case.k // 512) * 512
    changed = {
        # the mean over the threads' width instead of the row's: look at width()
        "rms_over_padded_width": wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) / width + eps) * w,
        # the weight is left out, or means 1 + w: look at over_rms()
        "weight_dropped": rms_norm(x["x"], eps=eps),
        "one_plus_weight": rms_norm(x["x"], (1.0 + w), eps=eps),
        # eps behind the root, or none
        "eps_outside": wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps) * w,
        # the norm is rounded to BF16 before it is quantised
        "rounded_between": rms_norm(x["x"], x["w"], eps=eps).bfloat16(),
    }
    found |= {name: passes.encoded(y.float(), x.get("g"), case) for name, y in changed.items()}
    return passes.with_values(found, torch.ones(()), case)
