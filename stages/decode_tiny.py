"""Decode of the tiny model, token by token through its caches, gives the logits of the whole-sequence form.

Sequences of the case's `starts` tokens are prefilled in one batch (in chunks if the case says so), then `steps` steps
append `tokens` tokens each of a given text. Output: logits [sequences, steps * tokens, V] f32.
Not proven here: quantised weights and caches (tests/model), speed.
"""

from __future__ import annotations

from typing import Any

import torch

from stages.shared import tiny
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """ids: the texts, one behind the other, each of start + steps * tokens ids."""
    return {"ids": tiny.text()[: sum(_lengths(case))]}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Model.prefill`, then `Model.decode`."""
    device, new, width = x["ids"].device, _new(case), case.get("tokens", 1)
    model = tiny.model(device)
    texts = x["ids"].split(_lengths(case))
    cache = tiny.cache(device, len(texts), 512 * len(texts), case)
    sequences = [cache.open() for _ in texts]
    model.prefill(cache, sequences, [t[:-new] for t in texts], chunk=case.get("chunk"))
    ids = torch.stack([t[-new:] for t in texts])
    return {"logits": torch.cat([model.decode(cache, sequences, part) for part in ids.split(width, dim=1)], dim=1)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Each text as a whole."""
    return {"logits": _whole(x, case, torch.float64)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in f32."""
    return {"logits": _whole(x, case, torch.float32)}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The model with one known mistake each, and what is left in caches or lost from them."""
    right = _whole(x, case, torch.float32)
    texts, new = x["ids"].split(_lengths(case)), _new(case)
    lost = torch.stack([tiny.logits(t[-new:], torch.float32) for t in texts])
    late = torch.stack([tiny.logits(t[max(0, len(t) - new - 128) :], torch.float32)[-new:] for t in texts])
    variants = {
        # decode does not see what prefill left in the caches
        "prefill_lost": {"logits": lost},
        # entries before the last 128 tokens of the prompt are lost
        "entries_lost": {"logits": late},
        # every step gives the logits of the first one
        "constant_state": {"logits": right[:, :1].expand_as(right)},
    }
    if case.get("mistakes", False):
        variants |= {name: {"logits": _whole(x, case, torch.float32, c)} for name, c in tiny.mistakes().items()}
    return variants


def _new(case: Any) -> int:
    return int(case.steps) * int(case.get("tokens", 1))


def _lengths(case: Any) -> list[int]:
    return [start + _new(case) for start in case.starts]


def _whole(x: Tensors, case: Any, dtype: torch.dtype, changed: tiny.Changed | None = None) -> torch.Tensor:
    new = _new(case)
    return torch.stack([tiny.logits(t, dtype, changed)[-new:] for t in x["ids"].split(_lengths(case))])
