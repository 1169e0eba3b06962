"""Replies: those of decoding token by token, ended by EOS alone, whatever of the prompt the cache already held."""

from __future__ import annotations

import pytest
import torch

from backends.base import Counters
from backends.count import counting
from model.cache import Cache
from model.errors import CacheError, InputError
from model.forward import Model
from model.sampler import Sampler
from model.session import Session

NEW = 8


def session(model: Model, *, tokens: int = 512, sequences: int = 1, stop: int | None = None, **options) -> Session:
    cache = model.new_cache(sequences, tokens, rewind=options.get("drafts", 0))
    return Session(model, cache, Sampler(**options.pop("sampling", {})), stop=stop, **options)


def said(talk: Session, prompt: list[int], most: int = NEW, keep: int = 0) -> list[int]:
    return [token for piece in talk.reply(prompt, most, keep=keep) for token in piece]


@pytest.fixture(scope="module")
def prompt(ids: torch.Tensor) -> list[int]:
    return ids[:130].tolist()


@pytest.fixture(scope="module")
def wanted(model: Model, prompt: list[int]) -> list[int]:
    """Greedy, the whole prefix computed anew for each token."""
    found: list[int] = []
    for _ in range(NEW):
        cache = model.new_cache(1, 256)
        logits = model.prefill(cache, [cache.open()], [prompt + found])
        found.append(int(logits[0].argmax()))
    return found


@pytest.mark.parametrize("options", [{}, {"chunk": 50}, {"drafts": 1}, {"drafts": 2}])
def test_reply_is_the_greedy_continuation(model: Model, prompt, wanted, options) -> None:
    talk = session(model, **options)
    assert said(talk, prompt) == wanted
    assert talk.tally.new == NEW and talk.tally.prefilled == 130


@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("at", [0, 3])
def test_only_the_stop_token_ends_a_reply_early(model: Model, prompt, wanted, at: int, drafts: int) -> None:
    stop = wanted[at]
    assert said(session(model, stop=stop, drafts=drafts), prompt) == wanted[: wanted.index(stop) + 1]


def test_a_seed_gives_the_same_tokens_with_and_without_drafts(model: Model, prompt) -> None:
    sampling = {"temperature": 1.5, "top_p": 0.95, "seeds": (11,)}
    plain = said(session(model, sampling=sampling), prompt)
    assert said(session(model, sampling=sampling, drafts=2), prompt) == plain
    assert said(session(model, sampling=sampling | {"seeds": (12,)}), prompt) != plain


def test_a_step_waits_once(model: Model, prompt) -> None:
    for drafts in (0, 1):
        reply = session(model, drafts=drafts).reply(prompt, NEW)
        next(reply)
        counters = Counters()
        with counting(counters):
            next(reply)
        assert counters.syncs == 1


def test_the_next_turn_computes_only_what_is_new(model: Model, prompt, wanted) -> None:
    talk = session(model)
    assert said(talk, prompt) == wanted
    longer = [*prompt, *wanted, 7, 8, 9]
    second = said(talk, longer)
    # the last token of the first reply was never fed
    assert talk.tally.reused == 130 + NEW - 1 and talk.tally.prefilled == 130 + 4
    assert second == said(session(model), longer)


def test_the_same_prompt_again_and_another_one(model: Model, prompt, wanted) -> None:
    talk = session(model)
    for _ in range(2):
        assert said(talk, prompt) == wanted
    other = [5, *prompt[1:40]]
    assert said(talk, other) == said(session(model), other)


@pytest.mark.parametrize("sequences", [1, 2])
def test_what_is_kept_apart_outlives_the_reply(model: Model, prompt, wanted, sequences: int) -> None:
    talk = session(model, tokens=1024, sequences=sequences)
    assert said(talk, prompt, keep=129) == wanted
    changed = [*prompt[:129], 6, 7, 8]
    second = said(talk, changed, keep=131)
    assert second == said(session(model), changed)
    assert talk.tally.reused == (129 if sequences == 2 else 0)
    third = [*changed[:131], 4, 4]
    assert said(talk, third) == said(session(model), third)


def test_bad_requests_are_named_and_change_nothing(model: Model, prompt, wanted) -> None:
    talk = session(model, tokens=256)
    cases = [
        (([512], 1), InputError, "prompt: token id 512; allowed: 0..511"),
        (([3, -1], 1), InputError, "token id -1"),
        (([], 1), InputError, "no token; allowed: at least 1"),
        (([3], 0), InputError, "most=0"),
        ((prompt, 200), CacheError, "130 prompt tokens, 200 new ones and 0 drafts need 329 places; allowed: 256"),
    ]
    for arguments, kind, text in cases:
        with pytest.raises(kind, match=text):
            talk.reply(*arguments)
    with pytest.raises(InputError, match=r"keep=9; allowed: 0\.\.2"):
        talk.reply([3, 4], 1, keep=9)
    assert talk.cache.length(talk.sequence) == 0
    assert said(talk, prompt) == wanted


def test_hundred_cycles_leave_no_block_behind(model: Model) -> None:
    cache: Cache = model.new_cache(2, 1024)
    talk = Session(model, cache, Sampler(), stop=None)
    before = cache.nbytes
    for i in range(100):
        said(talk, [i % 512, 1, 2, 3, 4], most=1, keep=3)
    assert cache.nbytes == before and cache.free_blocks >= cache.blocks.count - 2
