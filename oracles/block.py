"""One transformer block over a whole sequence, from position 0 and without a cache: what a layer of the model is
judged by.

Tensors have DeepSeek's names without the layer's prefix ("attn.wq_a.weight", "ffn.experts.0.w1.weight", "hc_attn_fn",
...) and hold values, already dequantised. ``config`` is the content of config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oracles import attention, compressor, experts, indexer, mhc, router
from oracles.norm import rms_norm
from oracles.output import output_projection
from oracles.qkv import kv_projection, q_projection
from oracles.rope import Yarn, angles, frequencies

Tensors = Mapping[str, torch.Tensor]


def layer_frequencies(config: Mapping[str, Any], ratio: int, *, device: torch.device | None = None) -> torch.Tensor:
    """fp32 [r / 2] of everything in a layer: plain without a compressor (ratio 0, MTP too), YaRN over another base
    with one.
    """
    r = config["qk_rope_head_dim"]
    if ratio == 0:
        return frequencies(r, theta=config["rope_theta"], device=device)
    s = config["rope_scaling"]
    yarn = Yarn(s["factor"], s["beta_fast"], s["beta_slow"], s["original_max_position_embeddings"])
    return frequencies(r, theta=config["compress_rope_theta"], yarn=yarn, device=device)


def block(
    streams: torch.Tensor,
    ids: torch.Tensor,
    tensors: Tensors,
    config: Mapping[str, Any],
    ratio: int,
    *,
    hashed: bool = False,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Streams [T, n, d], token ids int64 [T] (hash layers route by them), ratio 0, 4 or 128 -> streams [T, n, d] of
    the compute dtype.
    """
    eps = config["rms_norm_eps"]
    options = {"iterations": config["hc_sinkhorn_iters"], "eps": config["hc_eps"], "norm_eps": eps, "dtype": dtype}
    for name in ("attn", "ffn"):
        x, c, m = mhc.pre(streams, *(tensors[f"hc_{name}_{part}"] for part in ("fn", "scale", "base")), **options)
        x = rms_norm(x, tensors[f"{name}_norm.weight"], eps=eps, dtype=dtype)
        if name == "attn":
            y = attend(x, tensors, config, ratio, dtype=dtype)
        else:
            y = mixture(x, ids, tensors, config, hashed=hashed, dtype=dtype)
        streams = mhc.post(y, streams, c, m, dtype=dtype)
    return streams


def attend(
    x: torch.Tensor, tensors: Tensors, config: Mapping[str, Any], ratio: int, *, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """The attention sublayer: normed x [T, d] -> [T, d]."""
    w = {
        name.removeprefix("attn.").removesuffix(".weight"): t for name, t in tensors.items() if name.startswith("attn.")
    }
    eps, heads = config["rms_norm_eps"], config["num_attention_heads"]
    freqs = layer_frequencies(config, ratio, device=x.device)
    positions = torch.arange(len(x), device=x.device)
    cos, sin = angles(positions, freqs, dtype=dtype)
    q, qr = q_projection(x, w["wq_a"], w["q_norm"], w["wq_b"], cos, sin, heads=heads, eps=eps, dtype=dtype)
    k = kv_projection(x, w["wkv"], w["kv_norm"], cos, sin, eps=eps, dtype=dtype)
    parts = [(k, attention.window_visible(positions, positions, config["sliding_window"]))]
    if ratio:
        entries = compressor.compress(x, _compressor(w, "compressor"), freqs, eps=eps, dtype=dtype)
        visible = attention.compressed_visible(positions, len(entries), ratio)
        if ratio == 4:
            chosen = select(x, qr, w, config, freqs, dtype=dtype)
            visible = attention.selected_visible(chosen, len(entries))
        parts.append((entries, visible))
    o, _ = attention.attention(q, parts, w["attn_sink"], scale=config["head_dim"] ** -0.5, dtype=dtype)
    return output_projection(o, cos, sin, w["wo_a"], w["wo_b"], groups=config["o_groups"], dtype=dtype)


def select(
    x: torch.Tensor,
    qr: torch.Tensor,
    w: Tensors,
    config: Mapping[str, Any],
    freqs: torch.Tensor,
    *,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The indexer of a CSA layer: x [T, d], qr [T, R], tensors without "attn." and ".weight" -> ids of entries [T,
    index_topk], -1 padded.
    """
    positions = torch.arange(len(x), device=x.device)
    cos, sin = angles(positions, freqs, dtype=dtype)
    q = indexer.queries(qr, w["indexer.wq_b"], cos, sin, heads=config["index_n_heads"], dtype=dtype)
    u = indexer.head_weights(x, w["indexer.weights_proj"], head_dim=config["index_head_dim"], dtype=dtype)
    weights = _compressor(w, "indexer.compressor")
    keys = compressor.compress(x, weights, freqs, eps=config["rms_norm_eps"], dtype=dtype)
    counts = indexer.visible_counts(positions, weights.ratio)
    return indexer.topk(indexer.scores(q, keys, u, dtype=dtype), counts, config["index_topk"])


def mixture(
    x: torch.Tensor,
    ids: torch.Tensor,
    tensors: Tensors,
    config: Mapping[str, Any],
    *,
    hashed: bool,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The MoE sublayer: normed x [T, d] -> routed + shared experts [T, d]."""
    limit = config["swiglu_limit"]
    weights, chosen = router.route(
        x,
        tensors["ffn.gate.weight"],
        k=config["num_experts_per_tok"],
        scale=config["routed_scaling_factor"],
        bias=None if hashed else tensors["ffn.gate.bias"],
        table=tensors["ffn.gate.tid2eid"] if hashed else None,
        ids=ids if hashed else None,
        dtype=dtype,
    )
    count = config["n_routed_experts"]
    stacked = (torch.stack([tensors[f"ffn.experts.{e}.{n}.weight"] for e in range(count)]) for n in ("w1", "w3", "w2"))
    single = (tensors[f"ffn.shared_experts.{n}.weight"] for n in ("w1", "w3", "w2"))
    return experts.routed(x, weights, chosen, *stacked, limit=limit, dtype=dtype) + experts.shared(
        x, *single, limit=limit, dtype=dtype
    )


def _compressor(w: Tensors, name: str) -> compressor.Weights:
    return compressor.Weights(*(w[f"{name}.{part}"] for part in ("wkv", "wgate", "ape", "norm")))
