"""Several quantised linears of one input in one launch: y_i = alpha_i x w_i^T.

x (m, k) BF16, w_i (n_i, k) in NVFP4 with a global scale each, y_i (m, n_i) BF16, shown as y0, y1, ...
Not proven here: weights of different formats or k, speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import oracles.linear
from kernels.linear import multi_linear
from stages.shared import linears
from stages.shared.linears import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x and the weights, as a checkpoint has them and packed together."""
    return linears.inputs(case, rng)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """One launch on the packed weights."""
    return joined(launched(x, case, backend, mutant))


def launched(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> list[torch.Tensor]:
    """An output for each weight."""
    return multi_linear(
        x["x"],
        linears.packed_of(x, case),
        activation=case.get("activation", "f16"),
        backend=backend,
        kernel=mutant,
        **linears.settings(case),
    )


def bench(x: Tensors, case: Any, backend: Any) -> Callable[[], Tensors]:
    """The launch alone: its outputs are not put side by side."""
    return lambda: {f"y{index}": y for index, y in enumerate(launched(x, case, backend))}


def joined(outputs: list[torch.Tensor]) -> Tensors:
    """All outputs side by side, so that one limit holds for every number of weights."""
    return linears.both({"y": torch.cat(outputs, dim=1)})


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """A product for each weight, fp64."""
    weights = linears.values(x, case)
    outputs = oracles.linear.multi_linear(x["x"], weights, activation=linears.quantiser(case, kind))
    return joined([linears.finished(y, kind) for y in outputs])


def plain(x: Tensors, case: Any) -> Tensors:
    """A product of BF16 matrices for each weight."""
    return joined([x["x"] @ w.bfloat16().T for w in linears.values(x, case)])


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The products with one known mistake each."""
    activation = linears.quantiser(case, "simulated")

    def products(weights: list[torch.Tensor]) -> list[torch.Tensor]:
        return oracles.linear.multi_linear(x["x"], weights, activation=activation)

    variants = {name: joined(products(weights)) for name, weights in linears.weight_mistakes(x, case).items()}
    right = products(linears.values(x, case))
    # every weight is scaled by the first one's alpha: look at part_of()
    first = x["alpha0"].double()
    variants["alpha_of_first"] = joined([y * (first / x[f"alpha{i}"].double()) for i, y in enumerate(right)])
    return variants
