"""Two products in one pipeline: O = P V, where P is S rounded to 16 bits and put back over S in tensor memory.

    out = p v,   p = scale q k^T rounded to the input dtype, 0 where hidden

Output: out, shown as (b, h, s_q, d), in the input dtype. The kernel is the attention kernel without row maxima and sums
(softmax="identity").
Not proven here: exponentials, rescaling, LSE.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.fmha
from stages.shared import attention
from stages.shared.attention import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q, k and v of the case."""
    return attention.inputs(case, rng)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel with softmax="identity"."""
    return {"out": attention.rows_of_heads(attention.launch(x, case, backend, "identity", mutant).out)}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Two matrix products in fp64."""
    return {
        "out": attention.rows_of_heads(oracles.fmha.identity(*attention.qkv(x), **attention.settings(case), kind=kind))
    }


def plain(x: Tensors, case: Any) -> Tensors:
    """Two matrix products in the input dtype."""
    s = attention.plain_logits(x, case)
    return {"out": attention.plain_product(s.masked_fill(s == -torch.inf, 0.0), x)}


def names(case: Any) -> dict[str, Any]:
    """Tensor memory, warps and barriers by name, for views."""
    return attention.names(case, "identity")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The two products with one known mistake each."""
    q, k, v = attention.qkv(x)
    settings = attention.settings(case)

    def product(k: torch.Tensor, v: torch.Tensor, **changed: Any) -> torch.Tensor:
        return oracles.fmha.identity(q, k, v, **(settings | changed))

    last = (k.shape[1] - 1) // attention.TILE * attention.TILE
    only_last = torch.where((torch.arange(k.shape[1]) >= last)[:, None, None], v, 0.0)
    pairs = torch.minimum(torch.arange(k.shape[1]) ^ 1, torch.tensor(k.shape[1] - 1))
    variants = {
        # every K and V load reads tile 0: look at the tma_partition slice indexed by the tile (key_tiles, value_tiles)
        "kv_tile_0_reused": product(attention.tile_0_reused(k), attention.tile_0_reused(v)),
        # O holds the last tile alone: PV does not accumulate after the first tile, look at pv_accumulates()
        "last_kv_tile_only": product(k, only_last),
        # the two halves of a P word are exchanged: the lower key belongs in the lower half
        "p_halves_exchanged": product(k, v[:, pairs]),
        # P is q.k without the scale: look at scale_scores()
        "no_softmax_scale": product(k, v, scale=1.0),
    }
    if k is not v:
        # PV multiplies K: look at value_operand()
        variants["k_read_for_v"] = product(k, k)
    if case.get("causal", False):
        # no causal mask at all
        variants["causal_ignored"] = product(k, v, causal=False)
    if 1 < k.shape[2] < q.shape[2]:
        heads = q.shape[2]
        # query head i reads key head i % h_kv instead of i // (h // h_kv)
        variants["kv_heads_interleaved"] = product(
            attention.heads_interleaved(k, heads), attention.heads_interleaved(v, heads)
        )
    return {name: {"out": attention.rows_of_heads(out)} for name, out in variants.items()}
