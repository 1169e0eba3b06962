"""Decode attention of V4: one softmax over the window and the compressed entries, a sink, one latent as key and value.

    o_h = sum_j e^(l_j) K_j / (sum_j e^(l_j) + e^(sink_h)),  l_j = q_h K_j / sqrt(512)

q (b, h, 512) bf16, one query a sequence; window (b, 128, 512) and pool (p, 512) bf16; lengths (b), tokens before and
with the query: the ring holds those of the last 128, slot = position mod 128; ids (b, k) entries of the pool, of which
the first count (b) are valid. Outputs: out (b, h, 512) bf16, lse (b, h) f32, natural, without the sink. Slots and lanes
that are not valid hold NaN, and ids behind the count point to NaN rows.
No kernel yet; not proven by the oracle alone: pages, splits, several queries a sequence.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import attention
from stages.shared import decode
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Rings and pools with poison where nothing may be read."""
    return decode.inputs(case, rng)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64 over the keys in bf16."""
    return decode.attended(x, x["window"], x["pool"])


def plain(x: Tensors, case: Any) -> Tensors:
    """f32 with P and the output in bf16."""
    found = decode.attended(x, x["window"], x["pool"], dtype=torch.float32, kind="simulated")
    return {"out": found["out"].bfloat16(), "lse": found["lse"]}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Keys too many or too few, sinks and scales in the wrong place."""
    return decode.mistakes(x, x["window"], x["pool"], attention.attention)
