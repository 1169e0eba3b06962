"""A linear whose weight is quantised, of any number of tokens: y = alpha x w^T.

x (m, k) BF16, w (n, k) in NVFP4 (also MXFP4, or FP8 in blocks of 128 x 128), y (m, n) BF16. With activation "f16" the
products are those of the given BF16 values; with "e4m3" each token is first rounded to E4M3 under one power of two.
`y` is judged against the same rounding, `y_ideal` (the same tensor) against exact arithmetic on unrounded activations.
Not proven here: epilogues, speed.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.linear
from kernels.linear import linear
from stages.shared import linears
from stages.shared.linears import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x and the weight, as a checkpoint has it and packed."""
    return linears.inputs(case, rng)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel on the packed weight."""
    y = linear(
        x["x"],
        linears.packed_of(x, case),
        activation=case.get("activation", "f16"),
        backend=backend,
        kernel=mutant,
        **linears.settings(case),
    )
    return linears.both({"y": y})


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """One product in fp64."""
    y = oracles.linear.linear(x["x"], linears.values(x, case)[0], activation=linears.quantiser(case, kind))
    return linears.both({"y": linears.finished(y, kind)})


def plain(x: Tensors, case: Any) -> Tensors:
    """One product of BF16 matrices."""
    return linears.both({"y": x["x"] @ linears.values(x, case)[0].bfloat16().T})


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The product with one known mistake each."""
    if case.m == 0:
        return {}
    activation = linears.quantiser(case, "simulated")
    return {
        name: linears.both({"y": oracles.linear.linear(x["x"], weights[0], activation=activation)})
        for name, weights in linears.weight_mistakes(x, case).items()
    }
