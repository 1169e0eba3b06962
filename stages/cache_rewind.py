"""Rejected draft tokens leave no trace: decode after a rewind is decode of a text in which they never were.

Sequences of the case's `starts` tokens (prefixes of one text, in every phase of the compression windows) take one true
token and `drafts` wrong ones in a step, give the wrong ones back, and go on with the text. Output: logits
[sequences, steps, V] f32 of the steps after the rewind.
Not proven here: how many drafts a real block gets right (mtp_tiny has every pattern).
"""

from __future__ import annotations

from typing import Any

import torch

from stages.shared import tiny
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """ids: the text; drafts [sequences, drafts]: wrong tokens."""
    ids = tiny.text()[: max(case.starts) + 1 + case.steps]
    drafts = torch.randint(0, tiny.config().vocab_size, (len(case.starts), case.drafts), generator=rng)
    return {"ids": ids, "drafts": drafts}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """Prefill, a step that is partly rejected, `Cache.rewind`, and decode."""
    ids, device = x["ids"], x["ids"].device
    model = tiny.model(device)
    cache = tiny.cache(device, len(case.starts), 512 * len(case.starts), case, rewind=case.drafts)
    sequences = [cache.open() for _ in case.starts]
    model.prefill(cache, sequences, [ids[:s] for s in case.starts])
    first = torch.stack([ids[s] for s in case.starts])
    model.decode(cache, sequences, torch.cat((first[:, None], x["drafts"]), dim=1))
    for s in sequences:
        cache.rewind(s, case.drafts)
    found = []
    for step in range(1, case.steps + 1):
        token = torch.stack([ids[s + step] for s in case.starts])
        found.append(model.decode(cache, sequences, token[:, None]))
    return {"logits": torch.cat(found, dim=1)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The text as a whole, once: every sequence is a prefix of it."""
    return {"logits": _rows(tiny.logits(x["ids"]), case)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in f32."""
    return {"logits": _rows(tiny.logits(x["ids"], torch.float32), case)}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Caches in which something of the rejected tokens is left, or too much is gone."""
    ids = x["ids"]
    stay, gone = [], []
    for b, s in enumerate(case.starts):
        tail = ids[s + 1 : s + 1 + case.steps]
        stay.append(tiny.logits(torch.cat((ids[: s + 1], x["drafts"][b], tail)), torch.float32)[-case.steps :])
        gone.append(tiny.logits(torch.cat((ids[:s], tail)), torch.float32)[-case.steps :])
    return {
        # rejected tokens stay in the sequence
        "drafts_stay": {"logits": torch.stack(stay)},
        # the accepted token is taken back too
        "one_too_many": {"logits": torch.stack(gone)},
    }


def _rows(logits: torch.Tensor, case: Any) -> torch.Tensor:
    return torch.stack([logits[s + 1 : s + 1 + case.steps] for s in case.starts])
