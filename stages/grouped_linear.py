"""A block-diagonal quantised linear in one launch: y[:, g] = alpha_g x[:, g] w_g^T.

x (m, g, k) BF16, w (g, n, k) in NVFP4 with a global scale a group, y (m, g, n) BF16.
Not proven here: groups of different sizes, speed.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.linear import grouped_linear
from stages.shared import linears
from stages.shared.linears import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x and the groups' weights, as a checkpoint has them and packed together."""
    return linears.inputs(case, rng, grouped=True)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """One launch on the packed weights."""
    y = grouped_linear(
        x["x"],
        linears.packed_of(x, case, grouped=True),
        activation=case.get("activation", "f16"),
        backend=backend,
        kernel=mutant,
        **linears.settings(case),
    )
    return linears.both({"y": y})


def products(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """(m, g, n) in the wider of the dtypes."""
    return torch.stack([x[:, g].to(w.dtype) @ w.T for g, w in enumerate(weights)], dim=1)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """A product for each group, fp64."""
    activation = linears.quantiser(case, kind)
    given = activation(x["x"]) if activation else x["x"]
    return linears.both({"y": linears.finished(products(given, linears.values(x, case)), kind)})


def plain(x: Tensors, case: Any) -> Tensors:
    """A product of BF16 matrices for each group."""
    return linears.both({"y": products(x["x"], [w.bfloat16() for w in linears.values(x, case)])})


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The products with one known mistake each."""
    activation = linears.quantiser(case, "simulated")
    given = activation(x["x"]) if activation else x["x"]
    variants = {
        name: linears.both({"y": products(given, weights)})
        for name, weights in linears.weight_mistakes(x, case).items()
    }
    weights = linears.values(x, case)
    # every group reads the first one's activations: look at consume() in kernels/linear/sm90.py
    variants["x_of_first_group"] = linears.both({"y": products(given[:, :1].expand_as(given), weights)})
    # the outputs of the groups lie one after the other instead of token by token: look at place()
    right = products(given, weights)
    variants["groups_before_tokens"] = linears.both({"y": right.transpose(0, 1).reshape(right.shape)})
    return variants
