"""A matrix becomes NVFP4, bit for bit as fp32 arithmetic has it, and the host reads nothing.

    s = E4M3(amax / (6 g)),   code = E2M1(x / (s g)),   g given on the device, or amax(x) / (6 x 448) found there

Outputs: codes, scales (row by row or in the 128 x 4 swizzle) and the global scale, exact; `y`, read from them, against
x itself. The oracle is the format's definition: its two kinds differ in `y` alone.
Not proven here: speed.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.quantize_nvfp4 import quantize_nvfp4
from oracles.formats import nvfp4
from stages.shared import passes
from stages.shared.passes import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x, and the global scale unless the kernel is to find it."""
    x = passes.matrix(case, rng)
    return {"x": x} if case.get("g", None) == "device" else {"x": x, "g": passes.given_scale(case, x)}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel; its result names the global scale in use."""
    result = quantize_nvfp4(
        x["x"],
        x.get("g"),
        swizzled=case.get("swizzled", False),
        ctas=case.get("ctas", None),
        backend=backend,
        kernel=mutant,
    )
    assert result.global_scale is not None
    return passes.named(result) | {"global_scale": result.global_scale}


def values(outputs: Tensors, case: Any) -> Tensors:
    """y: the numbers that the outputs stand for."""
    return {"y": passes.decoded(outputs, outputs["global_scale"], case)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The format's definition."""
    g = scale(x)
    found = passes.encoded(x["x"], g, case) | {"global_scale": g}
    y = passes.decoded(found, g, case)
    return found | {"y": passes.ideal(x["x"], y, case) if kind == "ideal" else y}


def scale(x: Tensors) -> torch.Tensor:
    """The global scale in use."""
    return x["g"] if "g" in x else nvfp4.global_scale(x["x"])


def plain(x: Tensors, case: Any) -> Tensors:
    """The same by torch: a quantiser has no other arithmetic."""
    return oracle(x, case, "simulated")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The output with one known mistake each."""
    g = scale(x)
    return passes.with_values(passes.mistakes(x["x"], g, case), g, case)
