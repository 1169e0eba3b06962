"""The tiny model and its judge for the stages that run it: random weights, a fixed text, known mistakes.

The text is the same for every seed: on it no choice of experts or entries hangs on the last bits of f32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from model.cache import Cache
from model.checkpoint import random_tensors, weights_from
from model.config import Config
from model.forward import Model
from model.ops import Ops
from oracles import sequence

Tensors = dict[str, torch.Tensor]
Changed = tuple[dict[str, Any], Mapping[str, torch.Tensor]]

TEXT_SEED = 7
TOKENS = 420


@functools.cache
def config() -> Config:
    """Five layers of all kinds and a draft block."""
    return Config.load("tiny")


@functools.cache
def tensors() -> Tensors:
    """Random f32 tensors by published name."""
    return random_tensors(config(), 0)


@functools.cache
def model(device: torch.device) -> Model:
    """The model on oracles in f32; made once in a process."""
    # Two threads are far slower than one on products of this size.
    torch.set_num_threads(1)
    return Model(config(), weights_from(config(), tensors(), device=str(device)))


def text() -> torch.Tensor:
    """420 token ids."""
    generator = torch.Generator().manual_seed(TEXT_SEED)
    return torch.randint(0, config().vocab_size, (TOKENS,), generator=generator)


def cache(device: torch.device, sequences: int, tokens: int, case: Any, *, rewind: int = 0) -> Cache:
    """A cache of the model, with the case's `carry` (hidden)."""
    return model(device).new_cache(sequences, tokens, rewind=rewind, carry=case.get("carry", "hidden"))


def replaced(ops: Ops) -> Callable[[torch.device], Model]:
    """The same model on another table of operations."""

    def make(device: torch.device) -> Model:
        found = model(device)
        return Model(found.config, found.weights, ops)

    return make


def logits(ids: torch.Tensor, dtype: torch.dtype = torch.float64, changed: Changed | None = None) -> torch.Tensor:
    """Logits [T, V] of a whole text without any cache; `changed` replaces configuration and tensors."""
    raw, values = (config().to_dict(), tensors()) if changed is None else changed
    torch.set_num_threads(1)
    return sequence.forward(ids, values, raw, dtype=dtype)


def mistakes() -> dict[str, Changed]:
    """Configurations and tensors that make the whole-sequence form the model with one known mistake."""
    raw = config().to_dict()
    return {
        # keys, queries and entries of compressing layers are rotated with the base of the others
        "one_rope_base": ({**raw, "compress_rope_theta": raw["rope_theta"]}, tensors()),
        # frequencies of compressing layers are not stretched
        "no_yarn": ({**raw, "rope_scaling": {**raw["rope_scaling"], "factor": 1.0}}, tensors()),
        # the window leaves out the query itself, or holds one key too few
        "window_of_127": ({**raw, "sliding_window": 127}, tensors()),
        # causal attention over everything instead of the window
        "no_window": ({**raw, "sliding_window": TOKENS}, tensors()),
        # the indexer keeps every entry
        "no_topk": ({**raw, "index_topk": TOKENS}, tensors()),
        # the scale of routed experts is applied twice
        "route_scale_twice": ({**raw, "routed_scaling_factor": raw["routed_scaling_factor"] ** 2}, tensors()),
        # one Sinkhorn pass instead of twenty
        "one_sinkhorn_pass": ({**raw, "hc_sinkhorn_iters": 1}, tensors()),
        # the sink is no part of the softmax's denominator
        "no_sink": (raw, _each(".attn_sink", lambda t: torch.full_like(t, -torch.inf))),
        # experts are chosen without the bias
        "no_router_bias": (raw, _each(".gate.bias", torch.zeros_like)),
        # hash layers look up the neighbour of the token
        "hash_of_next_id": (raw, _each(".tid2eid", lambda t: t.roll(1, 0))),
        # gates of the compressor without the position in the window
        "no_ape": (raw, _each(".ape", torch.zeros_like)),
        # CSA takes the half for the next window as that of its own
        "halves_swapped": (raw, _each("compressor.", _halves_swapped)),
        # norms multiply by 1 + w
        "norm_plus_one": (raw, _each("_norm.weight", lambda t: t + 1)),
        # streams are mixed by the transpose of M
        "comb_transposed": (raw, _each("_fn", _transposed) | _each("_base", _transposed, _each("_fn", _transposed))),
    }


def _each(part: str, change: Callable[[torch.Tensor], torch.Tensor], source: Tensors | None = None) -> Tensors:
    """The tensors with those changed whose name contains `part`."""
    return {name: change(t) if part in name else t for name, t in (source or tensors()).items()}


def _halves_swapped(t: torch.Tensor) -> torch.Tensor:
    """Projections and `ape` of a compressor with overlap; one without has as many rows as its norm and stays."""
    if t.shape[0] == 4:
        return t.roll(t.shape[1] // 2, 1)
    overlaps = t.ndim == 2 and t.shape[0] in (2 * config().head_dim, 2 * config().index_head_dim)
    return t.roll(t.shape[0] // 2, 0) if overlaps else t


def _transposed(t: torch.Tensor) -> torch.Tensor:
    """Rows of M's logits, 8 + 4 j + k, with j and k exchanged; the head has none."""
    if t.shape[0] != 24:
        return t
    order = torch.arange(16).view(4, 4).T.flatten() + 8
    return torch.cat((t[:8], t[order]))
