"""Sequences in a cache: bytes, room, rewinding, forks, and what is refused without a change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from model.cache import Cache
from model.config import Config
from model.errors import CacheError


@pytest.fixture
def cache(config: Config) -> Cache:
    """Two sequences, four blocks of 128 tokens, five tokens to take back."""
    return Cache(config, sequences=2, tokens=500, block_tokens=128, rewind=5)


def grow(cache: Cache, sequence: int, count: int) -> None:
    """Pretend that a step wrote `count` tokens."""
    cache.reserve([sequence], [count])
    cache.advance([sequence], [count])


def state(cache: Cache) -> tuple[Any, ...]:
    """All that a failing call must leave."""
    return cache.free_blocks, cache.sequences, [(cache.length(s), cache.table(s)) for s in cache.sequences]


def test_bytes_of_a_flash_cache():
    """A 584-byte entry for each token of the window, for each 4 or 128 tokens, and 132 bytes for each index entry."""
    config = Config.load("tiny")
    cache = Cache(config, sequences=1, tokens=256, block_tokens=256, entries="fp8", dtype=torch.bfloat16)
    window, hidden = -(-128 * 584 // 576) * 576, 2 * config.hidden_size
    assert cache.bytes_per_layer() == [
        {"window": window},
        {"window": window, "carry": 128 * hidden, "entries": 1728},
        {"window": window, "carry": 8 * hidden, "entries": 37_440, "index": 64 * 132},
        {"window": window, "carry": 128 * hidden, "entries": 1728},
        {"window": window, "carry": 8 * hidden, "entries": 37_440, "index": 64 * 132},
    ]
    assert cache.nbytes == sum(sum(layer.values()) for layer in cache.bytes_per_layer())


def test_bytes_of_a_projected_carry():
    """f32 values and gates: 128 x (512 + 512) for HCA; 8 x (1024 + 1024) and 8 x (256 + 256) for CSA."""
    cache = Cache(Config.load("tiny"), sequences=1, tokens=256, carry="projected")
    found = cache.bytes_per_layer()
    assert found[1]["carry"] == 4 * 128 * 1024
    assert (found[2]["carry"], found[2]["index_carry"]) == (4 * 8 * 2048, 4 * 8 * 512)


def test_nothing_is_allocated_by_growing(cache: Cache):
    before = [r.data.data_ptr() for layer in cache.layers for r in layer.pools]
    for _ in range(300):
        sequence = cache.open()
        grow(cache, sequence, 300)
        cache.free(sequence)
    assert [r.data.data_ptr() for layer in cache.layers for r in layer.pools] == before
    assert cache.free_blocks == 4 and cache.sequences == []


def test_rewinding_gives_blocks_back_and_ends_where_the_rings_end(cache: Cache):
    sequence = cache.open()
    grow(cache, sequence, 258)
    cache.rewind(sequence, 3)
    assert cache.length(sequence) == 255 and len(cache.table(sequence)) == 2 and cache.free_blocks == 2
    cache.rewind(sequence, 2)
    before = state(cache)
    for tokens in (1, 253 - 1, 254, -1):
        with pytest.raises(CacheError, match=rf"by {tokens} tokens from 253; allowed: 0\.\.0, or all 253"):
            cache.rewind(sequence, tokens)
        assert state(cache) == before
    cache.rewind(sequence, 253)
    assert cache.length(sequence) == 0 and cache.free_blocks == 4


def test_tokens_taken_back_still_count_against_the_rings(cache: Cache):
    """Writing 5, taking back 5, writing 1: the ring has lost what lies further back than 5 below the highest."""
    sequence = cache.open()
    grow(cache, sequence, 200)
    grow(cache, sequence, 5)
    cache.rewind(sequence, 5)
    grow(cache, sequence, 1)
    cache.rewind(sequence, 1)
    with pytest.raises(CacheError, match=r"allowed: 0\.\.0"):
        cache.rewind(sequence, 1)


def test_room_is_for_all_or_none(cache: Cache):
    first, second = cache.open(), cache.open()
    grow(cache, first, 200)
    before = state(cache)
    with pytest.raises(CacheError, match=r"3 more blocks of 128 tokens are needed; allowed: 2, those free of 4"):
        cache.reserve([first, second], [100, 200])
    assert state(cache) == before
    with pytest.raises(CacheError, match=r"sequences \[0, 0\]; allowed: each of them once"):
        cache.reserve([first, first], [1, 1])
    with pytest.raises(CacheError, match=r"no free sequence: all 2 are open"):
        cache.open()
    with pytest.raises(CacheError, match=r"no free sequence"):
        cache.fork(first)
    assert state(cache) == before


def test_a_fork_shares_until_one_writes(cache: Cache):
    first = cache.open()
    grow(cache, first, 200)
    second = cache.fork(first)
    assert cache.table(second) == cache.table(first) and cache.free_blocks == 2
    grow(cache, second, 1)
    assert cache.table(second)[0] == cache.table(first)[0] and cache.table(second)[1] != cache.table(first)[1]
    cache.free(first)
    assert cache.free_blocks == 2
    cache.free(second)
    assert cache.free_blocks == 4
    with pytest.raises(CacheError, match=r"sequence 0 is not open; allowed: \[\]"):
        cache.free(first)


def test_no_longer_than_the_model(config: Config):
    cache = Cache(replace(config, max_position_embeddings=200), sequences=1, tokens=500)
    with pytest.raises(CacheError, match=r"holds 0 tokens and 201 more are 201; allowed: at most 200"):
        cache.reserve([cache.open()], [201])


def test_a_model_without_compression_needs_no_blocks(config: Config):
    cache = Cache(config.with_ratios(0, 0), sequences=1, tokens=1000)
    sequence = cache.open()
    grow(cache, sequence, 1000)
    assert cache.free_blocks == 0 and cache.table(sequence) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequences": 0}, r"sequences=0; allowed: at least 1"),
        ({"tokens": 0, "rewind": -1}, r"tokens=0; allowed: at least 1; rewind=-1; allowed: at least 0"),
        ({"block_tokens": 192}, r"block_tokens=192; allowed: a multiple of 128"),
        ({"entries": "fp4"}, r"entries='fp4'; allowed: fp32, bf16, fp8"),
        ({"index": "int8"}, r"index='int8'; allowed: fp32, bf16, fp8, fp4"),
        ({"carry": "none"}, r"carry='none'; allowed: hidden, projected"),
    ],
)
def test_bad_sizes_are_named(options: dict[str, Any], message: str, config: Config):
    with pytest.raises(CacheError, match=message):
        Cache(config, **({"sequences": 1, "tokens": 256} | options))
