"""The sampler against a walk down the sorted list."""

from __future__ import annotations

import math

import pytest
import torch

from oracles.sampler import greedy, sample


def dumb(logits: list[float], u: float, temperature: float, top_p: float) -> int:
    top = max(logits)
    weights = [math.exp((v - top) / temperature) for v in logits]
    total = sum(weights)
    kept, mass = [], 0.0
    for i in sorted(range(len(logits)), key=lambda i: (-logits[i], i)):
        if mass >= top_p:
            break
        kept.append(i)
        mass += weights[i] / total
    target, running = u * sum(weights[i] for i in kept), 0.0
    for i in kept:
        running += weights[i]
        if running > target:
            return i
    return kept[-1]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.05, 0.6, 0.95, 1.0])
def test_equals_a_walk(temperature: float, top_p: float) -> None:
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(200, 30, generator=rng).double()
    uniform = torch.rand(200, generator=rng).double()
    got = sample(logits, uniform, temperature=temperature, top_p=top_p)
    rows = zip(logits.tolist(), uniform.tolist(), strict=True)
    assert got.tolist() == [dumb(row, u, temperature, top_p) for row, u in rows]


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.log(torch.tensor([0.5, 0.125, 0.375])).double()
    got = sample(logits.expand(1000, 3), (torch.arange(1000) + 0.5).double() / 1000)
    assert torch.bincount(got, minlength=3).tolist() == [500, 125, 375]


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-torch.inf, -5.0, -9.0]])
    assert greedy(logits).tolist() == [1, 0, 1]
    assert sample(logits, torch.full((3,), 0.99), temperature=0.0).tolist() == [1, 0, 1]


def test_ends_of_the_unit_interval_and_masked_ids() -> None:
    logits = torch.tensor([-torch.inf, 0.0, 1.0, -torch.inf]).expand(2, 4)
    assert sample(logits, torch.tensor([0.0, 1.0 - 2**-24])).tolist() == [2, 1]
    assert sample(logits, torch.tensor([0.0, 1.0 - 2**-24]), top_p=1e-9).tolist() == [2, 2]


def test_a_number_on_the_border_belongs_to_the_next_id() -> None:
    logits = torch.zeros(3, 4)
    assert sample(logits, torch.tensor([0.25, 0.5, 0.75])).tolist() == [1, 2, 3]


def test_temperature_and_top_p_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.sampler: temperature=-1\.0; allowed: >= 0"):
        sample(torch.ones(2), torch.tensor(0.5), temperature=-1.0)
    for top_p in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"oracles\.sampler: top_p={top_p}; allowed: 0 < top_p <= 1"):
            sample(torch.ones(2), torch.tensor(0.5), top_p=top_p)
