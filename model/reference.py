"""Every operation of the model on PyTorch oracles, in f32: what runs where no kernel is proven.

Signatures are those that a kernel in its place must have (`model.ops`). Results have the dtype of the activations that
come in; where those are bf16, what a chain of kernels would store between launches is rounded as it would be. `stored`
says how inputs of linears lie in memory: as they are, as FP8 (E4M3 in blocks of 128, powers of two) or as NVFP4."""

from __future__ import annotations

from typing import Literal

import torch

from model.cache import Rows
from model.config import Config
from model.plan import Emission, Group
from model.weights import Attention as AttentionWeights
from model.weights import HyperConnection, Indexer, Moe, Mtp, Quantised, Weight, dense
from oracles import attention as core
from oracles import compressor, embedding, experts, indexer, mhc, norm, rope, router
from oracles import linear as products
from oracles.compressor import Weights as CompressorWeights
from oracles.formats import fp8, hadamard, index_entry, nvfp4
from oracles.precision import Kind

F32 = torch.float32
KIND: Kind = "simulated"
TILE = 64
"""Queries that are attended to at once in a long chunk: a window of 128 keys for each, 127 + TILE for all of them."""
Angles = tuple[torch.Tensor, torch.Tensor]
Stored = Literal["plain", "fp8", "nvfp4"]
GLOBAL_SCALE = 2.0**-4
"""Of activations stored as NVFP4: block maxima from 0.006 to 168 are within the range of their scales."""


def embed(ids: torch.Tensor, weight: torch.Tensor, config: Config, dtype: torch.dtype) -> torch.Tensor:
    """Residual streams [N, n, d] of token ids [N]: the same embedding in each (do not write into it)."""
    return embedding.streams(ids, weight, n=config.hc_mult, dtype=dtype)


