"""The sampler: the distribution it is asked for, reproducible from the seed alone, without reading anything back."""

from __future__ import annotations

import math

import pytest
import torch

from backends.base import Counters
from backends.count import counting
from model.errors import InputError
from model.sampler import Sampler


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def drawn(sampler: Sampler, logits: torch.Tensor, count: int) -> list[int]:
    found = []
    for _ in range(count):
        found.append(int(sampler(logits)))
        sampler.advance()
    return found


def test_greedy_takes_the_lowest_of_equal_logits_whatever_the_seed() -> None:
    logits = torch.tensor([[0.0, 3.0, -1.0, 3.0], [-math.inf, -math.inf, -5.0, -5.0]])
    for seed in (0, 1):
        assert Sampler(seeds=(seed, seed))(logits).tolist() == [1, 2]
    assert Sampler(seeds=(0, 0))(logits[:, None].expand(2, 3, 4)).tolist() == [[1] * 3, [2] * 3]


def test_frequencies_are_the_probabilities_and_temperature_bends_them() -> None:
    p = (0.5, 0.3, 0.2)
    for temperature in (1.0, 0.5):
        found = drawn(Sampler(temperature=temperature, seeds=(3,), draws=4000), logits_of(*p), 4000)
        bent = [x ** (1 / temperature) for x in p]
        for token, wanted in enumerate(bent):
            assert found.count(token) / 4000 == pytest.approx(wanted / sum(bent), abs=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.5, {0}), (0.51, {0, 1}), (0.8, {0, 1}), (0.81, {0, 1, 2}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: set[int]) -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).double().log().float()
    logits[0, 0] += 1e-6  # the half is reached by the first token, in f32 too
    assert set(drawn(Sampler(temperature=1.0, top_p=top_p, seeds=(0,)), logits, 200)) == kept


def test_of_equal_tokens_top_p_keeps_the_lower_ids() -> None:
    assert set(drawn(Sampler(temperature=1.0, top_p=0.5, seeds=(1,)), torch.zeros(1, 8), 200)) == {0, 1, 2, 3}


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0]])
    assert set(drawn(Sampler(temperature=2.0, seeds=(0,)), logits, 200)) == {1, 3}


def test_a_sequence_draws_the_same_alone_in_a_batch_and_several_tokens_at_once() -> None:
    logits = torch.randn(3, 6, 50, generator=torch.Generator().manual_seed(0))
    together = Sampler(temperature=1.0, seeds=(5, 6, 7))
    whole = together(logits)
    for b, seed in enumerate((5, 6, 7)):
        alone = Sampler(temperature=1.0, seeds=(seed,))
        for t in range(6):
            assert int(alone(logits[b : b + 1, t])) == int(whole[b, t])
            alone.advance()
    assert len({tuple(row) for row in whole.tolist()}) == 3


def test_what_is_not_kept_is_drawn_again_with_the_same_numbers() -> None:
    logits = torch.randn(2, 4, 50, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(temperature=1.0, seeds=(0, 1))
    first = sampler(logits)
    assert torch.equal(sampler(logits), first)
    sampler.advance([1, 3])
    again = sampler(torch.stack((logits[0, 1:3], logits[1, [3, 3]])))
    assert again[0].tolist() == first[0, 1:3].tolist() and int(again[1, 0]) == int(first[1, 3])


def test_numbers_begin_again_after_the_last_one() -> None:
    sampler = Sampler(temperature=1.0, seeds=(0,), draws=3)
    found = drawn(sampler, torch.zeros(1, 1000), 6)
    assert found[:3] == found[3:] and len(set(found[:3])) == 3


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_is_read_back_and_the_logits_stay(temperature: float) -> None:
    logits = torch.randn(2, 3, 40)
    before = logits.clone()
    sampler = Sampler(temperature=temperature, top_p=0.9, seeds=(0, 1))
    counters = Counters()
    with counting(counters):
        sampler(logits)
        sampler.advance()
    assert counters.sync_calls == [] and torch.equal(logits, before)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": -0.1}, "temperature=-0.1; allowed: a finite number from 0"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"top_p": 0.0}, "top_p=0.0; allowed: above 0, at most 1"),
        ({"top_p": 1.5, "draws": 0}, "top_p=1.5; allowed: above 0, at most 1; draws=0; allowed: at least 1"),
        ({"seeds": ()}, r"seeds=\[\]; allowed: "),
        ({"seeds": (-1,)}, r"seeds=\[-1\]"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Sampler(**settings)  # type: ignore[arg-type]


def test_logits_of_another_number_of_sequences_are_refused() -> None:
    with pytest.raises(InputError, match=r"logits: \[3, 9\]; allowed: \[2, V\] or \[2, T, V\]"):
        Sampler(seeds=(0, 1))(torch.zeros(3, 9))
