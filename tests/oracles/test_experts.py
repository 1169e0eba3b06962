"""Experts against loops over tokens and experts; limits; experts that nobody chose."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import experts
from oracles.formats import fp8

E, WIDTH, D = 5, 3, 4
rng = torch.Generator().manual_seed(0)
W1, W3 = (3 * torch.randn(E, WIDTH, D, generator=rng, dtype=torch.float64) for _ in range(2))
W2 = torch.randn(E, D, WIDTH, generator=rng, dtype=torch.float64)


def dumb_expert(x: list[float], e: int, limit: float | None, weight: float = 1.0) -> list[float]:
    gate, up = ([sum(a * b for a, b in zip(x, r, strict=True)) for r in w[e].tolist()] for w in (W1, W3))
    if limit is not None:
        gate, up = [min(g, limit) for g in gate], [max(-limit, min(u, limit)) for u in up]
    h = [g / (1 + math.exp(-g)) * u * weight for g, u in zip(gate, up, strict=True)]
    return [sum(a * b for a, b in zip(h, r, strict=True)) for r in W2[e].tolist()]


def example(tokens: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(tokens)
    chosen = torch.stack([torch.randperm(E, generator=g)[:k] for _ in range(tokens)])
    return (
        3 * torch.randn(tokens, D, generator=g, dtype=torch.float64),
        torch.rand(tokens, k, generator=g).double(),
        chosen,
    )


@pytest.mark.parametrize("limit", [10.0, 0.5, None])
@pytest.mark.parametrize(("tokens", "k"), [(1, 2), (2, 2), (3, 2), (20, 3)])
def test_routed_equals_loops_whether_few_tokens_or_many(tokens: int, k: int, limit: float | None) -> None:
    x, weights, chosen = example(tokens, k)
    got = experts.routed(x, weights, chosen, W1, W3, W2, limit=limit)
    for t in range(tokens):
        each = [dumb_expert(x[t].tolist(), int(e), limit, w.item()) for e, w in zip(chosen[t], weights[t], strict=True)]
        want = [sum(values) for values in zip(*each, strict=True)]
        torch.testing.assert_close(got[t], torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_blocks_of_experts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights, chosen = example(20, 3)
    whole = experts.routed(x, weights, chosen, W1, W3, W2)
    monkeypatch.setattr(experts, "BLOCK", 2)
    torch.testing.assert_close(experts.routed(x, weights, chosen, W1, W3, W2), whole, rtol=1e-12, atol=1e-12)


def test_both_limits() -> None:
    gate, up = torch.tensor([20.0, -20.0, 5.0, 5.0]), torch.tensor([1.0, 1.0, 30.0, -30.0])
    got = experts.swiglu(gate, up).tolist()
    silu = [v / (1 + math.exp(-v)) for v in (10.0, -20.0, 5.0, 5.0)]
    assert got == pytest.approx([silu[0], silu[1], silu[2] * 10, silu[3] * -10], rel=1e-12)
    assert experts.swiglu(gate, up, limit=None)[0].item() == pytest.approx(20.0, rel=1e-6)


@pytest.mark.parametrize("tokens", [2, 20])
def test_no_expert_and_experts_that_nobody_chose_may_hold_nan(tokens: int) -> None:
    x, weights, chosen = example(tokens, 2)
    chosen = torch.where(chosen == 0, 4, chosen)  # -1 must not become expert 0, which is bad
    chosen[0] = torch.tensor([1, -1])
    bad = [
        torch.where((torch.arange(E) == 0)[:, None, None], torch.tensor(bad), w)
        for bad, w in zip((torch.nan, torch.inf, 0.0), (W1, W3, W2), strict=True)
    ]
    got = experts.routed(x, weights, chosen, *bad)
    want = dumb_expert(x[0].tolist(), 1, 10.0, weights[0, 0].item())
    torch.testing.assert_close(got[0], torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got, experts.routed(x, weights, chosen, W1, W3, W2), rtol=1e-12, atol=1e-12)
    nobody = experts.routed(x, weights, torch.full_like(chosen, -1), *bad)
    assert torch.equal(nobody, torch.zeros_like(x))


def test_no_tokens_and_batches() -> None:
    x, weights, chosen = example(6, 2)
    assert experts.routed(x[:0], weights[:0], chosen[:0], W1, W3, W2).shape == (0, D)
    batched = experts.routed(x.view(2, 3, D), weights.view(2, 3, 2), chosen.view(2, 3, 2), W1, W3, W2)
    torch.testing.assert_close(
        batched.flatten(0, 1), experts.routed(x, weights, chosen, W1, W3, W2), rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ValueError, match=r"oracles\.experts: experts\.shape=\(6, 1\); allowed: \(6, 2\)"):
        experts.routed(x, weights, chosen[:, :1], W1, W3, W2)


def test_the_shared_expert_is_one_of_weight_one() -> None:
    x, _, _ = example(4, 1)
    got = experts.shared(x, W1[2], W3[2], W2[2], limit=0.5)
    want = [dumb_expert(row, 2, 0.5) for row in x.tolist()]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tokens", [2, 20])
def test_simulated_rounds_gate_up_weighted_h_and_the_sum(tokens: int) -> None:
    x, weights, chosen = example(tokens, 2)
    x = x.bfloat16()
    got = experts.routed(x, weights, chosen, W1, W3, W2, kind="simulated")
    for t in range(tokens):
        total = torch.zeros(D, dtype=torch.float64)
        for e, w in zip(chosen[t], weights[t], strict=True):
            gate, up = ((m[e] @ x[t].double()).bfloat16().double() for m in (W1, W3))
            h = (experts.swiglu(gate, up) * w).bfloat16().double()
            total += W2[e] @ h
        torch.testing.assert_close(got[t], total.bfloat16().double(), rtol=2.0**-8, atol=1e-9)


@pytest.mark.parametrize("tokens", [1, 4])
def test_the_activation_rounds_x_and_weighted_h(tokens: int) -> None:
    g = torch.Generator().manual_seed(3)
    w1, w3, w2 = (0.1 * torch.randn(2, 128, 128, generator=g, dtype=torch.float64) for _ in range(3))
    x, weights = torch.randn(tokens, 128, generator=g), torch.rand(tokens, 2, generator=g)
    chosen = torch.tensor([[1, 0]]).expand(tokens, 2)
    got = experts.routed(x, weights, chosen, w1, w3, w2, activation=fp8.rounded_1x128)
    row, want = fp8.rounded_1x128(x).double(), torch.zeros(tokens, 128, dtype=torch.float64)
    for lane, e in enumerate((1, 0)):
        h = experts.swiglu(row @ w1[e].mT, row @ w3[e].mT) * weights[:, lane, None].double()
        want += fp8.rounded_1x128(h) @ w2[e].mT
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
