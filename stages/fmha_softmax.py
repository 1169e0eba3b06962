"""Attention over one tile of at most 128 keys: exponentials, row sums, normalisation and LSE, nothing to rescale yet.

    out = softmax(scale q k^T) v,   lse = ln sum_j exp(scale q k_j)

Outputs: out, shown as (b, h, s_q, d), in the input dtype; lse (b, h, s_q) f32. One tile is blind to everything that
happens between tiles: a pinned tile number, a missing rescale, a maximum not carried on (those are for fmha_multitile).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stages.shared import attention
from stages.shared.attention import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q, k and v of the case; more keys than a tile belong to fmha_multitile."""
    if case.kv > attention.TILE:
        raise ValueError(f"kv={case.kv}; allowed: at most {attention.TILE}, one tile")
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
    """Softmax with one known mistake each."""
    q, k, v = attention.qkv(x)
    s = attention.logits(q, k, case)
    right = attention.online(s, v)
    row_max = s.amax(dim=-1).nan_to_num(neginf=0.0)
    row_sum = torch.exp(right["lse"] - row_max)
    variants = {
        # logits are q.k without the scale
        "no_softmax_scale": attention.online(attention.logits(q, k, case, scale=1.0), v),
        # P V without the division by the row sum: look at epilogue()
        "not_normalised": {"out": right["out"] * row_sum[..., None]},
        # powers of 2 where powers of e are meant: the factor log2(e) is missing
        "exponent_base_2": attention.online(s * math.log(2.0), v),
        # LSE in base 2 where base e is promised
        "lse_base_2": {"lse": right["lse"] / math.log(2.0)},
        # LSE without the row maximum
        "lse_without_max": {"lse": torch.log(row_sum)},
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
        heads = q.shape[2]
        # query head i reads key head i % h_kv instead of i // (h // h_kv)
        variants["kv_heads_interleaved"] = attention.online(
            attention.logits(q, attention.heads_interleaved(k, heads), case), attention.heads_interleaved(v, heads)
        )
    return variants
