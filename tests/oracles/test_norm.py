"""RMSNorm against Python floats."""

from __future__ import annotations

import math

import pytest
import torch

from oracles.norm import rms_norm

X = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0)) + 0.5


@pytest.mark.parametrize("weighted", [True, False])
def test_equals_one_number_at_a_time(weighted: bool) -> None:
    w = torch.linspace(-1, 2, 7)
    got = rms_norm(X, w if weighted else None, eps=1e-3)
    for i in range(2):
        for j in range(3):
            row = X[i, j].double().tolist()
            root = math.sqrt(sum(v * v for v in row) / 7 + 1e-3)
            want = [v / root * (w[n].double().item() if weighted else 1.0) for n, v in enumerate(row)]
            torch.testing.assert_close(got[i, j], torch.tensor(want, dtype=torch.float64), rtol=1e-14, atol=0)


def test_equals_torch() -> None:
    w = torch.linspace(-1, 2, 7)
    want = torch.nn.functional.rms_norm(X.double(), (7,), w.double(), eps=1e-6)
    torch.testing.assert_close(rms_norm(X, w), want, rtol=1e-14, atol=0)


def test_the_weight_multiplies_as_it_is() -> None:
    assert torch.equal(rms_norm(X, torch.zeros(7)), torch.zeros(2, 3, 7, dtype=torch.float64))


def test_zeros_tiny_rows_and_no_rows() -> None:
    assert torch.equal(rms_norm(torch.zeros(1, 4)), torch.zeros(1, 4, dtype=torch.float64))
    torch.testing.assert_close(rms_norm(torch.full((1, 4), 1e-6)), torch.full((1, 4), 1e-3).double(), rtol=1e-6, atol=0)
    assert rms_norm(torch.empty(0, 4)).shape == (0, 4)


def test_simulated_is_rounded_once() -> None:
    x, w = X.bfloat16(), torch.linspace(0.5, 2, 7).bfloat16()
    assert torch.equal(rms_norm(x, w, kind="simulated"), rms_norm(x, w).bfloat16().double())


def test_a_weight_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.norm: weight=.*8.*; allowed: \[7\]"):
        rms_norm(X, torch.ones(8))
