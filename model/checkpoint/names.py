"""Names of tensors in checkpoints, all turned into those that DeepSeek publishes."""

from __future__ import annotations

import re

# transformers prefixes what it saves, keeps three of its own names and writes kv_norm under the wrong one
_PREFIX = "model."
_WHOLE = {
    "embed_tokens.weight": "embed.weight",
    "lm_head.weight": "head.weight",
    "hc_head.hc_fn": "hc_head_fn",
    "hc_head.hc_base": "hc_head_base",
    "hc_head.hc_scale": "hc_head_scale",
}
_PARTS = [(re.compile(r"\.attn\.norm\.weight$"), ".attn.kv_norm.weight")]
_SCALES = [(re.compile(r"\.weight_scale_inv$"), ".scale")]

PACKED_SCALE = ".scale"
"""Suffix of the scales of MXFP4 and FP8."""
NVFP4_SCALES = (".weight_scale", ".weight_scale_2", ".input_scale")
"""Suffixes of the scales of NVFP4: per 16 values, per tensor, and of the activations."""


def canonical(key: str) -> str:
    """The published name of a tensor that a file calls `key`; a name that nobody knows stays as it is."""
    name = key.removeprefix(_PREFIX)
    name = _WHOLE.get(name, name)
    for pattern, replacement in (*_PARTS, *_SCALES):
        name = pattern.sub(replacement, name)
    return name


def base(name: str) -> str:
    """The matrix that a scale belongs to, by name; other names are returned as they are."""
    for suffix in (PACKED_SCALE, *NVFP4_SCALES):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + ".weight"
    return name
