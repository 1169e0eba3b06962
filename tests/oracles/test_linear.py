"""Linears against sums of products."""

from __future__ import annotations

import pytest
import torch

from oracles.formats import fp8
from oracles.linear import grouped_linear, linear, multi_linear

rng = torch.Generator().manual_seed(0)
X, W = torch.randn(2, 3, 5, generator=rng), torch.randn(4, 5, generator=rng)


def dumb(x: list[float], w: list[list[float]]) -> list[float]:
    return [sum(a * b for a, b in zip(x, row, strict=True)) for row in w]


def test_linear() -> None:
    want = [[dumb(x, W.tolist()) for x in row] for row in X.tolist()]
    torch.testing.assert_close(linear(X, W), torch.tensor(want, dtype=torch.float64), rtol=1e-14, atol=1e-14)
    assert linear(X, W, dtype=torch.float32).dtype == torch.float32
    assert linear(X[:0], W).shape == (0, 3, 4)


def test_several_linears_of_one_input() -> None:
    got = multi_linear(X, [W, W[:1] * 2])
    assert torch.equal(got[0], linear(X, W)) and torch.equal(got[1], linear(X, W[:1] * 2))


@pytest.mark.parametrize("flat", [False, True])
def test_groups_do_not_mix(flat: bool) -> None:
    x, w = torch.randn(2, 3, 5, generator=rng), torch.randn(3, 4, 5, generator=rng)
    want = [[dumb(x[i, g].tolist(), w[g].tolist()) for g in range(3)] for i in range(2)]
    got = grouped_linear(x, w.flatten(0, 1) if flat else w)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-14, atol=1e-14)
    dense = torch.block_diag(*w.double())
    torch.testing.assert_close(got.flatten(1), x.double().flatten(1) @ dense.mT, rtol=1e-14, atol=1e-14)
    assert grouped_linear(x[None, :0], w).shape == (1, 0, 3, 4)


def test_the_activation_is_rounded_and_the_weight_is_not() -> None:
    x, w = torch.randn(3, 256, generator=rng), torch.randn(4, 256, generator=rng)
    assert torch.equal(linear(x, w, activation=fp8.rounded_1x128), linear(fp8.rounded_1x128(x), w))
    assert torch.equal(multi_linear(x, [w], activation=fp8.rounded_1x128)[0], linear(fp8.rounded_1x128(x), w))
    grouped = x.view(3, 2, 128)
    want = grouped_linear(fp8.rounded_1x128(grouped), w[:, :128].view(2, 2, 128))
    assert torch.equal(grouped_linear(grouped, w[:, :128].view(2, 2, 128), activation=fp8.rounded_1x128), want)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.linear: x\.shape=\(2, 3, 5\); allowed: \[\.\.\., 6\]"):
        linear(X, torch.ones(4, 6))
    with pytest.raises(ValueError, match=r"oracles\.grouped_linear: w\.shape=\(2, 4, 5\); allowed: \[3, N, 5\]"):
        grouped_linear(X, torch.ones(2, 4, 5))
