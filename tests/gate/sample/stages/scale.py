"""1.7 times the input comes out, with its row sums."""

from __future__ import annotations

from typing import Any

import torch
from kernels.scale import scale
from torch import Tensor


def inputs(case: Any, rng: torch.Generator) -> dict[str, Tensor]:
    """x: (m, n) bf16, biased."""
    return {"x": (torch.randn(case.m, case.n, generator=rng) + 0.3).to(torch.bfloat16)}


def run(x: dict[str, Tensor], case: Any, backend: Any, mutant: type | None = None) -> dict[str, Tensor]:
    """y and total."""
    print("sX = ((32,1),2):((1,0),32)")
    fault = case.get("fault", "none") if mutant is None else mutant.fault
    return scale(x["x"], fault, backend)


def oracle(x: dict[str, Tensor], case: Any, kind: str) -> dict[str, Tensor]:
    """The same in fp64."""
    y = 1.7 * x["x"].double()
    return {"y": y, "total": y.sum(-1)}


def plain(x: dict[str, Tensor], case: Any) -> dict[str, Tensor]:
    """The same in bf16, sums in f32."""
    y = 1.7 * x["x"]
    return {"y": y, "total": y.float().sum(-1)}


def wrong(x: dict[str, Tensor], case: Any) -> dict[str, dict[str, Tensor]]:
    """Two known mistakes."""
    y = 1.7 * x["x"].double()
    rows = torch.arange(y.shape[0]) % 32
    return {
        # every load reads tile 0: check the slice that is indexed by the tile
        "tile_0_reused": {"y": y[rows], "total": y[rows].sum(-1)},
        "scale_missing": {"y": y / 1.7},  # the factor is left out
    }
