"""HCA entries: every 128 tokens become one, by a softmax over the window in each channel.

Then norm, and rope at the window's first token. x (start + t, d) bf16, wkv and wgate (width, d) bf16, ape (128, width)
f32, norm (width) bf16. Output: entries (w, width) bf16, those that the last t tokens finish.
No kernel yet; not proven by the oracle alone: the carry as a state on the device (tests/model), storage formats.
"""

from __future__ import annotations

from typing import Any

import torch

from stages.shared import compression
from stages.shared.data import Tensors

RATIO = 128


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
    """The mistakes of any compressor, and one window taken for the softmax of all channels."""
    found = compression.mistakes(x, case)
    if not found:
        return {}
    w = compression.weights(x)
    shared = w._replace(wgate=w.wgate[:1].expand_as(w.wgate), ape=w.ape[:, :1].expand_as(w.ape))
    return found | {
        # one softmax for all channels
        "one_softmax": {"entries": compression.entries(x, case, shared)},
    }
