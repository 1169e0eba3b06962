"""Token ids of given logits and random numbers: greedy, temperature and top-p, ties to the lower id.

logits (b, v) f32, numbers (b) f32 in [0, 1): number u picks the first token, in order of falling probability, at which
the sum of what is kept exceeds u times all that is kept. Output: ids (b) int64, exactly.
Not proven here: the random numbers themselves (tests/model).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from model.sampler import Sampler
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Logits in steps of 1/8, so that many are equal; with `certain`, all but four are -inf."""
    logits = (torch.randn(case.b, case.v, generator=rng) * 24).round() / 8
    if case.get("certain", False):
        keep = torch.rand(case.b, case.v, generator=rng).argsort(1)[:, :4]
        logits = torch.full_like(logits, -math.inf).scatter(1, keep, logits.gather(1, keep))
    return {"logits": logits, "numbers": torch.rand(case.b, generator=rng)}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Sampler` with the numbers given."""
    sampler = _made(case.temperature, case.top_p, case.b, x["logits"].device)
    sampler.numbers = x["numbers"][:, None]
    return {"ids": sampler(x["logits"])}


@functools.cache
def _made(temperature: float, top_p: float, rows: int, device: torch.device) -> Sampler:
    """Made once: drawing its own random numbers is no part of a step."""
    return Sampler(temperature=temperature, top_p=top_p, seeds=range(rows), draws=1, device=device)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Row by row in Python."""
    return {"ids": _each(x, case.temperature, case.top_p)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same integers."""
    return oracle(x, case, "ideal")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other tokens of the same logits."""
    variants = {
        # the last one of equal logits
        "ties_to_higher": _each(x, case.temperature, case.top_p, lower=False),
        # not the token, but its place in the order
        "rank": _each(x, case.temperature, case.top_p, rank=True),
    }
    if case.temperature:
        variants |= {
            # always the largest logit
            "greedy": _each(x, 0.0, 1.0),
            # logits are multiplied by the temperature
            "temperature_inverted": _each(x, 1 / case.temperature, case.top_p),
            # everything is kept
            "no_top_p": _each(x, case.temperature, 1.0),
            # the token that reaches top_p is left out
            "top_p_exclusive": _each(x, case.temperature, case.top_p, inclusive=False),
            # the kept probabilities are not scaled back to 1
            "not_renormalised": _each(x, case.temperature, case.top_p, scaled=False),
            # every row uses the first number
            "one_number": _each({**x, "numbers": x["numbers"][:1].expand(case.b)}, case.temperature, case.top_p),
        }
    return {name: {"ids": ids} for name, ids in variants.items()}


def _each(
    x: Tensors,
    temperature: float,
    top_p: float,
    *,
    lower: bool = True,
    inclusive: bool = True,
    scaled: bool = True,
    rank: bool = False,
) -> torch.Tensor:
    found = []
    for row, number in zip(x["logits"].tolist(), x["numbers"].tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i if lower else -i))
        place = 0 if not temperature else _drawn([row[i] for i in order], number, temperature, top_p, inclusive, scaled)
        found.append(place if rank else order[place])
    return torch.tensor(found)


def _drawn(logits: list[float], number: float, temperature: float, top_p: float, inclusive: bool, scaled: bool) -> int:
    """Place in the falling order."""
    weights = [math.exp((value - logits[0]) / temperature) for value in logits]
    total, reached, kept = sum(weights), 0.0, []
    for weight in weights:
        if kept and (reached >= top_p or (not inclusive and reached + weight / total >= top_p)):
            break
        kept.append(weight / total)
        reached += weight / total
    bound, running = number * (sum(kept) if scaled else 1.0), 0.0
    for place, probability in enumerate(kept):
        running += probability
        if running > bound:
            return place
    return max(place for place, probability in enumerate(kept) if probability > 0)
