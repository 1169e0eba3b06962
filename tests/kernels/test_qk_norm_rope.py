"""qk_norm_rope: refusals, and heads of every width."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.qk_norm_rope import qk_norm_rope
from oracles.fused import qk_norm_rope as oracle
from oracles.rope import angles, frequencies
from tests.kernels.passes import backend_for, refused, values


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


def turns(tokens: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = angles(torch.arange(tokens) + 70, frequencies(width))
    return cos.float(), sin.float()


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"q": values(3, 64)}, ("q.shape=(3, 64)", "(tokens, heads, c)")),
        ({"q": values(3, 2, 96), "kv": values(3, 96), "weight": values(96)}, ("c=96", "64, 128, 256, 512")),
        ({"q": values(3, 1, 64).expand(3, 2, 64)}, ("q.stride(1)=0", "no overlap")),
        ({"kv": values(2, 64)}, ("kv.shape=(2, 64)", "(3, 64)")),
        ({"kv": values(3, 64).half()}, ("kv.dtype=torch.float16",)),
        ({"weight": values(32)}, ("weight.shape=(32,)",)),
        ({"eps": -1.0}, ("eps=-1.0",)),
        ({"cos": turns(3, 16)[0][:2]}, ("cos.shape=(2, 8)",)),
        ({"cos": torch.zeros(3, 4), "sin": torch.zeros(3, 4)}, ("= 8", "multiples of 16")),
    ],
)
def test_bad_input_is_named_and_nothing_is_changed(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]):
    cos, sin = turns(3, 16)
    given = {"q": values(3, 2, 64), "kv": values(3, 64), "weight": values(64), "cos": cos, "sin": sin} | changed
    before = given["q"].clone(), given["kv"].clone()
    with backend.count() as counters:
        refused(lambda: qk_norm_rope(**given, backend=backend), "qk_norm_rope: ", *parts)
    assert counters.launches == 0
    assert torch.equal(given["q"], before[0]) and torch.equal(given["kv"], before[1])


@pytest.mark.parametrize(("c", "width"), [(64, 64), (128, 32), (256, 48)])
def test_heads_of_every_width(backend: Any, c: int, width: int) -> None:
    q, kv, weight = values(7, 3, c), values(7, c, seed=4), values(c, seed=5)
    cos, sin = turns(7, width)
    want = oracle(q, kv, weight, cos, sin)
    found = qk_norm_rope(q, kv, weight, cos, sin, backend=backend)
    assert found[0] is q and found[1] is kv
    assert torch.equal(q, want[0].bfloat16()) and torch.equal(kv, want[1].bfloat16())
