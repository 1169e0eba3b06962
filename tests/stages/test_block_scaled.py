"""The stages of block-scaled linears: inputs that can tell mistakes apart, and mistakes that differ from the truth."""

from __future__ import annotations

import pytest
import torch

from gate.case import Case
from stages import linear_epilogue, linear_w4a4
from stages.shared import block_scaled

LINEARS = {
    "linear": {"m": 3, "n": 40, "k": 320},
    "swizzled": {"m": 2, "n": 130, "k": 288, "swizzled": True, "room": 8},
    "multi": {"m": 2, "n": [20, 36], "k": 288, "op": "multi"},
    "grouped": {"m": 2, "n": 20, "k": 192, "weights": 3, "op": "grouped"},
}
ENDS = {
    "nvfp4": {"m": 4, "n": 144, "k": 64, "ending": "quantise", "store": "nvfp4", "atoms": True},
    "fp8": {"m": 4, "n": 256, "k": 64, "ending": "quantise", "store": "fp8"},
    "swiglu": {"m": 4, "n": 48, "k": 64, "ending": "swiglu", "limit": 0.5},
    "rotate": {"m": 4, "n": 256, "k": 64, "ending": "rotate", "head": 128},
}


@pytest.mark.parametrize("name", LINEARS)
def test_every_mistake_of_a_linear_differs_from_the_truth(name: str) -> None:
    case = Case(name, LINEARS[name])
    x = linear_w4a4.inputs(case, torch.Generator().manual_seed(0))
    right = linear_w4a4.oracle(x, case, "simulated")["y"]
    variants = linear_w4a4.wrong(x, case)
    assert {"alpha_dropped", "g_dropped", "g_twice", "x_nibbles_swapped", "k_tail_dropped"} <= set(variants)
    for variant, outputs in variants.items():
        assert outputs["y"].shape == right.shape, variant
        assert float((outputs["y"] - right).norm() / right.norm()) > 1e-2, variant


def test_quantised_tokens_are_near_the_tokens_and_not_equal() -> None:
    case = Case("linear", LINEARS["linear"])
    x = linear_w4a4.inputs(case, torch.Generator().manual_seed(0))
    values, given = block_scaled.x_values(x), x["x"].double()
    assert values.shape == given.shape
    assert 0.02 < float((values - given).norm() / given.norm()) < 0.15


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(ValueError, match="op='split'; allowed: linear, multi, grouped"):
        linear_w4a4.op(Case("c", {"op": "split"}))


@pytest.mark.parametrize("name", ENDS)
def test_every_mistake_of_an_end_differs_from_the_truth(name: str) -> None:
    case = Case(name, ENDS[name])
    x = linear_epilogue.inputs(case, torch.Generator().manual_seed(0))
    right = linear_epilogue.oracle(x, case, "simulated")
    variants = linear_epilogue.wrong(x, case)
    assert "alpha_dropped" in variants and len(variants) >= 4
    # neighbouring blocks of FP8 may have one scale
    variants.pop("scale_of_next_block", None)
    for variant, outputs in variants.items():
        same = [torch.equal(outputs[o], right[o]) for o in outputs if o != "y" or "codes" not in outputs]
        assert not all(same), variant


def test_inputs_whose_codes_a_rounding_may_decide_are_not_drawn() -> None:
    case = Case("nvfp4", ENDS["nvfp4"])
    x = linear_epilogue.inputs(case, torch.Generator().manual_seed(0))
    assert linear_epilogue.settled(x, case)
    exact = Case("exact", ENDS["nvfp4"] | {"data": "exact"})
    assert not linear_epilogue.settled(linear_epilogue.inputs(exact, torch.Generator().manual_seed(0)), exact)


def test_exact_data_add_up_without_rounding() -> None:
    case = Case("exact", ENDS["nvfp4"] | {"data": "exact"})
    x = linear_epilogue.inputs(case, torch.Generator().manual_seed(0))
    y = linear_epilogue.outputs_of(x, case)
    assert torch.equal(y, y.float().double()) and torch.equal((y * 2**7).round(), y * 2**7)


def test_an_unknown_end_is_refused() -> None:
    case = Case("c", {"m": 1, "n": 16, "k": 64, "ending": "sum", "store": "nvfp4"})
    with pytest.raises(ValueError, match="ending='sum'; allowed: quantise"):
        linear_epilogue.ending({"to": torch.ones(())}, case)
