"""Attention over several tiles of keys: O and the row sums are rescaled whenever a later tile raises a row's maximum.

    out = softmax(scale q k^T) v,   lse = ln sum_j exp(scale q k_j)

per head, with q (b, s_q, h, d), k and v (b, s_kv, h_kv, d). Outputs: out, shown as (b, h, s_q, d), in the input dtype;
lse (b, h, s_q) f32.
Not proven here: paged keys, sinks, sliding windows, head dimensions other than 64 and 128, speed.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stages.shared import attention
from stages.shared.attention import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q, k and v of the case."""
    return attention.inputs(case, rng)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel with softmax="online"."""
    return attention.attend(x, case, backend, mutant)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """One softmax over the whole row, fp64."""
    return attention.exact_attention(x, case, kind)


def plain(x: Tensors, case: Any) -> Tensors:
    """Two products and a softmax in the input dtype."""
    return attention.plain_attention(x, case)


def names(case: Any) -> dict[str, Any]:
    """Tensor memory, warps and barriers by name, for views."""
    return attention.names(case, "online")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Attention with one known mistake each."""
    if attention.is_empty(case):
        return {}
    q, k, v = attention.qkv(x)
    s = attention.logits(q, k, case)
    right = attention.online(s, v)
    reused = attention.logits(q, attention.tile_0_reused(k), case)
    variants = {
        # every K and V load reads tile 0: look at the tma_partition slice indexed by the tile (key_tiles, value_tiles)
        "kv_tile_0_reused": attention.online(reused, attention.tile_0_reused(v)),
        # O is not multiplied by 2^(old max - new max) between tiles: look at correction() and rescale()
        "no_rescale": attention.online(s, v, rescale=False),
        # O holds the last tile alone: PV does not accumulate after the first tile, look at pv_accumulates()
        "last_kv_tile_only": attention.online(s, v, last_tile_only=True),
        # later tiles start from the maximum of tile 0: look at carried_max()
        "row_max_of_tile_0_kept": attention.online(s, v, carry_max=False),
        # logits are q.k without the scale
        "no_softmax_scale": attention.online(attention.logits(q, k, case, scale=1.0), v),
        # LSE in base 2 where base e is promised
        "lse_base_2": {"lse": right["lse"] / math.log(2.0)},
        # P V without the division by the row sum: look at epilogue()
        "not_normalised": {"out": right["out"] * torch.exp(right["lse"] - s.amax(dim=-1)).nan_to_num(0.0)[..., None]},
    }
    if k is not v:
        # PV multiplies K: look at value_operand()
        variants["k_read_for_v"] = attention.online(s, k)
    if attention.has_visible_tail(case):
        # keys past s_kv, which TMA fills with zeros, count: look at mask() and visible_keys()
        variants["tail_not_masked"] = attention.tail_not_masked(x, case)
    if case.get("causal", False) and case.q != case.kv:
        # the mask is aligned to the first key instead of the last
        variants["causal_top_left"] = attention.causal_top_left(x, case)
    if case.get("causal", False):
        # no causal mask at all
        variants["causal_ignored"] = attention.online(attention.logits(q, k, case, causal=False), v)
    if 1 < k.shape[2] < q.shape[2]:
        # query head i reads key head i % h_kv instead of i // (h // h_kv)
        variants["kv_heads_interleaved"] = attention.online(
            attention.logits(q, attention.heads_interleaved(k, q.shape[2]), case),
            attention.heads_interleaved(v, q.shape[2]),
        )
    return variants
