"""Window keys and compressed entries of T tokens go to their places in the caches, and nothing else changes.

Two sequences get `tokens` tokens at `starts`; every pool holds garbage before. Outputs: window [2, ring, 512], the
rings by slot; entries [pages, rows, 512], the pages of the first sequence in the order of its table, then those of the
second, in the dtype of the cache. However many tokens there are, an append is one launch for each pool of a plain
format.
Not proven here: the byte formats (tests/model/cache), speed.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from model.cache import Cache
from model.ops import Ops
from model.plan import plan
from stages.shared import tiny
from stages.shared.tiny import Tensors

RATIO, BLOCK, WIDTH = 4, 128, 512
GARBAGE = 7.0


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """k: keys of all new tokens; e: entries of the windows that they complete."""
    count = case.tokens * len(case.starts)
    done = sum((s + case.tokens) // RATIO - s // RATIO for s in case.starts)
    return {
        "k": (torch.randn(count, WIDTH, generator=rng) + 0.3).to(_dtype(case)),
        "e": (torch.randn(done, WIDTH, generator=rng) - 0.3).to(_dtype(case)),
    }


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`plan` and `Ops.append` on caches that are made once; they hold garbage again before each run."""
    cache = _cache(case, x["k"].device)
    layer = cache.layers[0]
    append = Ops.oracles().append if mutant is None else mutant.append
    for sequence in cache.sequences:
        cache.free(sequence)
    sequences = [cache.open() for _ in case.starts]
    assert layer.entries is not None
    for pool in (layer.window, layer.entries):
        pool.data.fill_(GARBAGE)
    cache.reserve(sequences, list(case.starts))
    cache.advance(sequences, list(case.starts))
    counts = [case.tokens] * len(sequences)
    cache.reserve(sequences, counts)
    step = plan(cache, sequences, counts)
    kept = x["k"] if step.window.keep is None else x["k"].index_select(0, step.window.keep)
    append(layer.window, step.window.rows, kept)
    if RATIO in step.emissions:
        append(layer.entries, step.emissions[RATIO].rows, x["e"])
    cache.advance(sequences, counts)
    pages = torch.tensor([page for s in sequences for page in cache.table(s)], device=x["k"].device)
    rings = torch.tensor(sequences, device=x["k"].device)
    return {"window": layer.window.data[rings], "entries": layer.entries.data[pages]}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Token by token: slot p mod ring, entry p // 4."""
    return _placed(x, case)


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in the dtype of the cache."""
    return {name: t.to(_dtype(case)) for name, t in _placed(x, case).items()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Rows in other places."""
    return {
        # slots count from the step's first token instead of the sequence's
        "slots_from_zero": {"window": _placed(x, case, start=0)["window"]},
        # entry w is written where w + 1 belongs
        "entry_one_late": {"entries": _placed(x, case, late=1)["entries"]},
        # of a step longer than the ring the oldest tokens stay
        "oldest_stay": {"window": _placed(x, case, newest=False)["window"]},
        # both sequences write to the first one's place
        "one_sequence": {"window": _placed(x, case)["window"][:1].expand(len(case.starts), -1, -1)},
    }


@functools.cache
def _made(form: str, tokens: int, sequences: int, device: torch.device) -> Cache:
    config = tiny.config().with_ratios(RATIO)
    return Cache(config, sequences=sequences, tokens=tokens, block_tokens=BLOCK, entries=form, device=device)  # type: ignore[arg-type]


def _cache(case: Any, device: torch.device) -> Cache:
    return _made(case.get("form", "fp32"), BLOCK * sum(_pages(case)), len(case.starts), device)


def _pages(case: Any) -> list[int]:
    return [-(-(start + int(case.tokens)) // BLOCK) for start in case.starts]


def _dtype(case: Any) -> torch.dtype:
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[case.get("form", "fp32")]


def _placed(x: Tensors, case: Any, *, start: int | None = None, late: int = 0, newest: bool = True) -> Tensors:
    ring, rows = tiny.config().sliding_window, BLOCK // RATIO
    window = torch.full((len(case.starts), ring, WIDTH), GARBAGE, dtype=torch.float64)
    entries = [torch.full((n * rows, WIDTH), GARBAGE, dtype=torch.float64) for n in _pages(case)]
    done = 0
    for b, first in enumerate(case.starts):
        written: set[int] = set()
        for t in range(case.tokens):
            slot = ((first if start is None else start) + t) % ring
            if newest or slot not in written:
                window[b, slot] = x["k"][b * case.tokens + t].double()
            written.add(slot)
            if (first + t + 1) % RATIO == 0:
                w = (first + t) // RATIO
                entries[b][(w + late) % len(entries[b])] = x["e"][done].double()
                done += 1
    return {"window": window, "entries": torch.cat(entries).unflatten(0, (-1, rows))}
