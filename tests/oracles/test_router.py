"""The router against Python floats, with ties, extreme logits, bias and hash table."""

from __future__ import annotations

import math

import pytest
import torch

from oracles.router import affinities, route

rng = torch.Generator().manual_seed(0)
X, GATE = torch.randn(6, 4, generator=rng), torch.randn(8, 4, generator=rng)
BIAS = torch.randn(8, generator=rng)


def dumb(
    x: list[float], chosen: list[int] | None, k: int, scale: float, bias: list[float]
) -> tuple[list[float], list[int]]:
    logits = [sum(a * b for a, b in zip(x, row, strict=True)) for row in GATE.double().tolist()]
    a = [math.sqrt(math.log1p(math.exp(z))) for z in logits]
    picked = chosen or sorted(range(8), key=lambda e: (-(a[e] + bias[e]), e))[:k]
    total = sum(a[e] for e in picked)
    return [scale * a[e] / total for e in picked], picked


@pytest.mark.parametrize("k", [1, 2, 6, 8])
@pytest.mark.parametrize("biased", [True, False])
def test_bias_selects_and_does_not_weigh(k: int, biased: bool) -> None:
    weights, experts = route(X, GATE, k=k, scale=2.5, bias=BIAS if biased else None)
    for t in range(6):
        want = dumb(X[t].double().tolist(), None, k, 2.5, BIAS.double().tolist() if biased else [0.0] * 8)
        assert experts[t].tolist() == want[1]
        torch.testing.assert_close(weights[t], torch.tensor(want[0], dtype=torch.float64), rtol=1e-13, atol=0)
    torch.testing.assert_close(weights.sum(-1), torch.full((6,), 2.5).double(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_hash_layers_take_the_row_of_the_token(index: torch.dtype) -> None:
    table = torch.stack([torch.randperm(8, generator=rng)[:3] for _ in range(10)]).to(index)
    ids = torch.tensor([9, 0, 3, 3, 7, 1])
    weights, experts = route(X, GATE, k=3, scale=1.5, table=table, ids=ids)
    assert experts.dtype == torch.int64 and torch.equal(experts, table[ids].long())
    for t in range(6):
        want, _ = dumb(X[t].double().tolist(), experts[t].tolist(), 3, 1.5, [0.0] * 8)
        torch.testing.assert_close(weights[t], torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)


def test_ties_go_to_the_lower_expert() -> None:
    weights, experts = route(torch.zeros(1, 4), GATE, k=3, scale=1.5)
    assert experts.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((1, 3), 0.5).double(), rtol=1e-15, atol=0)
    _, experts = route(torch.zeros(1, 4), GATE, k=2, scale=1.5, bias=torch.tensor([0.0, 1, 0, 1, 1, 0, 0, 0]))
    assert experts.tolist() == [[1, 3]]
    _, experts = route(torch.zeros(2, 4), torch.ones(384, 4), k=6, scale=1.5, bias=torch.arange(384) // 100 % 3)
    assert experts.tolist() == [[200, 201, 202, 203, 204, 205]] * 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extreme_logits(dtype: torch.dtype) -> None:
    z = torch.tensor([[5000.0], [25.0], [0.0], [-25.0], [-5000.0]], dtype=dtype)
    a = affinities(torch.ones(1, 1, dtype=dtype), z, dtype=dtype)[0]
    want = [math.sqrt(5000), math.sqrt(25 + math.exp(-25)), math.sqrt(math.log(2)), math.exp(-12.5), 0.0]
    torch.testing.assert_close(a, torch.tensor(want, dtype=dtype), rtol=1e-6, atol=0)
    weights, _ = route(torch.ones(1, 1), torch.full((4, 1), -5000.0), k=2, scale=1.5, dtype=dtype)
    assert weights.tolist() == [[0.0, 0.0]]


def test_batches_no_tokens_and_errors() -> None:
    weights, experts = route(X.view(2, 3, 4), GATE, k=2, scale=1.0, bias=BIAS)
    assert torch.equal(experts.flatten(0, 1), route(X, GATE, k=2, scale=1.0, bias=BIAS)[1]) and weights.shape == (
        2,
        3,
        2,
    )
    assert route(X[:0], GATE, k=2, scale=1.0)[0].shape == (0, 2)
    table = torch.zeros(10, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"oracles\.router: table and ids=one of them; allowed: both or neither"):
        route(X, GATE, k=2, scale=1.0, table=table)
    with pytest.raises(ValueError, match=r"oracles\.router: bias=given; allowed: None with a table"):
        route(X, GATE, k=2, scale=1.0, table=table, ids=torch.zeros(6, dtype=torch.long), bias=BIAS)
    with pytest.raises(ValueError, match=r"oracles\.router: table\.shape=\(10, 2\); allowed: \[V, 3\]"):
        route(X, GATE, k=3, scale=1.0, table=table, ids=torch.zeros(6, dtype=torch.long))
