"""rope: refusals, what it leaves alone, and that its inverse undoes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.rope import config, rope
from kernels.rope.config import RopeConfig
from oracles.rope import angles, frequencies, rotate
from tests.kernels.passes import backend_for, refused, unaligned, values


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


def turns(tokens: int, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = angles(torch.arange(tokens) + 1000, frequencies(width))
    return cos.float(), sin.float()


COS, SIN = turns(3)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"x": values(3, 2, 2, 64)}, ("x.shape=(3, 2, 2, 64)", "(tokens, heads, c) or (tokens, c)")),
        ({"x": values(3, 2, 128).float()}, ("x.dtype=torch.float32",)),
        ({"x": values(3, 2, 32)}, ("c=32", "at least r=64")),
        ({"x": values(3, 2, 136)[:, :, 4:132]}, ("x.data_ptr() is 8 past",)),
        ({"x": values(3, 1, 128).expand(3, 2, 128)}, ("x.stride(1)=0", "no overlap")),
        ({"x": values(4, 64).as_strided((3, 2, 64), (64, 64, 1))}, ("x.stride(", "no overlap")),
        ({"x": unaligned(values(3, 2, 128))}, ("x.data_ptr() is 2 past",)),
        ({"cos": COS[:2]}, ("cos.shape=(2, 32)", "3 tokens")),
        ({"sin": SIN[:, :16]}, ("sin.shape=(3, 16)",)),
        ({"cos": COS.double()}, ("cos.dtype=torch.float64",)),
        ({"cos": COS[:, :20], "sin": SIN[:, :20]}, ("cos has strides",)),
        ({"cos": COS[:, :20].contiguous(), "sin": SIN[:, :20].contiguous()}, ("= 40", "16, 32, 64, 128")),
        ({"inverse": 1}, ("inverse=1", "True, False")),
    ],
)
def test_bad_input_is_named_and_nothing_is_changed(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]):
    given = {"x": values(3, 2, 128), "cos": COS, "sin": SIN} | changed
    before = given["x"].clone()
    with backend.count() as counters:
        refused(lambda: rope(**given, backend=backend), "rope: ", *parts)
    assert counters.launches == 0 and torch.equal(given["x"], before)


@pytest.mark.parametrize("width", [16, 64])
def test_the_last_values_turn_in_place_and_back(backend: Any, width: int) -> None:
    x = values(5, 3, 96)
    cos, sin = turns(5, width)
    y = x.clone()
    assert rope(y, cos, sin, backend=backend) is y
    assert torch.equal(y[..., :-width], x[..., :-width])
    assert torch.equal(y, rotate(x, cos[:, None], sin[:, None]).bfloat16())
    rope(y, cos, sin, inverse=True, backend=backend)
    torch.testing.assert_close(y, x, rtol=2**-6, atol=2**-6)
    assert not torch.equal(rotate(x, cos[:, None], sin[:, None]).bfloat16(), x)


@pytest.mark.parametrize("heads", [8, 6, 3])
def test_several_heads_of_a_thread_have_the_same_bits(
    backend: Any, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, angles = values(5, heads, 128), torch.rand(2, 5, 32, generator=torch.Generator().manual_seed(4))
    want = rope(x.clone(), *angles, backend=backend)
    monkeypatch.setattr(config, "MANY_HEADS", 0)
    assert config.rope_config(heads, 5, 64, False).each == {8: 4, 6: 2, 3: 1}[heads]
    assert torch.equal(rope(x.clone(), *angles, backend=backend), want)


def test_heads_of_a_thread_divide_the_heads() -> None:
    assert any("each=4; allowed: 1, 2, 4, a divisor of heads=6" in p for p in RopeConfig(6, each=4).problems())