def mhc_pre(
    streams: torch.Tensor, hc: HyperConnection, weight: torch.Tensor, config: Config, *, stored: Stored = "plain"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input of a sublayer x [N, d], normed with its weight and stored, and the weights of `mhc_post`: C [N, n],
    M [N, n, n] in f32."""
    x, c, m = mhc.pre(
        streams,
        hc.fn,
        hc.scale,
        hc.base,
        iterations=config.hc_sinkhorn_iters,
        eps=config.hc_eps,
        norm_eps=config.rms_norm_eps,
        dtype=F32,
    )
    return normed(x, weight, config, streams.dtype, stored), c, m


def mhc_post(y: torch.Tensor, streams: torch.Tensor, c: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Streams [N, n, d] after a sublayer gave y [N, d]."""
    return mhc.post(y, streams, c, m, dtype=F32, kind=KIND).to(streams.dtype)


def normed(
    x: torch.Tensor, weight: torch.Tensor, config: Config, dtype: torch.dtype, stored: Stored = "plain"
) -> torch.Tensor:
    """RMSNorm over the last dimension, stored."""
    return kept(norm.rms_norm(x, weight, eps=config.rms_norm_eps, dtype=F32), dtype, stored)


def kept(x: torch.Tensor, dtype: torch.dtype, stored: Stored) -> torch.Tensor:
    """Values x [..., K] in f32 as they read back from where the next launch finds them, in dtype."""
    if stored == "fp8":
        x = fp8.rounded_1x128(x)
    elif stored == "nvfp4":
        x = nvfp4.rounded(x, torch.full((), GLOBAL_SCALE, device=x.device))
    return x.to(dtype)


def qkv_projection(
    x: torch.Tensor, w: AttentionWeights, angles: Angles, config: Config, *, stored: Stored = "plain"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries [N, H, c], normed per head and rotated; the latent [N, q_lora] that the indexer reads, stored; the vector
    [N, c] that is key and value of all heads, normed and rotated."""
    cos, sin = angles
    low = normed(linear(x, w.wq_a), w.q_norm, config, x.dtype, stored)
    wide = linear(low, w.wq_b).unflatten(-1, (config.num_attention_heads, -1))
    q = rope.rotate(
        norm.rms_norm(wide, eps=config.rms_norm_eps, dtype=F32), cos[..., None, :], sin[..., None, :], dtype=F32
    )
    k = norm.rms_norm(linear(x, w.wkv), w.kv_norm, eps=config.rms_norm_eps, dtype=F32)
    return q.to(x.dtype), low, rope.rotate(k, cos, sin, dtype=F32).to(x.dtype)


def linear(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """x weight^T in the dtype of x, of products and sums in f32."""
    return products.linear(x, dense(weight), dtype=F32).to(x.dtype)


def append(pool: Rows, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Write values [n, width] to rows [n] of a pool of pages."""
    pool.append(rows, values)


def compressor_project(x: torch.Tensor, w: CompressorWeights, positions: torch.Tensor) -> torch.Tensor:
    """What a "projected" carry keeps of tokens x [n, d]: values and gates side by side, f32 [n, 2 N]."""
    return torch.cat(compressor.project(x, w, positions, dtype=F32), dim=-1)


def compress(
    rows: torch.Tensor, projected: bool, emission: Emission, w: CompressorWeights, freqs: torch.Tensor, config: Config
) -> torch.Tensor:
    """Entries [W, D] of the windows of `emission`, from its R + C rows: hidden states [R+C, d], or projected ones [R+C,
    2 N]."""
    kv, gate = rows.chunk(2, dim=-1) if projected else compressor.project(rows, w, emission.positions, dtype=F32)
    empty = (emission.slots < 0)[..., None]
    at = emission.slots.clamp(min=0)
    kv, gate = compressor.windows(kv[at], gate[at].masked_fill(empty, -torch.inf), overlap=w.overlap)
    entries = compressor.finish(
        compressor.pool(kv, gate),
        w.norm,
        emission.first,
        freqs,
        eps=config.rms_norm_eps,
        dtype=F32,
        kind=KIND,
        storage=F32 if projected else rows.dtype,
    )
    return entries


def index_queries(
    low: torch.Tensor, x: torch.Tensor, w: Indexer, angles: Angles, form: str, config: Config
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries [N, h, 128] and head weights [N, h] of the indexer, in f32; rotated and rounded as the keys of `form`
    are."""
    rotated = form in ("fp8", "fp4")
    q = indexer.queries(low, dense(w.wq_b), *angles, heads=config.index_n_heads, rotated=rotated, dtype=F32, kind=KIND)
    if rotated:
        q = index_entry.rounded_fp4(q) if form == "fp4" else index_entry.rounded_fp8(q)
    u = indexer.head_weights(x, dense(w.weights_proj), head_dim=config.index_head_dim, dtype=F32, kind=KIND)
    return q, u


def index_key(entries: torch.Tensor, form: str) -> torch.Tensor:
    """Entries [W, 128] of the index compressor as keys: rotated like the queries where the cache quantises them."""
    return hadamard.transform(entries, dtype=F32) if form in ("fp8", "fp4") else entries


def index_scores(q: torch.Tensor, u: torch.Tensor, pool: Rows, group: Group) -> torch.Tensor:
    """Scores [B, T, E] of every entry in the blocks of the group's sequences; those not yet visible mean nothing."""
    keys = pool.read(entry_rows(pool, group), F32)
    shape = (group.batch, group.tokens)
    return indexer.scores(q.unflatten(0, shape), keys, u.unflatten(0, shape), dtype=F32, kind=KIND)


def index_topk(scores: torch.Tensor, counts: torch.Tensor, config: Config) -> torch.Tensor:
    """The index_topk best of the first `counts` [B, T] entries: ids [B, T, k], -1 where there are fewer; ties to the
    lower id."""
    return indexer.topk(scores, counts, min(config.index_topk, max(scores.shape[-1], 1)))


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    group: Group,
    window: Rows,
    entries: Rows | None,
    ratio: int,
    ids: torch.Tensor | None,
    sink: torch.Tensor,
    config: Config,
) -> torch.Tensor:
    """Attention of the group's queries q [B T, H, c] over window and compressed entries in one softmax with a sink ->
    [B T, H, c].

    k [B T, c] are the new keys (as the cache holds them); those before the step are read from `window`, which the step
    has not written yet; `entries` has been. `ids` [B, T, k] are the entries that the indexer chose, None for all that
    are visible."""
    b, t, reach = group.batch, group.tokens, config.sliding_window - 1
    q = q.unflatten(0, (b, t))
    keys = torch.cat((window.read(group.prior, k.dtype), k.unflatten(0, (b, t))), dim=1)
    rows = None if entries is None or group.blocks.shape[1] == 0 else entry_rows(entries, group)
    shared = None
    if entries is not None and rows is not None and (ids is None or (t > 1 and rows.shape[1] <= 4 * ids.shape[-1])):
        shared = entries.read(rows, k.dtype)
    out = []
    for low in range(0, t, TILE):
        tile = slice(low, min(low + TILE, t))
        near = slice(tile.start, tile.stop + reach)
        positions = group.positions[:, tile]
        visible = core.window_visible(positions, group.key_positions[:, near], config.sliding_window)
        parts = [(keys[:, near], visible)]
        if entries is not None and rows is not None:
            parts.append(
                _compressed(entries, rows, shared, positions, ratio, None if ids is None else ids[:, tile], k.dtype)
            )
        out.append(core.attention(q[:, tile], parts, sink, scale=config.softmax_scale, dtype=F32, kind=KIND)[0])
    return torch.cat(out, dim=1).flatten(0, 1).to(q.dtype)


def _compressed(
    entries: Rows,
    rows: torch.Tensor,
    shared: torch.Tensor | None,
    positions: torch.Tensor,
    ratio: int,
    ids: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compressed keys and who sees them: all of them for all queries, or those that each query chose."""
    if ids is None and shared is not None:
        return shared, core.compressed_visible(positions, rows.shape[1], ratio)
    if ids is None:
        raise ValueError("attention: neither shared entries nor ids")
    if shared is not None:
        return shared, core.selected_visible(ids, rows.shape[1])
    chosen = rows.gather(1, ids.clamp(min=0).flatten(1)).unflatten(1, ids.shape[1:])
    return entries.read(chosen, dtype), ids >= 0


def entry_rows(pool: Rows, group: Group) -> torch.Tensor:
    """Rows [B, E] of all entries in the blocks of each sequence, in order of position."""
    place = torch.arange(pool.per_page, device=group.blocks.device)
    return (group.blocks[:, :, None] * pool.per_page + place).flatten(1)


def output_projection(
    o: torch.Tensor, w: AttentionWeights, angles: Angles, config: Config, *, stored: Stored = "plain"
) -> torch.Tensor:
    """Rotate o [N, H, c] back and project it to [N, d], by groups of heads and then all; both inputs stored. May write
    to o."""
    cos, sin = (a[..., None, :] for a in angles)
    back = kept(rope.rotate(o, cos, sin, inverse=True, dtype=F32, kind=KIND).flatten(1), o.dtype, stored)
    z = products.grouped_linear(back.unflatten(1, (config.o_groups, -1)), dense(w.wo_a), dtype=F32).to(o.dtype)
    return linear(kept(z.flatten(1).to(F32), o.dtype, stored), w.wo_b)


def route(x: torch.Tensor, w: Moe, ids: torch.Tensor, config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [N, k] (f32) and experts [N, k] of tokens x [N, d] with ids [N]."""
    return router.route(
        x,
        dense(w.gate),
        k=config.num_experts_per_tok,
        scale=config.routed_scaling_factor,
        bias=w.bias,
        table=w.table,
        ids=None if w.table is None else ids,
        dtype=F32,
    )


def routed_experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    w: Moe,
    config: Config,
) -> torch.Tensor:
    """Sum over the chosen experts [N, d]. Quantised experts are dequantised as they are used: those chosen if the
    tokens are few, else some at a time."""
    stacks, limit = (w.w1, w.w3, w.w2), config.swiglu_limit
    plain = [s for s in stacks if isinstance(s, torch.Tensor)]
    if len(plain) == len(stacks):
        return experts.routed(x, weights, chosen, *plain, limit=limit, dtype=F32, kind=KIND).to(x.dtype)
    if chosen.numel() <= config.n_routed_experts:
        picked = [_pick(s, chosen) for s in stacks]
        return experts.gathered(x, weights, *picked, limit=limit, dtype=F32, kind=KIND).to(x.dtype)
    total = torch.zeros(x.shape, dtype=F32, device=x.device)
    for low in range(0, config.n_routed_experts, experts.BLOCK):
        block = slice(low, min(low + experts.BLOCK, config.n_routed_experts))
        mine = (chosen >= block.start) & (chosen < block.stop)
        local, share = torch.where(mine, chosen - block.start, -1), torch.where(mine, weights, 0.0)
        some = [_pick(s, block) for s in stacks]
        total = total + experts.routed(x, share, local, *some, limit=limit, dtype=F32, kind=KIND)
    return total.to(x.dtype)


def _pick(stack: Weight, index: torch.Tensor | slice) -> torch.Tensor:
    """Some experts of a stack as f32 values."""
    return stack[index].dense(F32) if isinstance(stack, Quantised) else stack[index].to(F32)


def shared_expert(x: torch.Tensor, w: Moe, config: Config, *, stored: Stored = "plain") -> torch.Tensor:
    """The expert that sees every token, [N, d]; what is between its linears is stored."""
    h = experts.swiglu(linear(x, w.shared_w1), linear(x, w.shared_w3), limit=config.swiglu_limit, dtype=F32)
    return linear(kept(h, x.dtype, stored), w.shared_w2)


def hc_head(streams: torch.Tensor, hc: HyperConnection, config: Config) -> torch.Tensor:
    """The streams [N, n, d] mixed down to [N, d]."""
    return mhc.head(
        streams, hc.fn, hc.scale, hc.base, eps=config.hc_eps, norm_eps=config.rms_norm_eps, dtype=F32, kind=KIND
    ).to(streams.dtype)


def logits(
    x: torch.Tensor, weight: torch.Tensor, vocabulary: Weight, config: Config, *, stored: Stored = "plain"
) -> torch.Tensor:
    """Final norm, stored, and output head: f32 [N, V]."""
    return products.linear(normed(x, weight, config, x.dtype, stored), dense(vocabulary), dtype=F32)


def mtp_combine(
    streams: torch.Tensor, embedded: torch.Tensor, w: Mtp, config: Config, *, stored: Stored = "plain"
) -> torch.Tensor:
    """Input of the draft block [N, n, d]: streams of position i, embedding [N, d] of token i + 1; both normed, stored,
    projected and added."""
    e = linear(normed(embedded, w.enorm, config, streams.dtype, stored), w.e_proj)
    return e[:, None] + linear(normed(streams, w.hnorm, config, streams.dtype, stored), w.h_proj)
