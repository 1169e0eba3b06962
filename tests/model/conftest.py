"""The tiny model with random weights, shared by all tests of the model."""

from __future__ import annotations

import pytest
import torch

from model.checkpoint import random_tensors, weights_from
from model.config import Config
from model.forward import Model

LENGTH = 420
"""More than 4 x index_topk tokens, so that the indexer leaves entries out; crosses 128 three times."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two threads are far slower than one on products of this size."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def config() -> Config:
    """Five layers of all kinds and a draft block."""
    return Config.load("tiny")


@pytest.fixture(scope="session")
def tensors(config: Config) -> dict[str, torch.Tensor]:
    """Random f32 tensors by published name."""
    return random_tensors(config)


@pytest.fixture(scope="session")
def model(config: Config, tensors: dict[str, torch.Tensor]) -> Model:
    """The model on oracles, f32."""
    return Model(config, weights_from(config, tensors))


@pytest.fixture(scope="session")
def ids(config: Config) -> torch.Tensor:
    """A prompt on which no choice of experts or entries hangs on the last bits."""
    return torch.randint(0, config.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(7))


@pytest.fixture(scope="session")
def whole(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """Logits [420, V] of the whole prompt in one step."""
    cache = model.new_cache(1, LENGTH)
    result: torch.Tensor = model.prefill(cache, [cache.open()], [ids], logits="all")[0]
    return result
