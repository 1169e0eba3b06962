"""mHC passes: refusals, the fused form against its parts, and settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.mhc import mhc_post, mhc_post_pre_rmsnorm_quantize, mhc_pre_rmsnorm_quantize
from kernels.mhc.config import ManyConfig, MixConfig, mix_config
from oracles import mhc
from tests.kernels.passes import backend_for, refused, unaligned, values

D = 48
G = torch.tensor(0.002)


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


def post_inputs(tokens: int) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    m = mhc.sinkhorn(torch.randn(tokens, 4, 4, generator=rng).double()).float()
    c = 2 * torch.sigmoid(torch.randn(tokens, 4, generator=rng))
    return {"y": values(tokens, D, seed=7), "streams": values(tokens, 4, D, seed=8), "c": c, "m": m}


def pre_inputs() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(2)
    return {
        "fn": torch.randn(24, 4 * D, generator=rng) / 14,
        "mix": 1 + torch.rand(3, generator=rng),
        "base": torch.randn(24, generator=rng) / 2,
        "weight": values(D, seed=9),
        "global_scale": G,
    }


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"streams": values(2, 3, D)}, ("streams.shape=(2, 3, 48)", "(tokens, 4, d)")),
        ({"streams": values(2, 4, D).float()}, ("streams.dtype=torch.float32",)),
        ({"streams": values(2, 4, 2 * D)[..., ::2]}, ("streams has strides", "contiguous")),
        ({"streams": unaligned(values(2, 4, D))}, ("streams.data_ptr() is 2 past",)),
        ({"fn": torch.zeros(24, D)}, ("fn.shape=(24, 48)", "(24, 192)")),
        ({"mix": torch.zeros(4)}, ("mix.shape=(4,)", "(3,)")),
        ({"base": torch.zeros(24).double()}, ("base.dtype=torch.float64",)),
        ({"weight": values(16)}, ("weight.shape=(16,)",)),
        ({"global_scale": None}, ("global_scale is a NoneType",)),
        ({"iterations": 0}, ("iterations=0", "1 to 1000")),
        ({"iterations": 2.0}, ("iterations=2.0",)),
        ({"mix_eps": 0}, ("mix_eps=0",)),
        ({"norm_eps": float("inf")}, ("norm_eps=inf",)),
        ({"format": "fp8", "global_scale": None}, ("k=48", "multiples of 128")),
    ],
)
def test_bad_input_of_the_pre_mix(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = {"streams": values(2, 4, D)} | pre_inputs() | changed
    with backend.count() as counters:
        refused(lambda: mhc_pre_rmsnorm_quantize(**given, backend=backend), "mhc_pre_rmsnorm_quantize: ", *parts)
    assert counters.launches == 0


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"y": values(3, D)}, ("y.shape=(3, 48)", "(2, 48)")),
        ({"c": torch.zeros(2, 3)}, ("c.shape=(2, 3)", "(2, 4)")),
        ({"m": torch.zeros(2, 4, 4).double()}, ("m.dtype=torch.float64",)),
        ({"m": torch.zeros(2, 4, 4).mT}, ("m has strides", "contiguous")),
        ({"out": torch.zeros(2, 4, D)}, ("out.dtype=torch.float32",)),
        ({"streams": values(2, 4, 40), "y": values(2, 40)}, ("d=40", "multiples of 16")),
    ],
)
def test_bad_input_of_the_post_mix(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = post_inputs(2) | changed
    with backend.count() as counters:
        refused(lambda: mhc_post(**given, backend=backend), "mhc_post: ", *parts)
    assert counters.launches == 0


@pytest.mark.parametrize("tokens", [2, 70])
def test_the_fused_form_is_its_parts_bit_for_bit(backend: Any, tokens: int) -> None:
    """Two tokens deal the rows to several warps, seventy do not."""
    post, pre = post_inputs(tokens), pre_inputs()
    streams = mhc_post(**post, backend=backend)
    apart = mhc_pre_rmsnorm_quantize(streams, **pre, backend=backend)
    with backend.count() as counters:
        fused = mhc_post_pre_rmsnorm_quantize(**post, **pre, backend=backend)
    assert counters.launches == 2
    assert fused.streams is not None and torch.equal(fused.streams, streams) and apart.streams is None
    for name in ("c", "m"):
        assert torch.equal(getattr(fused, name), getattr(apart, name))
    assert torch.equal(fused.x.codes, apart.x.codes) and torch.equal(fused.x.scales, apart.x.scales)


def test_iterations_and_eps_are_those_given(backend: Any) -> None:
    streams, pre = values(2, 4, D), pre_inputs()
    found = mhc_pre_rmsnorm_quantize(streams, **pre, iterations=3, mix_eps=0.1, norm_eps=0.5, backend=backend)
    _, c, m = mhc.pre(streams, pre["fn"], pre["mix"], pre["base"], iterations=3, eps=0.1, norm_eps=0.5)
    torch.testing.assert_close(found.c.double(), c, rtol=1e-6, atol=0)
    torch.testing.assert_close(found.m.double(), m, rtol=2e-6, atol=0)


def test_no_tokens_give_empty_outputs_without_a_launch(backend: Any) -> None:
    given = post_inputs(0) | pre_inputs()
    with backend.count() as counters:
        found = mhc_post_pre_rmsnorm_quantize(**given, backend=backend)
    assert counters.launches == 0
    assert found.c.shape == (0, 4) and found.m.shape == (0, 4, 4) and found.x.codes.shape == (0, D // 2)


def test_the_number_of_tokens_chooses_the_first_pass() -> None:
    """Few deal the rows of fn to warps, many have tensor cores."""
    few = mix_config(4096, 32, False, True)
    assert isinstance(few, MixConfig) and few.groups == 8 and few.places == 4
    assert mix_config(4096, 33, False, True) == ManyConfig(4096, False)
    assert mix_config(4096, 33, True, True) == ManyConfig(4096, True)
    assert mix_config(4096, 33, True, False) == MixConfig(4096, True, False)
    assert (ManyConfig(528, False).slices, ManyConfig(528, False).warps, ManyConfig(528, True).warps) == (3, 12, 8)
    assert any("post=False, mix=False" in p for p in MixConfig(64, False, False).problems())
    assert any("d=40" in p for p in ManyConfig(40, False).problems())
