"""CSA entries: every 4 tokens become one, from their own projections and those of the 4 tokens before.

e_w = softmax over 8 slots per channel: tokens of window w - 1 with the first halves of kv and gate, tokens of window w
with the second halves (window 0: its own only); then norm, and rope at the window's first token. x (start + t, d)
bf16, wkv and wgate (2 width, d) bf16, ape (4, 2 width) f32, norm (width) bf16. Output: entries (w, width) bf16, those
that the last t tokens finish.
No kernel yet; not proven by the oracle alone: the carry as a state on the device (tests/model), storage formats.
"""

from __future__ import annotations

from typing import Any

import torch

from stages.shared import compression
from stages.shared.data import Tensors

RATIO = 4


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Hidden states and weights."""
    return compression.inputs(case, rng, RATIO)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The whole sequence at once, in fp64."""
    return {"entries": compression.entries(x, case)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same in f32, rounded once."""
    return {"entries": compression.entries(x, case, dtype=torch.float32).bfloat16()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The mistakes of any compressor, and those of the overlap."""
    found = compression.mistakes(x, case)
    if not found:
        return {}
    w = compression.weights(x)
    half = case.width
    swapped = w._replace(wkv=w.wkv.roll(half, 0), wgate=w.wgate.roll(half, 0), ape=w.ape.roll(half, 1))
    own = w._replace(wgate=w.wgate[half:], wkv=w.wkv[half:], ape=w.ape[:, half:])
    return found | {
        # the halves for the next window and for the own one exchanged
        "halves_swapped": {"entries": compression.entries(x, case, swapped)},
        # the window before is not looked at
        "no_overlap": {"entries": compression.entries(x, case, own)},
    }
