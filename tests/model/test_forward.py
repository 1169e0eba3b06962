"""Batches, chunks, rewinding, forks and cache formats give what one sequence in one step gives; no step reads back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from backends.base import Counters
from backends.count import counting
from model.cache import Cache
from model.checkpoint import random_tensors, weights_from
from model.config import Config
from model.errors import CacheError, InputError
from model.forward import Model
from model.plan import Plan, plan

ATOL = 2e-5


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Within the noise of another order of summation."""
    return found.shape == wanted.shape and (found - wanted).abs().max().item() <= ATOL


def token(ids: torch.Tensor, at: int, count: int = 1) -> torch.Tensor:
    """[1, count] tokens of the prompt."""
    return ids[None, at : at + count]


def test_batched_prefill_is_one_by_one(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    cache = model.new_cache(4, 1280)
    sequences = [cache.open() for _ in range(4)]
    lengths = [5, 130, 130, 301]
    found = model.prefill(cache, sequences, [ids[:n] for n in lengths])
    assert close(found, torch.stack([whole[n - 1] for n in lengths]))
    step = torch.stack([ids[n] for n in lengths])[:, None]
    assert close(model.decode(cache, sequences, step)[:, 0], torch.stack([whole[n] for n in lengths]))
    assert [cache.length(s) for s in sequences] == [n + 1 for n in lengths]


def test_prompts_of_several_lengths_in_chunks(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    cache = model.new_cache(3, 1024)
    sequences, lengths = [cache.open() for _ in range(3)], [3, 140, 77]
    found = model.prefill(cache, sequences, [ids[:n] for n in lengths], chunk=70, logits="all")
    for logits, n in zip(found, lengths, strict=True):
        assert close(logits, whole[:n])
    cache = model.new_cache(3, 1024)
    sequences = [cache.open() for _ in range(3)]
    last = model.prefill(cache, sequences, [ids[:n].tolist() for n in lengths], chunk=70)
    assert close(last, torch.stack([whole[n - 1] for n in lengths]))


@pytest.mark.parametrize("carry", ["hidden", "projected"])
def test_any_chunk_is_the_whole(carry: str, model: Model, ids: torch.Tensor, whole: torch.Tensor):
    """Both forms of the carry; chunks of 13 cut windows of 4 and of 128 at every phase."""
    cache = model.new_cache(1, 512, carry=carry, block_tokens=128)
    assert close(model.prefill(cache, [cache.open()], [ids[:290]], chunk=13, logits="all")[0], whole[:290])


@pytest.mark.parametrize("carry", ["hidden", "projected"])
def test_rewound_is_never_run(carry: str, model: Model, ids: torch.Tensor):
    """At every phase of 4, around 128: run 1 to 4 wrong tokens, take them back: the same bits as without them."""
    wrong = torch.tensor([[11, 12, 13, 14]])
    plain, other = (model.new_cache(1, 512, rewind=4, carry=carry, block_tokens=128) for _ in range(2))
    a, b = plain.open(), other.open()
    for cache, sequence in ((plain, a), (other, b)):
        model.prefill(cache, [sequence], [ids[:121]])
    for at in range(121, 134):
        drafts = 1 + at % 4
        model.decode(other, [b], wrong[:, :drafts])
        other.rewind(b, drafts)
        wanted = model.decode(plain, [a], token(ids, at))
        assert torch.equal(model.decode(other, [b], token(ids, at)), wanted), at
    assert other.length(b) == plain.length(a) == 134


def test_partly_accepted_steps_at_every_phase(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    """T = 1 to 4 tokens a step in a batch, different numbers kept by each sequence; odd T too."""
    cache = model.new_cache(3, 1536, rewind=3, block_tokens=128)
    sequences, at = [cache.open() for _ in range(3)], [2, 125, 254]
    model.prefill(cache, sequences, [ids[:n] for n in at])
    for step in range(14):
        width = 1 + step % 4
        logits = model.decode(cache, sequences, torch.stack([ids[n : n + width] for n in at]))
        for row, n in zip(logits, at, strict=True):
            assert close(row, whole[n : n + width])
        for i, s in enumerate(sequences):
            back = (step + i) % width
            cache.rewind(s, back)
            at[i] += width - back


def test_rewinding_to_nothing_and_reusing_a_sequence(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    """Nothing of a former owner of the rings or blocks is seen: neither after rewinding nor after freeing."""
    cache = model.new_cache(1, 512)
    sequence = cache.open()
    model.prefill(cache, [sequence], [ids[100:400]])
    cache.rewind(sequence, 300)
    assert close(model.prefill(cache, [sequence], [ids[:150]], logits="all")[0], whole[:150])
    cache.free(sequence)
    assert close(model.prefill(cache, [cache.open()], [ids[:3]], logits="all")[0], whole[:3])


@pytest.mark.parametrize("at", [126, 128, 131, 255])
def test_forks_go_their_own_ways(at: int, model: Model, ids: torch.Tensor, whole: torch.Tensor):
    """Both share the blocks of the prompt and each copies the open one when it writes."""
    cache = model.new_cache(3, 1536, rewind=2)
    first = cache.open()
    model.prefill(cache, [first], [ids[:at]])
    second = cache.fork(first)
    other = torch.flip(ids, (0,))
    for i in range(4):
        model.decode(cache, [second], token(other, i))
    cache.rewind(second, 2)
    for i in range(4):
        assert close(model.decode(cache, [first], token(ids, at + i))[0], whole[at + i : at + i + 1])
    lone = cache.open()
    model.prefill(cache, [lone], [torch.cat((ids[:at], other[:2]))])
    found, wanted = (model.decode(cache, [s], token(other, 2)) for s in (second, lone))
    assert close(found, wanted)


def test_decoding_goes_on_past_a_prompt_twice_as_long_as_the_window(model: Model, ids: torch.Tensor):
    """A needle far behind the window reaches the logits through compressed and index entries of earlier chunks."""
    logits = []
    for needle in (1, 2):
        prompt = ids.clone()
        prompt[9] = needle
        cache = model.new_cache(1, 512)
        logits.append(model.prefill(cache, [cache.open()], [prompt], chunk=150))
    assert (logits[0] - logits[1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("entries", "index", "least"), [("bf16", "bf16", 0.9999), ("fp8", "fp8", 0.97), ("fp8", "fp4", 0.9)]
)
def test_narrow_caches_stay_close(
    entries: str, index: str, least: float, model: Model, ids: torch.Tensor, whole: torch.Tensor
):
    """And they do not depend on how the prompt is cut: new keys are rounded as the cache holds them."""
    found = []
    for chunk in (None, 77):
        cache = model.new_cache(1, 256, entries=entries, index=index)
        found.append(model.prefill(cache, [cache.open()], [ids[:200]], chunk=chunk, logits="all")[0])
    similarity = torch.nn.functional.cosine_similarity
    assert similarity(found[0], whole[:200]).median() >= least and found[0].isfinite().all()
    assert not torch.equal(found[0], whole[:200])
    # A value that lies between two codes may fall to either side; most of what follows is the same all the same.
    assert similarity(found[0], found[1]).median() >= 0.99999


def test_bf16_model_runs_in_bf16(
    config: Config, tensors: dict[str, torch.Tensor], ids: torch.Tensor, whole: torch.Tensor
):
    model = Model(config, weights_from(config, tensors, dtype=torch.bfloat16), dtype=torch.bfloat16)
    cache, seen = model.new_cache(1, 256), {}
    found = model.prefill(
        cache, [cache.open()], [ids[:120]], logits="all", tap=lambda name, value: seen.__setitem__(name, value.dtype)
    )[0]
    assert seen["layers.4"] == torch.bfloat16 and found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found, whole[:120]).median() > 0.99


def test_a_step_never_waits_and_appends_in_two_launches(model: Model, ids: torch.Tensor):
    counts = []
    spied: list[Counters] = []

    def append(pool: Any, rows: torch.Tensor, values: torch.Tensor) -> None:
        spied.append(Counters())
        with counting(spied[-1]):
            pool.append(rows, values)

    watched = Model(model.config, model.weights, model.ops.replaced(append=append))
    cache = watched.new_cache(2, 1024)
    sequences = [cache.open() for _ in range(2)]
    watched.prefill(cache, sequences, [ids[:200], ids[:131]])
    assert all(c.launches <= 2 for c in spied) and len(spied) > 10
    for at in range(3):
        counters = Counters()
        with counting(counters):
            model.decode(cache, sequences, torch.stack([ids[200 + at], ids[131 + at]])[:, None])
        assert counters.sync_calls == []
        counts.append(counters.launches)
    assert counts[0] > counts[1] > 0, "a window of 128 and one of 4 are completed by the first step only"


def test_steps_that_complete_nothing_run_no_compressor(model: Model, ids: torch.Tensor):
    """127 of 128 steps for HCA, 3 of 4 for CSA; with a projected carry every step projects."""
    calls: list[int] = []
    real: Callable[..., torch.Tensor] = model.ops.compress

    def compress(*args: Any) -> torch.Tensor:
        calls.append(args[2].first.numel())
        return real(*args)

    def refuse(*args: Any) -> torch.Tensor:
        raise AssertionError("projected")

    watched = Model(model.config, model.weights, model.ops.replaced(compress=compress, compressor_project=refuse))
    cache = watched.new_cache(1, 512)
    sequence = cache.open()
    watched.prefill(cache, [sequence], [ids[:124]])
    calls.clear()
    per_step = []
    for at in range(124, 132):
        watched.decode(cache, [sequence], token(ids, at))
        per_step.append(len(calls))
        calls.clear()
    # two CSA layers with two streams each, two HCA layers
    assert per_step == [0, 0, 0, 6, 0, 0, 0, 4]
    cache = watched.new_cache(1, 256, carry="projected")
    with pytest.raises(AssertionError, match="projected"):
        watched.prefill(cache, [cache.open()], [ids[:2]])


def test_a_recorded_step_serves_other_steps(config: Config, ids: torch.Tensor):
    """What a captured graph does: the launches of one step, recorded once, replayed after one copy of another plan."""
    from torch.fx.experimental.proxy_tensor import make_fx

    small = replace(config.with_ratios(4), hc_sinkhorn_iters=1)
    model = Model(small, weights_from(small, random_tensors(small, seed=5)))
    caches = [model.new_cache(2, 1024) for _ in range(2)]
    both = [[c.open(), c.open()] for c in caches]
    for cache, sequences in zip(caches, both, strict=True):
        model.prefill(cache, sequences, [ids[:135], ids[:99]])
    cache, sequences = caches[0], both[0]
    graphs: dict[Any, Any] = {}

    def launches(step: Plan, tokens: torch.Tensor) -> torch.Tensor:
        return model.logits(model.run(cache, step, tokens))

    for at in range(5):
        tokens = torch.stack([ids[135 + at], ids[99 + at]])
        cache.reserve(sequences, [1, 1])
        step = plan(cache, sequences, [1, 1], static=True)
        if at < 2:
            graphs[step.shape_key] = step, make_fx(partial(launches, step))(tokens)
        held, graph = graphs[step.shape_key]
        held.refill(step)
        found = graph(tokens)
        cache.advance(sequences, [1, 1])
        assert torch.equal(found, model.decode(caches[1], both[1], tokens[:, None])[:, 0])
    assert len(graphs) == 2, "one that completes a window, replayed at the fifth step, and one that does not"


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[1, 512]], {}, r"prompt 0: token id 512; allowed: 0\.\.511"),
        ([[1, -1]], {}, r"prompt 0: token id -1; allowed: 0\.\.511"),
        ([[]], {}, r"prompt 0: \[0\] token ids; allowed: one dimension, at least 1 token"),
        ([[1], [2]], {}, r"1 sequences, 2 prompts; allowed: as many"),
        ([[1]], {"chunk": 0}, r"chunk=0; allowed: at least 1, or None"),
        ([[1]], {"logits": "first"}, r"logits='first'; allowed: 'last', 'all'"),
    ],
)
def test_bad_prompts_change_nothing(prompts: Any, options: dict[str, Any], message: str, model: Model):
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    with pytest.raises(InputError, match=message):
        model.prefill(cache, [sequence], prompts, **options)
    assert cache.length(sequence) == 0 and cache.free_blocks == 1


