"""The same decode attention on keys as the cache stores them: 448 values in FP8 under 7 scales, 64 rope values in BF16.

As fmha_decode, but window (b, 128, 584) and pool (p, 584) uint8: 448 E4M3, 64 BF16, 7 UE8M0 scales and a byte of
padding for each entry. Outputs: out (b, h, 512) bf16, lse (b, h) f32. What may not be read has scales of NaN.
No kernel yet; not proven by the oracle alone: pages (a page keeps all scales behind all values), splits.
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import attention
from oracles.formats import kv
from stages.shared import decode
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """The inputs of fmha_decode, their keys packed."""
    x = decode.inputs(case, rng)
    return x | {name: _packed(x[name]) for name in ("window", "pool")}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """fp64 over what the bytes stand for."""
    return decode.attended(x, _values(x["window"]), _values(x["pool"]))


def plain(x: Tensors, case: Any) -> Tensors:
    """f32 over keys in bf16, with P and the output in bf16."""
    window, pool = (_values(x[name]).bfloat16() for name in ("window", "pool"))
    found = decode.attended(x, window, pool, dtype=torch.float32, kind="simulated")
    return {"out": found["out"].bfloat16(), "lse": found["lse"]}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The mistakes of the attention, and those of the layout."""
    window, pool = _values(x["window"]), _values(x["pool"])
    found = decode.mistakes(x, window, pool, attention.attention)
    return found | {
        # scales of the neighbouring group of 64
        "scale_of_other_group": decode.attended(x, _values(x["window"], 1), _values(x["pool"], 1)),
        # no scales at all
        "no_scales": decode.attended(x, _values(x["window"], unit=True), _values(x["pool"], unit=True)),
    }


def _packed(keys: torch.Tensor) -> torch.Tensor:
    entry = kv.quantize(keys)
    parts = (entry.nope, entry.rope.contiguous().view(torch.uint8), torch.nn.functional.pad(entry.scales, (0, 1)))
    return torch.cat(parts, dim=-1)


def _values(entries: torch.Tensor, shift: int = 0, unit: bool = False) -> torch.Tensor:
    nope, rope, scales = entries.split((448, 128, 8), dim=-1)
    scales = scales[..., :7].roll(shift, -1)
    scales = torch.where(scales == 255, scales, torch.full_like(scales, 127)) if unit else scales
    return kv.dequantize(kv.Entry(nope, scales, rope.contiguous().view(torch.bfloat16)))
