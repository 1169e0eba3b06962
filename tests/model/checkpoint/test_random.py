"""Random weights: nothing constant, nothing that bf16 would round, the same for the same seed."""

from __future__ import annotations

import torch

from model.checkpoint import random_tensors
from model.config import Config
from model.weights import specs


def test_every_tensor_is_random_and_repeatable(config: Config, tensors: dict[str, torch.Tensor]):
    again, other = random_tensors(config), random_tensors(config, seed=1)
    for name, spec in specs(config).items():
        value = tensors[name]
        assert tuple(value.shape) == spec.shape, name
        assert torch.equal(value, again[name]) and not torch.equal(value, other[name]), name
        assert value.unique().numel() > min(2, value.numel() - 1), name
        if spec.role in ("linear", "expert", "matrix", "norm"):
            assert torch.equal(value, value.bfloat16().float()), name


def test_scales_of_the_recipe(tensors: dict[str, torch.Tensor]):
    assert abs(tensors["layers.0.attn.wq_b.weight"].std() * 128**0.5 - 1.0) < 0.02
    norm = tensors["layers.2.attn.kv_norm.weight"]
    assert abs(norm.mean() - 1.0) < 0.05 and abs(norm.std() - 0.2) < 0.05
    assert abs(tensors["layers.2.attn.compressor.ape"].std() - 0.5) < 0.02
    table = tensors["layers.0.ffn.gate.tid2eid"]
    assert (
        table.dtype == torch.int64 and (table[:, 0] != table[:, 1]).all() and table.unique().tolist() == list(range(8))
    )
