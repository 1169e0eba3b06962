"""A thousand decode steps hold no byte more than the first one, and a cache is exactly as large as its layout says.

`run` is one decode step of the tiny model's layer kinds, at the end of a text that goes on from call to call (it begins
anew when the cache is full). Output: held [2, layers, 5] int64, bytes of each layer's window, carry, index carry,
entries and index: of the cache that decode uses (f32, hidden states as carry), and of one as published code has it
(584-byte entries, projected carry). The growth over `steps` further calls is part of the gate entry.
Not proven here: the time of a step (tests/model measure it).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from model.cache import Cache
from model.checkpoint import random_tensors, weights_from
from model.forward import Model
from model.ops import Ops
from stages.shared import tiny
from stages.shared.tiny import Tensors

RATIOS = (0, 4, 128)
POOLS = ("window", "carry", "index_carry", "entries", "index")
BLOCK = 256


@dataclass
class _Text:
    """One sequence that grows."""

    model: Model
    cache: Cache
    published: Cache
    sequence: int


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """token [1, 1]: what every step appends."""
    return {"token": torch.randint(0, tiny.config().vocab_size, (1, 1), generator=rng)}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """One step of `Model.decode`, and the bytes of the cache."""
    text = _text(case.tokens, x["token"].device, mutant)
    if text.cache.length(text.sequence) == text.cache.capacity:
        text.cache.free(text.sequence)
        text.sequence = text.cache.open()
    text.model.decode(text.cache, [text.sequence], x["token"])
    caches = (text.cache, text.published)
    held = [[[layer.get(name, 0) for name in POOLS] for layer in c.bytes_per_layer()] for c in caches]
    return {"held": torch.tensor(held, device=x["token"].device)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """From sizes alone: rows, and bytes of a row with its scales."""
    return {"held": torch.tensor([[_layer(ratio, case.tokens, form) for ratio in RATIOS] for form in ("fp32", "fp8")])}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same integers."""
    return oracle(x, case, "ideal")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other layouts."""
    right = oracle(x, case, "ideal")["held"]
    capacity = -(-case.tokens // BLOCK) * BLOCK
    window = right.clone()
    window[..., 0] = window[..., 0] // tiny.config().sliding_window * capacity
    return {
        # a window row for every token of the text
        "window_grows": {"held": window},
        # an entry for every token of HCA, as if it were CSA
        "one_ratio_for_all": {"held": torch.cat((right[:, :2], right[:, 1:2]), dim=1)},
        # every pool twice, as for K and V
        "k_and_v": {"held": 2 * right},
    }


@functools.cache
def _text(tokens: int, device: torch.device, mutant: type | None) -> _Text:
    torch.set_num_threads(1)
    config = tiny.config().with_ratios(*RATIOS)
    ops = Ops.oracles() if mutant is None else Ops.oracles().replaced(append=mutant().append)  # type: ignore[attr-defined]
    model = Model(config, weights_from(config, random_tensors(config, 0), device=str(device)), ops)
    cache = model.new_cache(1, tokens, block_tokens=BLOCK)
    text = _Text(model, cache, model.new_cache(1, tokens, block_tokens=BLOCK, entries="fp8", carry="projected"), 0)
    text.sequence = cache.open()
    # One of every kind of step, so that what is made at the first use of anything is there.
    model.prefill(cache, [text.sequence], [[0] * 127])
    return text


def _layer(ratio: int, tokens: int, form: str) -> list[int]:
    config, pages = tiny.config(), -(-tokens // BLOCK)
    key, index = {"fp32": (2048, 512), "fp8": (584, 132)}[form]
    window = _paged(config.sliding_window, 1, key)
    if not ratio:
        return [window, 0, 0, 0, 0]
    halves, rows = (2, 8) if ratio == 4 else (1, 128)
    if form == "fp32":
        carry, index_carry = rows * 4 * config.hidden_size, 0
    else:
        carry = rows * 4 * 2 * halves * config.head_dim
        index_carry = rows * 4 * 2 * halves * config.index_head_dim if ratio == 4 else 0
    entries = _paged(BLOCK // ratio, pages, key)
    return [window, carry, index_carry, entries, pages * BLOCK // ratio * index if ratio == 4 else 0]


def _paged(rows: int, pages: int, row: int) -> int:
    """Pages of 584-byte rows are padded to a multiple of 576 bytes."""
    page = rows * row
    return pages * (-(-page // 576) * 576 if row == 584 else page)
