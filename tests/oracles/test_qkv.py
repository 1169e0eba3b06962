"""Query and key-value projections, step by step in their dumb forms."""

from __future__ import annotations

import math

import torch

from oracles.formats import fp8
from oracles.qkv import kv_projection, q_projection
from oracles.rope import angles, frequencies

HEADS, WIDE, LOW, D, ROPE = 3, 10, 5, 7, 4
rng = torch.Generator().manual_seed(0)
X = torch.randn(2, D, generator=rng)
WQ_A, Q_NORM = torch.randn(LOW, D, generator=rng), 1 + 0.2 * torch.randn(LOW, generator=rng)
WQ_B, WKV = torch.randn(HEADS * WIDE, LOW, generator=rng), torch.randn(WIDE, D, generator=rng)
KV_NORM = 1 + 0.2 * torch.randn(WIDE, generator=rng)
TABLE = angles(torch.tensor([3, 90]), frequencies(ROPE))


def product(w: torch.Tensor, x: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in w.double().tolist()]


def norm(x: list[float], w: list[float] | None = None) -> list[float]:
    root = math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    return [v / root * (w[i] if w else 1.0) for i, v in enumerate(x)]


def turn(x: list[float], t: int) -> list[float]:
    x = list(x)
    for i in range(ROPE // 2):
        c, s, at = TABLE[0][t, i].item(), TABLE[1][t, i].item(), len(x) - ROPE + 2 * i
        x[at], x[at + 1] = x[at] * c - x[at + 1] * s, x[at] * s + x[at + 1] * c
    return x


def test_queries() -> None:
    q, qr = q_projection(X, WQ_A, Q_NORM, WQ_B, *TABLE, heads=HEADS)
    assert q.shape == (2, HEADS, WIDE) and qr.shape == (2, LOW)
    for t in range(2):
        low = norm(product(WQ_A, X[t].double().tolist()), Q_NORM.double().tolist())
        torch.testing.assert_close(qr[t], torch.tensor(low, dtype=torch.float64), rtol=1e-13, atol=1e-13)
        wide = product(WQ_B, low)
        for h in range(HEADS):
            want = turn(norm(wide[WIDE * h : WIDE * h + WIDE]), t)
            torch.testing.assert_close(q[t, h], torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=1e-13)


def test_keys() -> None:
    k = kv_projection(X, WKV, KV_NORM, *TABLE)
    for t in range(2):
        want = turn(norm(product(WKV, X[t].double().tolist()), KV_NORM.double().tolist()), t)
        torch.testing.assert_close(k[t], torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=1e-13)


def test_batches_and_no_tokens() -> None:
    x = X.expand(3, 2, D)
    q, qr = q_projection(x, WQ_A, Q_NORM, WQ_B, *TABLE, heads=HEADS)
    torch.testing.assert_close(q[2], q[0], rtol=1e-13, atol=1e-13)
    assert qr.shape == (3, 2, LOW)
    none = (part[:0] for part in TABLE)
    assert kv_projection(X[:0], WKV, KV_NORM, *none).shape == (0, WIDE)


def test_simulated_rounds_products_latent_and_results() -> None:
    x = X.bfloat16()

    def bf16(v: torch.Tensor) -> torch.Tensor:
        return v.bfloat16().double()

    def unit(v: torch.Tensor) -> torch.Tensor:
        return v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    q, qr = q_projection(x, WQ_A, Q_NORM, WQ_B, *TABLE, heads=HEADS, kind="simulated")
    want = bf16(unit(bf16(x.double() @ WQ_A.double().mT)) * Q_NORM.double())
    assert torch.equal(qr, want)
    heads = unit(bf16(want @ WQ_B.double().mT).view(2, HEADS, WIDE))
    turned = torch.tensor([[turn(heads[t, h].tolist(), t) for h in range(HEADS)] for t in range(2)])
    assert torch.equal(q, bf16(turned))
    k = kv_projection(x, WKV, KV_NORM, *TABLE, kind="simulated")
    flat = unit(bf16(x.double() @ WKV.double().mT)) * KV_NORM.double()
    assert torch.equal(k, bf16(torch.tensor([turn(flat[t].tolist(), t) for t in range(2)])))


def test_the_activation_rounds_the_input_of_both_products() -> None:
    x, a, b = (torch.randn(s, generator=rng) for s in ((2, 128), (128, 128), (20, 128)))
    w = torch.ones(128)
    q, qr = q_projection(x, a, w, b, *TABLE, heads=2, activation=fp8.rounded_1x128)
    _, exact = q_projection(fp8.rounded_1x128(x), a, w, b, *TABLE, heads=2)
    assert torch.equal(qr, exact)
    wide = (fp8.rounded_1x128(qr) @ b.double().mT).view(2, 2, 10)
    unit = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(q[..., :6], unit[..., :6], rtol=1e-13, atol=0)
