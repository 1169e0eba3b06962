"""Speculative decoding gives the tokens of plain decoding, whatever is guessed; guesses are those of the oracle."""

from __future__ import annotations

import pytest
import torch

from backends.base import Counters
from backends.count import counting
from model.checkpoint import weights_from
from model.config import Config
from model.errors import InputError
from model.forward import Model
from model.mtp import Speculative
from oracles import sequence

NEW = 46
STARTS = (2, 125, 254)


@pytest.fixture(scope="module")
def plain(model: Model, ids: torch.Tensor) -> list[list[int]]:
    """Greedy continuations of three prompts that end in different phases, one token at a time."""
    cache = model.new_cache(3, 1024)
    sequences = [cache.open() for _ in STARTS]
    tokens = model.prefill(cache, sequences, [ids[:n] for n in STARTS]).argmax(-1)
    found = [tokens]
    for _ in range(NEW):
        tokens = model.decode(cache, sequences, tokens[:, None])[:, 0].argmax(-1)
        found.append(tokens)
    return torch.stack(found, dim=1).tolist()


def force(speculative: Speculative, texts: list[list[int]], wanted: list[list[int]], accepts: list[int]) -> None:
    """Set the guesses so that only the one after `accepts[b]` right ones is wrong."""
    for b, (text, right, n) in enumerate(zip(texts, wanted, accepts, strict=True)):
        for j in range(speculative.drafts):
            speculative.guesses[b, j] = right[len(text) + j] if j != n else (right[len(text) + j] + 1) % 512


def pairs(count: int) -> list[int]:
    """A cycle in which each of `count` numbers follows each of them once."""
    cycle = []
    for i in range(count):
        cycle.append(i)
        for j in range(i + 1, count):
            cycle += [i, j]
    return cycle


@pytest.mark.parametrize("drafts", [1, 2, 3])
def test_every_acceptance_pattern_gives_plain_greedy(
    drafts: int, model: Model, ids: torch.Tensor, plain: list[list[int]]
):
    """Every number of accepted guesses after every other one; the sequences of the batch are out of step."""
    cache = model.new_cache(3, 1024, rewind=drafts)
    pattern = pairs(drafts + 1)
    speculative = Speculative(model, cache, [cache.open() for _ in STARTS], drafts=drafts)
    texts = [[t] for t in speculative.prefill([ids[:n] for n in STARTS]).tolist()]
    for step in range(len(pattern) + 1):
        accepts = [pattern[(step + shift) % len(pattern)] for shift in (0, 5, 11)]
        force(speculative, texts, plain, accepts)
        got = speculative.step()
        assert [len(new) - 1 for new in got] == accepts
        for text, new in zip(texts, got, strict=True):
            text += new
    for text, wanted in zip(texts, plain, strict=True):
        assert text == wanted[: len(text)]
    assert 0 < speculative.accepted < speculative.drafted


def test_a_step_waits_once_for_its_tokens(model: Model, ids: torch.Tensor):
    cache = model.new_cache(2, 512, rewind=2)
    speculative = Speculative(model, cache, [cache.open(), cache.open()], drafts=2)
    with counting(counters := Counters()):
        speculative.prefill([ids[:9], ids[:5]], chunk=6)
    assert counters.sync_calls == []
    with counting(counters := Counters()):
        speculative.step()
    assert counters.sync_calls == ["tolist"]


def test_own_guesses_and_chunked_prompts(model: Model, ids: torch.Tensor, plain: list[list[int]]):
    cache = model.new_cache(3, 1024, rewind=2)
    speculative = Speculative(model, cache, [cache.open() for _ in STARTS], drafts=2)
    texts = [[t] for t in speculative.prefill([ids[:n] for n in STARTS], chunk=50).tolist()]
    for _ in range(4):
        for text, new in zip(texts, speculative.step(), strict=True):
            text += new
    for text, wanted in zip(texts, plain, strict=True):
        assert text == wanted[: len(text)]


@pytest.mark.parametrize("chunk", [None, 37])
def test_guesses_are_the_oracles(
    chunk: int | None, config: Config, model: Model, tensors: dict[str, torch.Tensor], ids: torch.Tensor
):
    """After the prompt and after a rejected step: the first guess is that of the block over all positions."""
    cache = model.new_cache(1, 512, rewind=1)
    speculative = Speculative(model, cache, [cache.open()])
    text = [*ids[:150].tolist(), int(speculative.prefill([ids[:150]], chunk=chunk))]
    for wrong in (True, False):
        known = torch.tensor(text)
        streams = sequence.hidden(known[:-1], tensors, config.to_dict(), dtype=torch.float32)[-1]
        wanted = sequence.draft(streams, known[1:], tensors, config.to_dict(), dtype=torch.float32)[0][-1]
        assert int(speculative.guesses[0, 0]) == int(wanted.argmax())
        if wrong:
            speculative.guesses += 1
            speculative.guesses %= 512
        text += speculative.step()[0]
    assert speculative.drafted == 2


def test_a_second_turn_goes_on_where_the_first_one_ended(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    cache = model.new_cache(1, 512, rewind=1)
    speculative = Speculative(model, cache, [cache.open()])
    speculative.prefill([ids[:100]])
    tokens = speculative.prefill([ids[100:140]])
    assert tokens.tolist() == [int(whole[139].argmax())]


def test_what_cannot_draft_is_refused(config: Config, tensors: dict[str, torch.Tensor], model: Model):
    without = Model(config, weights_from(config, {k: v for k, v in tensors.items() if not k.startswith("mtp.")}))
    with pytest.raises(InputError, match="no block of multi-token prediction"):
        Speculative(without, without.new_cache(1, 256, rewind=1), [0])
    with pytest.raises(InputError, match=r"drafts=2; allowed: 1\.\.1"):
        Speculative(model, model.new_cache(1, 256, rewind=1), [0], drafts=2)
    cache = model.new_cache(1, 256, rewind=1)
    sequence_id = cache.open()
    model.prefill(cache, [sequence_id], [[1, 2, 3]])
    with pytest.raises(InputError, match="holds 3 tokens of others"):
        Speculative(model, cache, [sequence_id]).prefill([[4]])
