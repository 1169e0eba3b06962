"""A matrix becomes E4M3 with one scale for each block of a row, bit for bit as fp32 arithmetic has it.

    s = the least power of two with 448 s >= amax, or amax / 448 in fp32;   code = E4M3(x / s)

Outputs: codes and scales, exact; `y`, read from them, against x itself. The oracle is the format's definition.
Not proven here: speed, blocks of 128 x 128 (weights are quantised once, by torch).
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.quantize_fp8 import quantize_fp8
from stages.shared import passes
from stages.shared.passes import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x."""
    return {"x": passes.matrix(case, rng)}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel."""
    form = passes.form(case)
    settings = {"block": form["block"], "scale": form["scale"], "ctas": case.get("ctas", None)}
    return passes.named(quantize_fp8(x["x"], **settings, backend=backend, kernel=mutant))


def values(outputs: Tensors, case: Any) -> Tensors:
    """y: the numbers that the outputs stand for."""
    return {"y": passes.decoded(outputs, None, case)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The format's definition."""
    found = passes.encoded(x["x"], None, case)
    y = passes.decoded(found, None, case)
    return found | {"y": passes.ideal(x["x"], y, case) if kind == "ideal" else y}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same by torch: a quantiser has no other arithmetic."""
    return oracle(x, case, "simulated")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The output with one known mistake each."""
    return passes.with_values(passes.mistakes(x["x"], None, case), None, case)
