"""Inputs and mistakes of the stages that compress windows of m tokens into entries.

Fields of a case: t (tokens), d (hidden size), width (512, or 128 of the index), start (tokens before, which wait in the
carry; default 0).
"""

from __future__ import annotations

from typing import Any

import torch

from oracles import compressor, rope
from oracles.compressor import Weights
from stages.shared import data
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator, ratio: int) -> Tensors:
    """x: the hidden states of all tokens, those before `start` too; and the four weights, none of them trivial."""
    rows = case.width * (2 if ratio == 4 else 1)
    return {
        "x": data.activations(case.get("start", 0) + case.t, case.d, rng=rng),
        "wkv": data.matrix(rows, case.d, rng=rng),
        "wgate": 2 * data.matrix(rows, case.d, rng=rng),
        "ape": data.vector(ratio, rows, rng=rng),
        "norm": data.norm(case.width, rng),
    }


def weights(x: Tensors) -> Weights:
    """The four weights."""
    return Weights(x["wkv"], x["wgate"], x["ape"], x["norm"])


def entries(x: Tensors, case: Any, w: Weights | None = None, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Entries that the last t tokens finish."""
    w = weights(x) if w is None else w
    found = compressor.compress(x["x"], w, data.frequencies(True), dtype=dtype)
    return found[case.get("start", 0) // w.ratio :]


def mistakes(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Entries with one known mistake each; nothing if no entry is finished."""
    w = weights(x)
    right = entries(x, case)
    if not len(right):
        return {}
    first = case.get("start", 0) // w.ratio
    positions = (first + torch.arange(len(right))) * w.ratio
    variants = {
        # gates without the place in the window
        "no_ape": entries(x, case, w._replace(ape=torch.zeros_like(w.ape))),
        # `ape` of the neighbouring place
        "ape_shifted": entries(x, case, w._replace(ape=w.ape.roll(1, 0))),
        # the mean of the window instead of the softmax of the gates
        "mean": entries(x, case, w._replace(ape=torch.zeros_like(w.ape), wgate=torch.zeros_like(w.wgate))),
        # gates and values exchanged
        "exchanged": entries(x, case, w._replace(wkv=w.wgate, wgate=w.wkv)),
        # the norm's weight is 1 + w
        "one_plus_weight": entries(x, case, w._replace(norm=1 + w.norm.double())),
        # rotated at the window's last token instead of its first
        "rope_at_last": _turned_by(right, w.ratio - 1),
        # not rotated
        "not_rotated": _turned_to_zero(right, positions),
        # rotated by the index of the entry
        "rope_at_index": _turned_again(right, positions, first + torch.arange(len(right))),
        # entries of the window before
        "window_late": right.roll(1, 0),
    }
    if case.get("start", 0) % w.ratio:
        # tokens that waited in the carry are lost: the window is filled with zeros
        lost = x["x"].clone()
        lost[: case.start] = 0
        variants["carry_lost"] = entries({**x, "x": lost}, case)
    return {name: {"entries": t} for name, t in variants.items()}


def _turned_by(entries: torch.Tensor, tokens: int) -> torch.Tensor:
    cos, sin = rope.angles(torch.full((len(entries),), tokens), data.frequencies(True))
    return rope.rotate(entries, cos, sin)


def _turned_to_zero(entries: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = rope.angles(positions, data.frequencies(True))
    return rope.rotate(entries, cos, sin, inverse=True)


def _turned_again(entries: torch.Tensor, positions: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    cos, sin = rope.angles(index, data.frequencies(True))
    return rope.rotate(_turned_to_zero(entries, positions), cos, sin)
