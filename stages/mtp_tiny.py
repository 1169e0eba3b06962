"""Speculative decode of the tiny model says what greedy decode says, whatever is guessed, and guesses what the draft
block of the reference guesses.

`accepts`: of each step, how many of its guesses are made right (the others wrong); the case's text is its own greedy
continuation. Outputs: tokens [new] int64; guesses [steps + 1] int64, the block's own first guess behind each step.
Not proven here: quantised weights and caches, how often a trained block is right.
"""

from __future__ import annotations

from typing import Any

import torch

from model.mtp import Speculative
from oracles import sequence
from stages.shared import tiny
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """ids: the prompt; following: its greedy continuation by the whole-sequence form, as far as any guess looks."""
    ids = tiny.text()[: case.prompt]
    count = sum(case.accepts) + len(case.accepts) + 2 * case.drafts + 1
    text = ids
    for _ in range(count):
        text = torch.cat((text, tiny.logits(text, torch.float32)[-1:].argmax(-1)))
    return {"ids": ids, "following": text[case.prompt :]}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Speculative`, its guesses noted and then overwritten."""
    device = x["ids"].device
    cache = tiny.cache(device, 1, 512, case, rewind=case.drafts)
    speculative = Speculative(tiny.model(device), cache, [cache.open()], drafts=case.drafts)
    tokens = [speculative.prefill([x["ids"]])]
    guesses = [speculative.guesses[:, 0]]
    at = 1
    for right in case.accepts:
        wanted = x["following"][at : at + case.drafts]
        wrong_ones = torch.arange(case.drafts, device=device) >= right
        speculative.guesses = torch.where(wrong_ones, (wanted + 1) % tiny.config().vocab_size, wanted)[None]
        new = speculative.step()[0]
        at += len(new)
        tokens.append(torch.tensor(new, device=device))
        guesses.append(speculative.guesses[:, 0])
    return {"tokens": torch.cat(tokens), "guesses": torch.cat(guesses)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """One pass over the whole text in fp64, and one of the draft block."""
    return _reference(x, case, torch.float64)


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in f32."""
    return _reference(x, case, torch.float32)


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Tokens that were not checked, and drafts from the wrong inputs."""
    right = _reference(x, case, torch.float32)
    swapped = tiny.tensors() | {
        "mtp.0.enorm.weight": tiny.tensors()["mtp.0.hnorm.weight"],
        "mtp.0.hnorm.weight": tiny.tensors()["mtp.0.enorm.weight"],
    }
    own_head = {f"mtp.0.hc_head_{p}": tiny.tensors()[f"hc_head_{p}"] for p in ("fn", "base", "scale")}
    other_head = tiny.tensors() | own_head
    return {
        # a rejected guess is kept: the token after the first wrong guess is that guess
        "unchecked_guess": {"tokens": _unchecked(right["tokens"], case)},
        # row 0 of a step gives token 0
        "zero_injected": {"tokens": right["tokens"].index_fill(0, torch.tensor([1]), 0)},
        # the next guess comes from the first row of the step, not from its newest token
        "guess_of_first_row": {"guesses": _reference(x, case, torch.float32, newest=False)["guesses"]},
        # the block is given the token at its own position, not the one after it
        "token_not_shifted": {"guesses": _guesses(x, case, torch.float32, tiny.tensors(), shift=0)},
        # norms of embedding and hidden state exchanged
        "norms_exchanged": {"guesses": _guesses(x, case, torch.float32, swapped)},
        # the model's head mixes the block's streams
        "head_of_the_model": {"guesses": _guesses(x, case, torch.float32, other_head)},
    }


def _reference(x: Tensors, case: Any, dtype: torch.dtype, newest: bool = True) -> Tensors:
    count = sum(case.accepts) + len(case.accepts) + 1
    text = torch.cat((x["ids"], x["following"]))
    tokens = tiny.logits(text, dtype).argmax(-1)[case.prompt - 1 :][:count]
    return {"tokens": tokens, "guesses": _guesses(x, case, dtype, tiny.tensors(), newest=newest)}


def _guesses(
    x: Tensors, case: Any, dtype: torch.dtype, tensors: Tensors, *, shift: int = 1, newest: bool = True
) -> torch.Tensor:
    """The draft block over the whole text, looked at where each step ends."""
    raw = tiny.config().to_dict()
    text = torch.cat((x["ids"], x["following"]))
    streams = sequence.hidden(text, tensors, raw, dtype=dtype)[-1]
    logits, _ = sequence.draft(streams[:-1], text[shift:][: len(text) - 1], tensors, raw, dtype=dtype)
    ends, at = [case.prompt - 1], case.prompt - 1
    for right in case.accepts:
        ends.append(at + 1 + (right if newest else 0))
        at += 1 + right
    return logits.argmax(-1)[torch.tensor(ends)]


def _unchecked(tokens: torch.Tensor, case: Any) -> torch.Tensor:
    result, at = tokens.clone(), 1
    for right in case.accepts:
        if right < case.drafts:
            result[at + right] = (result[at + right] + 1) % tiny.config().vocab_size
        at += 1 + right
    return result
