"""A compressor whose projections run only when a window is full: kept hidden states give the entry that projections
token by token give, and until then nothing runs.

The last window of a text, from the hidden states that the cache kept (`m` 4: 8 rows, the window before first; 128: 128
rows), once for each of `windows` texts. x (windows, slots, d) bf16. Output: entries (windows, width) bf16.
No kernel yet; not proven by the oracle alone: no GEMM on the other steps (a count of launches).
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import compressor
from oracles.compressor import Weights
from stages.shared import data
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Kept hidden states; what lies before a first window is garbage."""
    rows, slots = case.width * (2 if case.m == 4 else 1), 8 if case.m == 4 else 128
    index = torch.arange(case.windows)
    x = data.activations(case.windows, slots, case.d, rng=rng)
    if case.m == 4:
        x[:1, :4] = 1000.0
    return {
        "x": x,
        "window": index,
        "wkv": data.matrix(rows, case.d, rng=rng),
        "wgate": 2 * data.matrix(rows, case.d, rng=rng),
        "ape": data.vector(case.m, rows, rng=rng),
        "norm": data.norm(case.width, rng),
    }


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Token by token with a carry, as if each had been projected when it came."""
    return {"entries": _stepped(x, case)}


def plain(x: Tensors, case: Any) -> Tensors:
    """All slots at once, in f32."""
    return {"entries": _deferred(x, x["x"], x["window"], torch.float32).bfloat16()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Slots that are not what they should be."""
    if not case.windows:
        return {}
    kept, window = x["x"], x["window"]
    late = kept.clone()
    late[:, -1] = kept[:, -2]
    variants = {
        # the token that fills the window is not in it yet
        "newest_missing": _deferred(x, late, window),
        # the ring is read from its first slot instead of its oldest
        "ring_not_turned": _deferred(x, kept.roll(1, 1), window),
        # the entry's position is that of the next window
        "next_window": _deferred(x, kept, window + 1),
    }
    if case.m == 4:
        # the window before the first one counts
        variants["garbage_before_first"] = _deferred(x, kept, window.clamp(min=1))
        # the two windows exchanged
        variants["windows_exchanged"] = _deferred(x, kept.roll(4, 1), window)
    return {name: {"entries": t} for name, t in variants.items()}


def _deferred(x: Tensors, kept: torch.Tensor, window: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return compressor.deferred(kept, _weights(x), window, data.frequencies(True), dtype=dtype)


def _stepped(x: Tensors, case: Any) -> torch.Tensor:
    w, slots = _weights(x), x["x"].shape[1]
    carry = compressor.empty_carry(w, (case.windows,))
    entry = x["norm"].new_zeros(case.windows, case.width, dtype=torch.float64)
    for slot in range(slots):
        # The window before the first one has negative positions: its tokens are those that never were.
        positions = x["window"] * case.m + slot - (slots - case.m)
        real = positions >= 0
        found, _, after = compressor.step(x["x"][:, slot], positions.clamp(min=0), carry, w, data.frequencies(True))
        carry = compressor.Carry(
            *(torch.where(real[:, None, None], new, old) for new, old in zip(after, carry, strict=True))
        )
        entry = found
    return entry


def _weights(x: Tensors) -> Weights:
    return Weights(x["wkv"], x["wgate"], x["ape"], x["norm"])
