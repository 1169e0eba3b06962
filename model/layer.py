"""One layer: attention over window and compressed entries, then experts, each between mixes of the residual streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from model.cache import LayerCache
from model.config import Config
from model.ops import Ops
from model.plan import Plan
from model.weights import Attention, Block
from oracles.compressor import Weights as CompressorWeights

Tap = Callable[[str, torch.Tensor], None]
"""Called with the name and value of intermediate results; must not change them."""
Angles = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Step:
    """What all layers of a step share. `angles` and `freqs` by whether the layer compresses: cos, sin [N, 32]; f32
    [32]."""

    plan: Plan
    ids: torch.Tensor
    angles: dict[bool, Angles]
    freqs: dict[bool, torch.Tensor]
    ops: Ops
    config: Config
    tap: Tap | None = None

    def show(self, name: str, value: torch.Tensor) -> None:
        """Hand an intermediate result to the tap, if there is one."""
        if self.tap is not None:
            self.tap(name, value)


def block(streams: torch.Tensor, w: Block, cache: LayerCache, ratio: int, name: str, step: Step) -> torch.Tensor:
    """Streams [N, n, d] through one layer; writes its caches."""
    ops, config = step.ops, step.config
    x, c, m = ops.mhc_pre(streams, w.hc_attn, w.attn_norm, config)
    y = attend(x, w.attention, cache, ratio, name, step)
    streams = ops.mhc_post(y, streams, c, m)
    x, c, m = ops.mhc_pre(streams, w.hc_ffn, w.ffn_norm, config)
    weights, experts = ops.route(x, w.moe, step.ids, config)
    step.show(f"{name}.experts", experts)
    y = ops.routed_experts(x, weights, experts, w.moe, config) + ops.shared_expert(x, w.moe, config)
    streams = ops.mhc_post(y, streams, c, m)
    step.show(name, streams)
    return streams


def attend(x: torch.Tensor, w: Attention, cache: LayerCache, ratio: int, name: str, step: Step) -> torch.Tensor:
    """Attention of the normed hidden states x [N, d] -> [N, d].

    Order matters: entries that this step completes are visible to it, so they are written first; the ring of the window
    still holds the positions before the step when it is read, and is written last."""
    ops, config, plan = step.ops, step.config, step.plan
    angles = step.angles[ratio > 0]
    q, low, k = ops.qkv_projection(x, w, angles, config)
    k = cache.window.rounded(k)
    if w.compressor is not None:
        _compress(x, w, w.compressor, cache, ratio, step)
    if w.indexer is not None and cache.index is not None and any(g.selects for g in plan.groups):
        index = ops.index_queries(low, x, w.indexer, angles, cache.index.form, config)
    else:
        index = None
    out = []
    for group in plan.groups:
        ids = None
        if index is not None and group.selects and cache.index is not None:
            scores = ops.index_scores(index[0][group.rows], index[1][group.rows], cache.index, group)
            ids = ops.index_topk(scores, (group.positions + 1) // ratio, config)
            step.show(f"{name}.topk", ids)
        out.append(
            ops.attention(q[group.rows], k[group.rows], group, cache.window, cache.entries, ratio, ids, w.sink, config)
        )
    kept = k if plan.window.keep is None else k.index_select(0, plan.window.keep)
    ops.append(cache.window, plan.window.rows, kept)
    o = out[0] if len(out) == 1 else torch.cat(out)
    return ops.output_projection(o, w, angles, config)


def _compress(
    x: torch.Tensor, w: Attention, main: CompressorWeights, cache: LayerCache, ratio: int, step: Step
) -> None:
    """Write the entries that this step completes, then keep what the open window needs.

    With a "hidden" carry a step that completes nothing runs no projection at all.
    """
    ops, plan = step.ops, step.plan
    keep, emission = plan.carry[ratio], plan.emissions.get(ratio)
    projected = cache.index_carry is not None or (cache.carry is not None and cache.carry.width != x.shape[-1])
    streams = [(main, cache.carry, cache.entries)]
    if w.indexer is not None:
        streams.append((w.indexer.compressor, cache.index_carry or cache.carry, cache.index))
    for weights, carry, pool in streams:
        if carry is None or pool is None:
            raise ValueError(f"a layer of ratio {ratio} without a compressed cache")
        source = ops.compressor_project(x, weights, plan.positions) if projected else x
        if emission is not None:
            rows = torch.cat((carry.read(emission.tail, source.dtype), source.index_select(0, emission.fresh)))
            entries = ops.compress(rows, projected, emission, weights, step.freqs[True], step.config)
            if weights is not main:
                entries = ops.index_key(entries, pool.form)
            ops.append(pool, emission.rows, entries)
        if projected:
            kept = source if keep.keep is None else source.index_select(0, keep.keep)
            ops.append(carry, keep.rows, kept)
    if not projected and cache.carry is not None:
        ops.append(cache.carry, keep.rows, x if keep.keep is None else x.index_select(0, keep.keep))
