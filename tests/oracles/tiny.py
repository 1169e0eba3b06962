"""A small DeepSeek-V4 with every kind of layer: tensors under DeepSeek's names, and the same in transformers."""

from __future__ import annotations

from typing import Any

import torch

CONFIG: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 128,
    "o_groups": 2,
    "o_lora_rank": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "num_hash_layers": 2,
    "compress_ratios": [0, 128, 4, 128, 4, 0],
    "compress_rope_theta": 160000,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 65536,
    },
    "max_position_embeddings": 1048576,
    "sliding_window": 128,
    "index_n_heads": 8,
    "index_head_dim": 128,
    "index_topk": 16,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "hc_attn_": "attn_hc.",
    "hc_ffn_": "ffn_hc.",
    "attn.attn_sink": "self_attn.sinks",
    "attn.wq_a": "self_attn.q_a_proj",
    "attn.q_norm": "self_attn.q_a_norm",
    "attn.wq_b": "self_attn.q_b_proj",
    "attn.wkv": "self_attn.kv_proj",
    "attn.kv_norm": "self_attn.kv_norm",
    "attn.wo_a": "self_attn.o_a_proj",
    "attn.wo_b": "self_attn.o_b_proj",
    "attn.indexer.wq_b": "self_attn.compressor.indexer.q_b_proj",
    "attn.indexer.weights_proj": "self_attn.compressor.indexer.scorer.weights_proj",
    "attn.indexer.compressor.": "self_attn.compressor.indexer.",
    "attn.compressor.": "self_attn.compressor.",
    "ffn.gate.bias": "mlp.gate.e_score_correction_bias",
    "ffn.gate.": "mlp.gate.",
    "ffn.shared_experts.w1": "mlp.shared_experts.gate_proj",
    "ffn.shared_experts.w3": "mlp.shared_experts.up_proj",
    "ffn.shared_experts.w2": "mlp.shared_experts.down_proj",
}
IN_COMPRESSOR = {"wkv.": "kv_proj.", "wgate.": "gate_proj.", "ape": "position_bias", "norm.": "kv_norm."}


def _matrix(rng: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=rng) * shape[-1] ** -0.5


def _norm(rng: torch.Generator, n: int) -> torch.Tensor:
    return 1.0 + 0.2 * torch.randn(n, generator=rng)


def _vector(rng: torch.Generator, *shape: int) -> torch.Tensor:
    return 0.5 * torch.randn(shape, generator=rng)


def _mixers(rng: torch.Generator, config: dict[str, Any], name: str, rows: int, scales: int) -> dict[str, torch.Tensor]:
    width = config["hc_mult"] * config["hidden_size"]
    return {
        f"hc_{name}_fn": _matrix(rng, rows, width),
        f"hc_{name}_base": _vector(rng, rows),
        f"hc_{name}_scale": _vector(rng, scales),
    }


def _compressor(rng: torch.Generator, prefix: str, ratio: int, dim: int, hidden: int) -> dict[str, torch.Tensor]:
    wide = 2 * dim if ratio == 4 else dim
    return {
        f"{prefix}.wkv.weight": _matrix(rng, wide, hidden),
        f"{prefix}.wgate.weight": _matrix(rng, wide, hidden),
        f"{prefix}.ape": _vector(rng, ratio, wide),
        f"{prefix}.norm.weight": _norm(rng, dim),
    }


