"""The stages of quantised linears: inputs that can tell mistakes apart, and mistakes that differ from the truth."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gate.case import Case
from kernels.linear import unpack
from stages import grouped_linear, multi_linear, nvfp4_linear
from stages.shared import linears

STAGES = {
    "nvfp4_linear": (nvfp4_linear, {"m": 2, "n": 40, "k": 272, "rows": 16}),
    "swizzled": (nvfp4_linear, {"m": 1, "n": 130, "k": 272, "rows": 16, "swizzled": True}),
    "mxfp4": (nvfp4_linear, {"m": 1, "n": 20, "k": 288, "rows": 8, "format": "mxfp4"}),
    "fp8": (nvfp4_linear, {"m": 1, "n": 20, "k": 272, "rows": 16, "format": "fp8"}),
    "e4m3": (nvfp4_linear, {"m": 3, "n": 70, "k": 272, "rows": 16, "activation": "e4m3"}),
    "multi_linear": (multi_linear, {"m": 2, "n": [20, 36], "k": 272, "rows": 16}),
    "grouped_linear": (grouped_linear, {"m": 2, "n": 20, "weights": 3, "k": 272, "rows": 16}),
}


def made(name: str) -> tuple[Any, Case, dict[str, torch.Tensor]]:
    """A stage, its case and the inputs."""
    stage, fields = STAGES[name]
    case = Case(name, fields)
    return stage, case, stage.inputs(case, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", STAGES)
def test_the_packed_weight_holds_the_checkpoints_values(name: str) -> None:
    stage, case, x = made(name)
    packed = linears.packed_of(x, case, grouped=stage is grouped_linear)
    for index, weight in enumerate(unpack(packed)):
        assert torch.equal(weight.codes, x[f"codes{index}"])
        assert float(weight.alpha) == float(x[f"alpha{index}"])


@pytest.mark.parametrize("name", STAGES)
def test_every_mistake_differs_from_the_truth(name: str) -> None:
    stage, case, x = made(name)
    right = stage.oracle(x, case, "simulated")["y"]
    variants = stage.wrong(x, case)
    assert {"alpha_dropped", "alpha_twice", "k_tail_dropped"} <= set(variants)
    for variant, outputs in variants.items():
        assert outputs["y"].shape == right.shape, variant
        assert float((outputs["y"] - right).norm() / right.norm()) > 1e-2, variant


def test_the_kinds_differ_by_what_is_rounded() -> None:
    stage, case, x = made("e4m3")
    ideal, simulated = (stage.oracle(x, case, kind)["y"] for kind in ("ideal", "simulated"))
    assert 1e-3 < float((ideal - simulated).norm() / ideal.norm()) < 1e-1
    stage, case, x = made("nvfp4_linear")
    ideal, simulated = (stage.oracle(x, case, kind)["y"] for kind in ("ideal", "simulated"))
    assert torch.equal(ideal.bfloat16().double(), simulated)


def test_unknown_data_is_refused() -> None:
    with pytest.raises(ValueError, match="data='flat'; allowed: biased, outliers, small"):
        linears.activations(Case("c", {"data": "flat"}), (1, 16), torch.Generator())
