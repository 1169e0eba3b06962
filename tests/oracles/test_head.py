"""Final norm and vocabulary projection against loops."""

from __future__ import annotations

import math

import torch

from oracles.head import logits

rng = torch.Generator().manual_seed(0)
X, NORM, WEIGHT = torch.randn(2, 5, generator=rng), torch.randn(5, generator=rng), torch.randn(7, 5, generator=rng)


def test_equals_loops() -> None:
    got = logits(X, NORM, WEIGHT)
    for t, x in enumerate(X.double().tolist()):
        root = math.sqrt(sum(v * v for v in x) / 5 + 1e-6)
        row = [v / root * n for v, n in zip(x, NORM.double().tolist(), strict=True)]
        want = [sum(a * b for a, b in zip(row, w, strict=True)) for w in WEIGHT.double().tolist()]
        torch.testing.assert_close(got[t], torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=1e-13)
    assert logits(X[:0], NORM, WEIGHT).shape == (0, 7)


def test_simulated_rounds_the_norm_to_bf16_and_logits_to_fp32() -> None:
    x = X.bfloat16()
    unit = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * NORM.double()
    want = (unit.bfloat16().double() @ WEIGHT.double().mT).float().double()
    assert torch.equal(logits(x, NORM, WEIGHT, kind="simulated"), want)
