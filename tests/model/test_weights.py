"""Tensors of the published models by count and bytes; experts picked from quantised stacks."""

from __future__ import annotations

import math

import pytest
import torch

from model.config import Config
from model.weights import Quantised, dense, specs
from oracles.formats import fp8, mxfp4, nvfp4


@pytest.mark.parametrize(("name", "billions"), [("flash", 284.33), ("pro", 1573.0)])
def test_parameters_of_the_published_models(name: str, billions: float):
    """Without the draft block; the table of the hash layers is no parameter."""
    config = Config.load(name)
    count = sum(math.prod(s.shape) for s in specs(config, mtp=False).values() if s.role != "table")
    assert abs(count / 1e9 / billions - 1.0) < 1e-4


def test_stacks_give_single_experts():
    x = torch.randn(3, 128, 256, generator=torch.Generator().manual_seed(0))
    g = nvfp4.global_scale(x)
    stacks = (
        Quantised("fp8", *fp8.quantize_128x128(x)),
        Quantised("mxfp4", *mxfp4.quantize(x)),
        Quantised("nvfp4", *nvfp4.quantize(x, g), global_scale=g.expand(3)),
    )
    for stack, limit in zip(stacks, (0.04, 0.13, 0.11), strict=True):
        assert stack.shape == (3, 128, 256)
        whole = dense(stack)
        assert (whole - x).norm() / x.norm() < limit
        picked = stack[torch.tensor([[2, 0]])]
        assert picked.shape == (1, 2, 128, 256)
        assert torch.equal(picked.dense(torch.float32)[0], whole[[2, 0]])
        assert torch.equal(dense(stack[1], torch.bfloat16), whole[1].bfloat16())
    with pytest.raises(ValueError, match="without a global scale"):
        Quantised("nvfp4", *nvfp4.quantize(x, g)).dense(torch.float32)