def layer(rng: torch.Generator, config: dict[str, Any], ratio: int, hashed: bool) -> dict[str, torch.Tensor]:
    """Random tensors of one block, without its prefix: none of them is at its initial value."""
    d, heads, c = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    low, groups, rank = config["q_lora_rank"], config["o_groups"], config["o_lora_rank"]
    count, width = config["n_routed_experts"], config["moe_intermediate_size"]
    t = {
        "attn_norm.weight": _norm(rng, d),
        "ffn_norm.weight": _norm(rng, d),
        "attn.attn_sink": _vector(rng, heads),
        "attn.wq_a.weight": _matrix(rng, low, d),
        "attn.q_norm.weight": _norm(rng, low),
        "attn.wq_b.weight": _matrix(rng, heads * c, low),
        "attn.wkv.weight": _matrix(rng, c, d),
        "attn.kv_norm.weight": _norm(rng, c),
        "attn.wo_a.weight": _matrix(rng, groups * rank, heads * c // groups),
        "attn.wo_b.weight": _matrix(rng, d, groups * rank),
        "ffn.gate.weight": _matrix(rng, count, d),
    }
    for name in ("attn", "ffn"):
        t |= _mixers(rng, config, name, config["hc_mult"] * (2 + config["hc_mult"]), 3)
    if ratio:
        t |= _compressor(rng, "attn.compressor", ratio, c, d)
    if ratio == 4:
        index_heads, index_dim = config["index_n_heads"], config["index_head_dim"]
        t |= _compressor(rng, "attn.indexer.compressor", ratio, index_dim, d)
        t["attn.indexer.wq_b.weight"] = _matrix(rng, index_heads * index_dim, low)
        t["attn.indexer.weights_proj.weight"] = _matrix(rng, index_heads, d)
    if hashed:
        order = torch.rand(config["vocab_size"], count, generator=rng).argsort(dim=-1)
        t["ffn.gate.tid2eid"] = order[:, : config["num_experts_per_tok"]].contiguous()
    else:
        t["ffn.gate.bias"] = _vector(rng, count)
    for expert in (*(f"experts.{e}" for e in range(count)), "shared_experts"):
        for name, shape in (("w1", (width, d)), ("w3", (width, d)), ("w2", (d, width))):
            t[f"ffn.{expert}.{name}.weight"] = _matrix(rng, *shape)
    return t


def tensors(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random fp32 tensors of the model and of its MTP block."""
    rng = torch.Generator().manual_seed(seed)
    d, layers = config["hidden_size"], config["num_hidden_layers"]
    t = {
        "embed.weight": torch.randn(config["vocab_size"], d, generator=rng),
        "head.weight": _matrix(rng, config["vocab_size"], d),
        "norm.weight": _norm(rng, d),
    }
    t |= _mixers(rng, config, "head", config["hc_mult"], 1)
    for i in range(layers):
        hashed = i < config["num_hash_layers"]
        below = layer(rng, config, config["compress_ratios"][i], hashed)
        t |= {f"layers.{i}.{name}": value for name, value in below.items()}
    own = layer(rng, config, 0, False) | _mixers(rng, config, "head", config["hc_mult"], 1)
    own |= {f"{name}.weight": _norm(rng, d) for name in ("enorm", "hnorm", "norm")}
    own |= {f"{name}.weight": _matrix(rng, d, d) for name in ("e_proj", "h_proj")}
    return t | {f"mtp.0.{name}": value for name, value in own.items()}


def _translated(name: str) -> str:
    for ours, theirs in NAMES.items():
        if name.startswith(ours):
            rest = name.removeprefix(ours)
            if ours.endswith("compressor."):
                for part, other in IN_COMPRESSOR.items():
                    rest = other + rest.removeprefix(part) if rest.startswith(part) else rest
            return theirs + rest
    return name


def transformers_state(t: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors under the names of transformers' module; its experts are stacked."""
    state = {"lm_head.weight": t["head.weight"], "model.embed_tokens.weight": t["embed.weight"]}
    state["model.norm.weight"] = t["norm.weight"]
    state |= {f"model.hc_head.hc_{part}": t[f"hc_head_{part}"] for part in ("fn", "base", "scale")}
    for i in range(config["num_hidden_layers"]):
        prefix = f"layers.{i}."
        own = {name.removeprefix(prefix): value for name, value in t.items() if name.startswith(prefix)}
        experts = [
            [own.pop(f"ffn.experts.{e}.{name}.weight") for name in ("w1", "w3", "w2")]
            for e in range(config["n_routed_experts"])
        ]
        state |= {f"model.{prefix}{_translated(name)}": value for name, value in own.items()}
        state[f"model.{prefix}mlp.experts.gate_up_proj"] = torch.stack([torch.cat((w1, w3)) for w1, w3, _ in experts])
        state[f"model.{prefix}mlp.experts.down_proj"] = torch.stack([w2 for _, _, w2 in experts])
    return state


def transformers_model(t: dict[str, torch.Tensor], config: dict[str, Any]) -> Any:
    """transformers' DeepseekV4ForCausalLM in fp32 with these tensors, every one of them used."""
    from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

    model = DeepseekV4ForCausalLM(DeepseekV4Config(**config)).eval()
    model.load_state_dict(transformers_state(t, config), strict=True)
    return model
