"""The whole model over one sequence, without a cache: the judge of prefill, decode and drafts.

Tensors have DeepSeek's names ("embed.weight", "layers.0.attn.wq_a.weight", "mtp.0.enorm.weight", ...) and hold values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oracles import embedding, head, mhc, mtp
from oracles.block import Tensors, block


def hidden(
    ids: torch.Tensor, tensors: Tensors, config: Mapping[str, Any], *, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Streams [T, n, d] before the first layer and after each one, for token ids int64 [T]."""
    states = [embedding.streams(ids, tensors["embed.weight"], n=config["hc_mult"], dtype=dtype)]
    for i in range(config["num_hidden_layers"]):
        layer, ratio = _below(tensors, f"layers.{i}."), config["compress_ratios"][i]
        states.append(block(states[-1], ids, layer, config, ratio, hashed=i < config["num_hash_layers"], dtype=dtype))
    return states


def forward(
    ids: torch.Tensor, tensors: Tensors, config: Mapping[str, Any], *, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Logits [T, V] after each of the tokens int64 [T]."""
    return _logits(hidden(ids, tensors, config, dtype=dtype)[-1], tensors, tensors, config, dtype)


def draft(
    streams: torch.Tensor,
    following: torch.Tensor,
    tensors: Tensors,
    config: Mapping[str, Any],
    *,
    depth: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [T, V] of the token after next, and the draft block's streams [T, n, d].

    streams [T, n, d] of positions 0 .. T - 1 after the last layer, following int64 [T]: the tokens at 1 .. T. The
    block attends over positions 0 .. T - 1 with their own rope.
    """
    own = _below(tensors, f"mtp.{depth}.")
    embedded = torch.nn.functional.embedding(following, tensors["embed.weight"])
    names = ("enorm", "hnorm", "e_proj", "h_proj")
    weights = (own[f"{name}.weight"] for name in names)
    x = mtp.combine(streams, embedded, *weights, eps=config["rms_norm_eps"], dtype=dtype)
    ratio = config["compress_ratios"][config["num_hidden_layers"] + depth]
    out = block(x, following, own, config, ratio, dtype=dtype)
    return _logits(out, own, tensors, config, dtype), out


def _logits(
    streams: torch.Tensor, own: Tensors, tensors: Tensors, config: Mapping[str, Any], dtype: torch.dtype
) -> torch.Tensor:
    eps = config["rms_norm_eps"]
    mix = (own[f"hc_head_{part}"] for part in ("fn", "scale", "base"))
    x = mhc.head(streams, *mix, eps=config["hc_eps"], norm_eps=eps, dtype=dtype)
    return head.logits(x, own["norm.weight"], tensors["head.weight"], eps=eps, dtype=dtype)


def _below(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
