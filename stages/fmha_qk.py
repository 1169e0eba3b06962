"""The scores S = scale Q K^T go through tensor memory and come back, each in its place.

    s[b, h, i, j] = scale sum_d q[b, i, h, d] k[b, j, h // (h_q / h_kv), d],  -inf where causal hides key j from row i

Output: s (b, h, s_q, s_kv) f32. The kernel is the attention kernel that stops after its first product (softmax="none").
Not proven here: anything behind the scores.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.fmha
from stages.shared import attention
from stages.shared.attention import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q and k of the case."""
    x = attention.inputs(case, rng)
    return {"q": x["q"], "k": x["k"]}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel with softmax="none"."""
    return {"s": attention.launch(x, case, backend, "none", mutant).s}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """One matrix product in fp64; there is nothing to round on the way, so both kinds are the same."""
    return {"s": oracles.fmha.logits(x["q"], x["k"], **attention.settings(case))}


def plain(x: Tensors, case: Any) -> Tensors:
    """One matrix product in the input dtype."""
    return {"s": attention.plain_logits(x, case).float()}


def names(case: Any) -> dict[str, Any]:
    """Tensor memory, warps and barriers by name, for views."""
    return attention.names(case, "none")


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Scores with one known mistake each."""
    q, k = x["q"], x["k"]
    s = attention.logits(q, k, case)
    lanes = (torch.arange(q.shape[1]) + 32) % q.shape[1]
    columns = torch.arange(k.shape[1])
    variants = {
        # every K load reads tile 0: look at the tma_partition slice that is indexed by the tile (key_tiles)
        "kv_tile_0_reused": attention.logits(q, attention.tile_0_reused(k), case),
        # scores are q.k without the scale: look at scale_scores()
        "no_softmax_scale": attention.logits(q, k, case, scale=1.0),
        # a warp reads the lanes of its neighbour: warp w reaches lanes 32 (w % 4) and no others
        "lane_quarter_shifted": s[:, :, lanes],
        # neighbouring columns are exchanged: a tcgen05.ld of another shape than the fragment that it is copied through
        "columns_exchanged": s[..., torch.minimum(columns ^ 1, columns[-1:])],
    }
    if case.q > attention.TILE:
        # every CTA loads query tile 0: look at load()
        variants["q_tile_0_reused"] = attention.logits(attention.tile_0_reused(q), k, case)
    if case.get("causal", False):
        # no causal mask at all
        variants["causal_ignored"] = attention.logits(q, k, case, causal=False)
    if 1 < k.shape[2] < q.shape[2]:
        # query head i reads key head i % h_kv instead of i // (h // h_kv)
        variants["kv_heads_interleaved"] = attention.logits(q, attention.heads_interleaved(k, q.shape[2]), case)
    return {name: {"s": s} for name, s in variants.items()}
