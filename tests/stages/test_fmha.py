"""The attention stages: their data is what it says, their mistakes are mistakes, and they agree with one another."""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import oracles.fmha
from stages.shared import attention

STAGES = ("fmha_qk", "fmha_identity", "fmha_softmax", "fmha_multitile")


class Case(SimpleNamespace):
    """The fields of a case, as the judge hands them over."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


def rng(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stage(name: str) -> Any:
    return importlib.import_module(f"stages.{name}")


def diff(x: torch.Tensor, y: torch.Tensor) -> float:
    finite = torch.isfinite(x) & torch.isfinite(y)
    if not torch.equal(x[~finite].double(), y[~finite].double()):
        return 1.0
    x, y = x[finite].double(), y[finite].double()
    return float(((x - y) ** 2).sum() / ((x * x).sum() + (y * y).sum()).clamp_min(1e-300))


@pytest.mark.parametrize("data", attention.DATA)
def test_inputs_follow_the_seed(data: str) -> None:
    case = Case(q=5, kv=140, heads=4, kv_heads=2, batch=2, d=64, dtype="bf16", data=data)
    first, again, other = (attention.inputs(case, rng(seed)) for seed in (1, 1, 2))
    assert {name: tuple(x.shape) for name, x in first.items()} == {
        "q": (2, 5, 4, 64),
        "k": (2, 140, 2, 64),
        "v": (2, 140, 2, 64),
    }
    assert all(x.dtype == torch.bfloat16 and bool(torch.isfinite(x).all()) for x in first.values())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["v"], other["v"])


@pytest.mark.parametrize(("d", "dtype"), [(64, "f16"), (128, "bf16")])
def test_large_logits_are_exact_and_of_both_signs(d: int, dtype: str) -> None:
    x = attention.inputs(Case(q=8, kv=300, d=d, dtype=dtype, data="large_logits"), rng())
    dots = oracles.fmha.logits(x["q"], x["k"], 1.0, causal=False)
    assert torch.equal(dots, dots.round()) and float(dots.abs().max()) < 2**24
    s = dots / math.sqrt(d)
    assert float(s.max()) > 5.8e4 and float(s.min()) < -5.8e4
    negative = attention.inputs(Case(q=8, kv=300, d=d, dtype=dtype, data="negative_logits"), rng())
    assert float(oracles.fmha.logits(negative["q"], negative["k"], d**-0.5, causal=False).max()) < -5.8e4


def test_rising_logits_rise_at_every_tile_of_every_row() -> None:
    x = attention.inputs(Case(q=16, kv=1024, d=64, data="rising"), rng())
    s = oracles.fmha.logits(x["q"], x["k"], 1 / 8, causal=False)
    maxima = s.view(1, 1, 16, 8, 128).amax(dim=-1)
    assert bool((maxima.diff(dim=-1) > 0).all())


def test_layouts_keep_the_values() -> None:
    packed = attention.inputs(Case(q=3, kv=5, heads=2, kv_heads=2, d=64), rng())
    for layout, strides in (("padded", (6 * 3 * 72, 3 * 72, 72, 1)), ("heads_first", (384, 64, 192, 1))):
        x = attention.inputs(Case(q=3, kv=5, heads=2, kv_heads=2, d=64, layout=layout), rng())
        assert all(torch.equal(x[name], packed[name]) for name in packed)
        assert x["q"].stride() == strides


def test_one_tensor_for_k_and_v() -> None:
    x = attention.inputs(Case(q=3, kv=5, d=64, same_kv=True), rng())
    assert set(x) == {"q", "k"}
    _, k, v = attention.qkv(x)
    assert k is v


@pytest.mark.parametrize("field", ["data", "layout", "dtype"])
def test_a_value_that_does_not_exist_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}='what'; allowed: "):
        attention.inputs(Case(q=3, kv=5, d=64, **{field: "what"}), rng())


def test_fmha_softmax_takes_one_tile() -> None:
    with pytest.raises(ValueError, match="kv=129; allowed: at most 128, one tile"):
        stage("fmha_softmax").inputs(Case(q=3, kv=129, d=64), rng())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv", [1, 128, 300])
def test_the_tiled_form_without_a_mistake_is_the_oracle(kv: int, causal: bool) -> None:
    case = Case(q=140, kv=kv, heads=2, d=64, causal=causal)
    x = attention.inputs(case, rng())
    q, k, v = attention.qkv(x)
    out, lse = oracles.fmha.attention(q, k, v, **attention.settings(case))
    tiled = attention.online(attention.logits(q, k, case), v)
    torch.testing.assert_close(tiled["out"].transpose(1, 2), out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tiled["lse"], lse, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", STAGES)
def test_plain_torch_is_near_the_oracle_and_promises_the_types(name: str) -> None:
    case = Case(q=40, kv=100, heads=4, kv_heads=2, d=64, causal=True)
    x = stage(name).inputs(case, rng())
    plain, ideal = stage(name).plain(x, case), stage(name).oracle(x, case, "ideal")
    assert set(plain) == set(ideal)
    types = {"s": torch.float32, "out": torch.float16, "lse": torch.float32}
    for output, value in plain.items():
        assert value.dtype == types[output] and value.shape == ideal[output].shape
        assert diff(value, ideal[output]) < 1e-5


BLIND = {
    "fmha_qk": {"kv_tile_0_reused"},
    "fmha_identity": {"kv_tile_0_reused", "last_kv_tile_only"},
    "fmha_softmax": set(),
    "fmha_multitile": {"kv_tile_0_reused", "no_rescale", "last_kv_tile_only", "row_max_of_tile_0_kept"},
}


@pytest.mark.parametrize("name", STAGES)
def test_one_full_tile_is_blind_to_mistakes_between_tiles_and_to_no_other(name: str) -> None:
    case = Case(q=130, kv=128, heads=4, kv_heads=2, d=64, causal=True)
    assert equal_to_the_oracle(name, case) == BLIND[name]


@pytest.mark.parametrize("name", ["fmha_qk", "fmha_identity", "fmha_multitile"])
def test_three_tiles_with_a_ragged_end_are_blind_to_nothing(name: str) -> None:
    assert equal_to_the_oracle(name, Case(q=130, kv=300, heads=4, kv_heads=2, d=64)) == set()


def equal_to_the_oracle(name: str, case: Case) -> set[str]:
    x = stage(name).inputs(case, rng())
    ideal = stage(name).oracle(x, case, "ideal")
    variants = stage(name).wrong(x, case)
    assert all(set(outputs) <= set(ideal) for outputs in variants.values())
    return {
        variant
        for variant, outputs in variants.items()
        if all(diff(value, ideal[output]) < 1e-5 for output, value in outputs.items())
    }


def test_empty_cases_have_nothing_to_get_wrong() -> None:
    for empty in ({"q": 0, "kv": 5}, {"q": 5, "kv": 0}, {"q": 5, "kv": 5, "batch": 0}):
        case = Case(d=64, **empty)
        x = stage("fmha_multitile").inputs(case, rng())
        assert stage("fmha_multitile").wrong(x, case) == {}
        ideal, plain = stage("fmha_multitile").oracle(x, case, "ideal"), stage("fmha_multitile").plain(x, case)
        assert all(torch.equal(plain[name].double(), ideal[name]) for name in ideal)
