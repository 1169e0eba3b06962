"""Random weights for tests and demonstrations: every tensor is random, so that none can be forgotten unseen."""

from __future__ import annotations

import math

import torch

from model.config import Config
from model.weights import Spec, specs


def random_tensors(config: Config, seed: int = 0) -> dict[str, torch.Tensor]:
    """f32 tensors by published name (`tid2eid` int64), the same for the same seed; every value is exact in bf16 where a
    checkpoint stores bf16.

    Matrices N(0, 1/sqrt(in)), norms 1 + 0.2 N, all other vectors, `ape` included, 0.5 N; `tid2eid` holds distinct
    experts."""
    rng = torch.Generator().manual_seed(seed)
    return {name: _random(name, spec, config, rng) for name, spec in specs(config).items()}


def _random(name: str, spec: Spec, config: Config, rng: torch.Generator) -> torch.Tensor:
    if spec.role == "table":
        order = torch.rand(spec.shape[0], config.n_routed_experts, generator=rng).argsort(dim=1)
        return order[:, : spec.shape[1]].contiguous()
    value = torch.randn(spec.shape, generator=rng)
    if spec.role == "norm":
        value = 1.0 + 0.2 * value
    elif len(spec.shape) == 1 or name.endswith(".ape"):
        value = 0.5 * value
    else:
        value = value / math.sqrt(spec.shape[1])
    return value if spec.role == "wide" else value.bfloat16().float()
