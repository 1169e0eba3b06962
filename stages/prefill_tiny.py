"""Prefill of the tiny model gives the logits of the whole-sequence form, at every position.

Prompts of the case's lengths, one after the other of one text, in one batch, in one step or in chunks. Output: logits
[sum of lengths, V] f32. The judge has no cache, no batch and no steps, and computes in fp64.
Not proven here: quantised weights and caches (tests/model), speed.
"""

from __future__ import annotations

from typing import Any

import torch

from stages.shared import tiny
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """ids: the prompts, one behind the other."""
    return {"ids": tiny.text()[: sum(case.lengths)]}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Model.prefill` into a fresh cache."""
    device = x["ids"].device
    cache = tiny.cache(device, len(case.lengths), 256 * sum(-(-n // 256) for n in case.lengths), case)
    found = tiny.model(device).prefill(
        cache,
        [cache.open() for _ in case.lengths],
        list(x["ids"].split(list(case.lengths))),
        chunk=case.get("chunk"),
        logits="all",
    )
    return {"logits": torch.cat(found)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Each prompt by itself as a whole."""
    return {"logits": _whole(x, case, torch.float64)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in f32."""
    return {"logits": _whole(x, case, torch.float32)}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The model with one known mistake each, on the cases that ask for it."""
    if not case.get("mistakes", False):
        return {}
    changed = {name: {"logits": _whole(x, case, torch.float32, c)} for name, c in tiny.mistakes().items()}
    right = _whole(x, case, torch.float32)
    return changed | {
        # logits of the position before
        "one_position_late": {"logits": right.roll(1, 0)},
        # the hidden state is the same at every position
        "constant_state": {"logits": right[:1].expand_as(right)},
    }


def _whole(x: Tensors, case: Any, dtype: torch.dtype, changed: tiny.Changed | None = None) -> torch.Tensor:
    return torch.cat([tiny.logits(ids, dtype, changed) for ids in x["ids"].split(list(case.lengths))])
