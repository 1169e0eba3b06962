"""The attention oracle against a second, dumber form: one query, one head, one key at a time, in Python floats."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from oracles import fmha


def example(b: int = 2, s_q: int = 3, s_kv: int = 5, h: int = 4, h_kv: int = 2, d: int = 8) -> Any:
    rng = torch.Generator().manual_seed(3)
    shapes = ((b, s_q, h, d), (b, s_kv, h_kv, d), (b, s_kv, h_kv, d))
    return tuple((torch.randn(shape, generator=rng) + 0.5).to(torch.float16) for shape in shapes)


def dumb(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[list[float], list[float]]:
    """Outputs and LSEs in the order b, i, h."""
    (b, s_q, h, d), (_, s_kv, h_kv, _) = q.shape, k.shape
    q, k, v = q.tolist(), k.tolist(), v.tolist()
    outputs, lses = [], []
    for n in range(b):
        for i in range(s_q):
            for head in range(h):
                kv_head = head * h_kv // h
                weights = []
                for j in range(s_kv):
                    if causal and j > i + s_kv - s_q:
                        weights.append(0.0)
                        continue
                    dot = sum(x * y for x, y in zip(q[n][i][head], k[n][j][kv_head], strict=True))
                    weights.append(math.exp(scale * dot))
                total = sum(weights)
                lses.append(math.log(total) if total else -math.inf)
                for e in range(d):
                    weighted = sum(w * v[n][j][kv_head][e] for j, w in enumerate(weights))
                    outputs.append(weighted / total if total else 0.0)
    return outputs, lses


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("s_q", "s_kv"), [(3, 5), (5, 3), (1, 1), (4, 4)])
def test_attention_equals_the_dumb_form(s_q: int, s_kv: int, causal: bool) -> None:
    q, k, v = example(s_q=s_q, s_kv=s_kv)
    out, lse = fmha.attention(q, k, v, scale=0.3, causal=causal)
    outputs, lses = dumb(q, k, v, 0.3, causal)
    assert out.dtype == lse.dtype == torch.float64
    torch.testing.assert_close(out, torch.tensor(outputs, dtype=torch.float64).view(out.shape), rtol=1e-13, atol=1e-13)
    expected = torch.tensor(lses, dtype=torch.float64).view(2, s_q, 4).transpose(1, 2)
    torch.testing.assert_close(lse, expected, rtol=1e-13, atol=1e-13)


def test_rows_that_see_nothing() -> None:
    q, k, v = example(s_q=5, s_kv=3)
    out, lse = fmha.attention(q, k, v, scale=1.0, causal=True)
    assert torch.equal(out[:, :2], torch.zeros(2, 2, 4, 8, dtype=torch.float64))
    assert torch.equal(lse[..., :2], torch.full((2, 4, 2), -math.inf, dtype=torch.float64))
    assert bool(torch.isfinite(lse[..., 2:]).all())


def test_no_keys() -> None:
    q, k, v = example(s_kv=0)
    out, lse = fmha.attention(q, k, v, scale=1.0)
    assert torch.equal(out, torch.zeros(q.shape, dtype=torch.float64))
    assert torch.equal(lse, torch.full((2, 4, 3), -math.inf, dtype=torch.float64))


def test_no_queries() -> None:
    q, k, v = example(s_q=0)
    out, lse = fmha.attention(q, k, v, scale=1.0)
    assert (tuple(out.shape), tuple(lse.shape)) == ((2, 0, 4, 8), (2, 4, 0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logits_of_sixty_thousand(sign: float) -> None:
    q, k = torch.full((1, 1, 1, 8), 100.0), torch.full((1, 4, 1, 8), 75.0 * sign)
    v = torch.arange(4.0).view(1, 4, 1, 1).expand(1, 4, 1, 8)
    out, lse = fmha.attention(q, k, v, scale=1.0)
    assert torch.equal(out, torch.full((1, 1, 1, 8), 1.5, dtype=torch.float64))
    assert lse.item() == 60000.0 * sign + math.log(4.0)


def test_simulated_rounds_p_and_the_output_once_each() -> None:
    """p = (1, 1/3) is 1365/4096 in f16; (p v) / (1 + 1/3) is then rounded itself."""
    q = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2).half()
    k = torch.tensor([[0.0, 0.0], [-1.0, 0.0]]).view(1, 2, 1, 2).half()
    v = torch.tensor([[0.0, 0.0], [1.0, 2.0]]).view(1, 2, 1, 2).half()
    simulated, _ = fmha.attention(q, k, v, scale=math.log(3.0), kind="simulated")
    expected = torch.tensor([1365 / 4096 / (4 / 3), 2 * 1365 / 4096 / (4 / 3)]).double().half().double()
    assert torch.equal(simulated.flatten(), expected)
    ideal, _ = fmha.attention(q, k, v, scale=math.log(3.0), kind="ideal")
    torch.testing.assert_close(ideal.flatten(), torch.tensor([0.25, 0.5]).double(), rtol=1e-15, atol=0)


def test_logits_hide_by_the_last_key() -> None:
    q, k, _ = example(b=1, s_q=2, s_kv=3, h=1, h_kv=1)
    hidden = torch.isneginf(fmha.logits(q, k, 1.0, causal=True))[0, 0]
    assert hidden.tolist() == [[False, False, True], [False, False, False]]


def test_identity_is_two_products() -> None:
    q, k, v = example(h=2, h_kv=1)
    out = fmha.identity(q, k, v, scale=0.5)
    p = torch.einsum("bihd,bjd->bhij", q.double(), k[:, :, 0].double()) * 0.5
    torch.testing.assert_close(out, torch.einsum("bhij,bjd->bihd", p, v[:, :, 0].double()), rtol=1e-14, atol=1e-14)
    rounded = fmha.identity(q, k, v, scale=0.5, kind="simulated")
    want = torch.einsum("bhij,bjd->bihd", p.half().double(), v[:, :, 0].double()).half().double()
    assert torch.equal(rounded, want)


def test_identity_of_hidden_keys_is_zero() -> None:
    q, k, v = example(s_q=4, s_kv=2)
    out = fmha.identity(q, k, v, scale=1.0, causal=True)
    assert torch.equal(out[:, :2], torch.zeros(2, 2, 4, 8, dtype=torch.float64))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="oracles: kind='rough'; allowed: ideal, simulated"):
        fmha.attention(*example(), scale=1.0, kind="rough")  # type: ignore[arg-type]