def test_bad_decodes_change_nothing(model: Model):
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    for tokens in (torch.zeros(1, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1, 1)):
        with pytest.raises(InputError, match=r"allowed: torch.int64 \[1, T\]"):
            model.decode(cache, [sequence], tokens)
    with pytest.raises(CacheError, match=r"holds 0 tokens and 300 more are 300; allowed: at most 256"):
        model.prefill(cache, [sequence], [[1] * 300])
    with pytest.raises(CacheError, match=r"sequence 5 is not open"):
        model.decode(cache, [5], torch.zeros(1, 1, dtype=torch.int64))
    assert cache.length(sequence) == 0 and cache.free_blocks == 1


def test_a_failing_step_leaves_the_length(model: Model, ids: torch.Tensor, whole: torch.Tensor):
    def broken(*args: Any) -> torch.Tensor:
        raise RuntimeError("kernel")

    cache: Cache = model.new_cache(1, 256)
    sequence = cache.open()
    with pytest.raises(RuntimeError, match="kernel"):
        Model(model.config, model.weights, model.ops.replaced(route=broken)).prefill(cache, [sequence], [ids[:9]])
    assert cache.length(sequence) == 0
    assert close(model.prefill(cache, [sequence], [ids[:9]], logits="all")[0], whole[:9])
