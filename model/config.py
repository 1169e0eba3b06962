"""The configuration of a DeepSeek-V4 model, read from `config.json` in any of the three ways in which it is written.

The published files use the names of transformers ("hidden_size") with `compress_ratios`; DeepSeek's own inference code
uses short names ("dim"); transformers saves layer types by name and rotary parameters by kind. All become one `Config`.
DeepSeek-V4.1 and the DSpark drafts share names with V4 but are other architectures: they are refused by name.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from model.errors import ConfigError

Kind = Literal["window", "csa", "hca"]
KINDS: dict[int, Kind] = {0: "window", 4: "csa", 128: "hca"}
"""Compression ratio to the kind of a layer's attention: window only, compressed sparse, heavily compressed."""
LAYER_TYPES = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
RELEASES = Path(__file__).parent / "configs"
"""flash.json and pro.json as published, tiny.json with every kind of layer."""

# DeepSeek's own names -> those of config.json
SHORT = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "rope_head_dim": "qk_rope_head_dim",
    "moe_inter_dim": "moe_intermediate_size",
    "n_activated_experts": "num_experts_per_tok",
    "n_hash_layers": "num_hash_layers",
    "score_func": "scoring_func",
    "route_scale": "routed_scaling_factor",
    "window_size": "sliding_window",
    "norm_eps": "rms_norm_eps",
    "n_mtp_layers": "num_nextn_predict_layers",
}
# What this implementation relies on; a file may leave it out.
FIXED: dict[str, Any] = {
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "num_key_value_heads": 1,
    "n_shared_experts": 1,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
DEFAULTS: dict[str, Any] = {
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 0,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "expert_dtype": "fp4",
    "max_position_embeddings": 1_048_576,
}


@dataclass(frozen=True)
class Config:
    """Sizes and constants of one model. Names are those of the published config.json, apart from:

    ratios        compression ratio of each layer: 0, 4 or 128
    mtp_ratios    the same for each block of multi-token prediction
    rope_factor, beta_fast, beta_slow, original_positions   YaRN, for layers with a ratio above 0 only
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    num_hash_layers: int
    routed_scaling_factor: float
    swiglu_limit: float
    ratios: tuple[int, ...]
    mtp_ratios: tuple[int, ...]
    sliding_window: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    rope_theta: float
    compress_rope_theta: float
    rope_factor: float
    beta_fast: float
    beta_slow: float
    original_positions: int
    max_position_embeddings: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float
    bos_token_id: int
    eos_token_id: int
    expert_dtype: str

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read a config.json, a folder that holds one, or a release by name: "flash", "pro" or "tiny".

        Raises ConfigError that lists every problem at once.
        """
        found = RELEASES / f"{path}.json" if str(path) in ("flash", "pro", "tiny") else Path(path)
        found = found / "config.json" if found.is_dir() else found
        try:
            raw = json.loads(found.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise ConfigError(f"{found}: {error}; wanted: a config.json, or flash, pro, tiny") from error
        if not isinstance(raw, dict):
            raise ConfigError(f"{found}: found {type(raw).__name__}; wanted: an object")
        try:
            return cls.from_dict(raw)
        except ConfigError as error:
            raise ConfigError(f"{found}: {error}") from error

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Config:
        """The configuration that `raw`, a parsed config.json, describes. Unknown fields are passed over."""
        _refuse_relatives(raw)
        named = {SHORT.get(k, k): v for k, v in raw.items()}
        wrong = [
            f"{k}={named[k]!r} is not supported; supported: {v!r}" for k, v in FIXED.items() if named.get(k, v) != v
        ]
        values = DEFAULTS | {k: v for k, v in named.items() if v is not None}
        values |= _rope(named) | _ratios(named, values)
        missing = [f.name for f in fields(cls) if f.name not in values]
        if missing:
            raise ConfigError("; ".join([*wrong, f"missing: {', '.join(missing)}"]))
        config = cls(**{f.name: values[f.name] for f in fields(cls)})
        wrong += config.problems()
        if wrong:
            raise ConfigError("; ".join(wrong))
        return config

    def problems(self) -> list[str]:
        """What contradicts itself or is outside of what the model code can run; empty if nothing."""
        bad = _wrong_types(self)
        if bad:
            return bad
        heads, groups, rope = self.num_attention_heads, self.o_groups, self.qk_rope_head_dim
        checks = [
            (
                len(self.ratios) == self.num_hidden_layers,
                f"{len(self.ratios)} ratios for {self.num_hidden_layers} layers",
            ),
            (set(self.ratios) <= set(KINDS), f"compress_ratios {sorted(set(self.ratios))}; supported: {sorted(KINDS)}"),
            (set(self.mtp_ratios) <= {0}, f"MTP compress_ratios {self.mtp_ratios}; supported: 0"),
            (len(self.mtp_ratios) <= 1, f"{len(self.mtp_ratios)} MTP blocks; supported: 0 or 1"),
            (groups and heads % groups == 0, f"num_attention_heads={heads} is not a multiple of o_groups={groups}"),
            (rope % 2 == 0 and rope <= min(self.head_dim, self.index_head_dim), f"qk_rope_head_dim={rope}"),
            (0 < self.num_experts_per_tok <= self.n_routed_experts, f"num_experts_per_tok={self.num_experts_per_tok}"),
            (
                self.expert_dtype in ("fp4", "fp8", "bf16"),
                f"expert_dtype={self.expert_dtype!r}; supported: fp4, fp8, bf16",
            ),
        ]
        return [text for right, text in checks if not right]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each layer's attention."""
        return tuple(KINDS[r] for r in self.ratios)

    @property
    def softmax_scale(self) -> float:
        """1/sqrt(head_dim)."""
        return 1.0 / math.sqrt(self.head_dim)

    @property
    def index_scale(self) -> float:
        """What the heads' weights of the indexer are multiplied by: index_head_dim^-1/2 index_n_heads^-1/2."""
        return self.index_head_dim**-0.5 * self.index_n_heads**-0.5

    def hashed(self, layer: int) -> bool:
        """Whether a layer routes by token id; blocks of multi-token prediction count on from the last layer."""
        return layer < self.num_hash_layers

    def with_ratios(self, *ratios: int) -> Config:
        """The same sizes with these layers and no multi-token prediction."""
        return replace(self, ratios=ratios, num_hidden_layers=len(ratios), mtp_ratios=())

    def to_dict(self) -> dict[str, Any]:
        """A config.json in the published names, which transformers and `from_dict` both read."""
        own = {"ratios", "mtp_ratios", "rope_factor", "beta_fast", "beta_slow", "original_positions"}
        return {
            "architectures": ["DeepseekV4ForCausalLM"],
            "model_type": "deepseek_v4",
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in own},
            **FIXED,
            "num_nextn_predict_layers": len(self.mtp_ratios),
            "compress_ratios": [*self.ratios, *self.mtp_ratios],
            "rope_scaling": {
                "type": "yarn",
                "rope_type": "yarn",
                "factor": self.rope_factor,
                "beta_fast": self.beta_fast,
                "beta_slow": self.beta_slow,
                "original_max_position_embeddings": self.original_positions,
            },
        }


def _refuse_relatives(raw: dict[str, Any]) -> None:
    """Refuse what looks like V4 but isn't."""
    model_type, architectures = raw.get("model_type", "deepseek_v4"), raw.get("architectures") or []
    supported = "supported: DeepSeek-V4 Flash and Pro with a depth-1 MTP block (model_type deepseek_v4)"
    names = [str(model_type), *map(str, architectures)]
    if any("v41" in n.lower() or "v4_1" in n.lower() or "v4.1" in n.lower() for n in names) or "engram" in " ".join(
        raw
    ):
        raise ConfigError(f"DeepSeek-V4.1 ({', '.join(names)}) is another architecture; {supported}")
    if model_type != "deepseek_v4":
        raise ConfigError(f"model_type={model_type!r}; {supported}")
    dspark = sorted(k for k in raw if k.startswith("dspark"))
    drafts = raw.get("num_nextn_predict_layers", raw.get("n_mtp_layers", 0)) or 0
    if dspark or drafts > 1:
        found = ", ".join(dspark) or f"{drafts} draft layers"
        raise ConfigError(f"a DSpark draft ({found}) is not the MTP block of V4; {supported}")
    if "vision_config" in raw:
        raise ConfigError(f"vision_config: a vision tower is not supported; {supported}")


def _ratios(named: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """`compress_ratios` (layers, then MTP blocks), or layer types by name as transformers saves them."""
    layers, drafts = values.get("num_hidden_layers", 0), values["num_nextn_predict_layers"]
    found = named.get("compress_ratios")
    if found is None and named.get("layer_types") is not None:
        rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        if (named.get("compress_rates") or rates) != rates:
            raise ConfigError(f"compress_rates={named['compress_rates']}; supported: {rates}")
        unknown = sorted(set(named["layer_types"]) - set(LAYER_TYPES))
        if unknown:
            raise ConfigError(f"layer_types {unknown}; supported: {sorted(LAYER_TYPES)}")
        found = [LAYER_TYPES[t] for t in named["layer_types"]] + [0] * drafts
    result: dict[str, Any] = {}
    if found is not None:
        if len(found) not in (layers, layers + drafts):
            raise ConfigError(
                f"compress_ratios has {len(found)} entries; wanted: {layers} layers + {drafts} MTP blocks"
            )
        result = {"ratios": tuple(found[:layers]), "mtp_ratios": (*found[layers:], *[0] * drafts)[:drafts]}
    types = named.get("mlp_layer_types")
    if "num_hash_layers" not in named and types is not None:
        hashed = sum(t == "hash_moe" for t in types)
        if types != ["hash_moe"] * hashed + ["moe"] * (len(types) - hashed):
            raise ConfigError(f"mlp_layer_types={types}; supported: hash_moe layers, then moe layers")
        result["num_hash_layers"] = hashed
    return result


def _rope(named: dict[str, Any]) -> dict[str, Any]:
    """YaRN's constants from `rope_scaling`, from the short names, or from transformers' `rope_parameters`."""
    saved = named.get("rope_parameters") or {}
    nested = isinstance(saved.get("compress"), dict)
    found = saved["compress"] if nested else (named.get("rope_scaling") or saved)
    kind = found.get("rope_type", found.get("type", "yarn"))
    if kind != "yarn":
        raise ConfigError(f"rope scaling {kind!r} is not supported; supported: 'yarn'")
    if found.get("attention_factor", 1.0) != 1.0:
        raise ConfigError(f"attention_factor={found['attention_factor']}; supported: 1.0")
    aliases = {
        "rope_factor": ("factor", "rope_factor"),
        "beta_fast": ("beta_fast", "beta_fast"),
        "beta_slow": ("beta_slow", "beta_slow"),
        "original_positions": ("original_max_position_embeddings", "original_seq_len"),
    }
    result = {own: found.get(long, named.get(short)) for own, (long, short) in aliases.items()}
    if nested:
        result["rope_theta"] = saved.get("main", {}).get("rope_theta", named.get("rope_theta"))
        result["compress_rope_theta"] = found.get("rope_theta", named.get("compress_rope_theta"))
    if "partial_rotary_factor" in named and "qk_rope_head_dim" not in named and "head_dim" in named:
        result["qk_rope_head_dim"] = int(named["head_dim"] * named["partial_rotary_factor"])
    return {k: v for k, v in result.items() if v is not None}


def _wrong_types(config: Config) -> list[str]:
    """Fields that aren't numbers, or are not positive where they must be."""
    wrong = []
    for f in fields(config):
        value = getattr(config, f.name)
        if f.type == "int":
            least = 0 if f.name.startswith("num_hash") or f.name.endswith("_id") else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                wrong.append(f"{f.name}={value!r}; allowed: an integer of at least {least}")
        elif f.type == "float":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value > 0):
                wrong.append(f"{f.name}={value!r}; allowed: a finite number above 0")
    return wrong
