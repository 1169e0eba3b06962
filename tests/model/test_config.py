"""Configurations in all ways in which they are written; relatives of V4 are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.config import Config
from model.errors import ConfigError

SHORT = {
    "vocab_size": 129280,
    "dim": 4096,
    "moe_inter_dim": 2048,
    "n_layers": 43,
    "n_hash_layers": 3,
    "n_heads": 64,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "n_activated_experts": 6,
    "score_func": "sqrtsoftplus",
    "route_scale": 1.5,
    "swiglu_limit": 10.0,
    "q_lora_rank": 1024,
    "head_dim": 512,
    "rope_head_dim": 64,
    "norm_eps": 1e-6,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "window_size": 128,
    "original_seq_len": 65536,
    "rope_theta": 10000,
    "rope_factor": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "dtype": "fp8",
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
    "compress_rope_theta": 160000,
    "n_mtp_layers": 1,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}


def changed(**values: Any) -> dict[str, Any]:
    """The tiny config.json with other fields; None removes one."""
    raw = json.loads((Path(__file__).parents[2] / "model" / "configs" / "tiny.json").read_text())
    return {k: v for k, v in (raw | values).items() if v is not None}


def test_flash_is_read_from_both_ways_of_naming():
    flash = Config.load("flash")
    assert Config.from_dict(SHORT) == flash
    assert flash.kinds[:5] == ("window", "window", "csa", "hca", "csa")
    assert (flash.kinds.count("csa"), flash.kinds.count("hca")) == (21, 20)
    assert [flash.hashed(i) for i in (2, 3, 43)] == [True, False, False]


def test_pro_has_no_window_only_layer():
    pro = Config.load("pro")
    assert (pro.num_hidden_layers, pro.hidden_size, pro.routed_scaling_factor) == (61, 7168, 2.5)
    assert pro.kinds[:3] == ("hca", "hca", "csa")
    assert (pro.kinds.count("csa"), pro.kinds.count("hca"), pro.mtp_ratios) == (30, 31, (0,))


@pytest.mark.parametrize("name", ["tiny", "flash", "pro"])
def test_what_is_written_is_read(name: str):
    config = Config.load(name)
    assert Config.from_dict(config.to_dict()) == config


def test_layer_types_and_rope_parameters_of_transformers():
    """The form that transformers saves: layers by name, rotary parameters by kind."""
    config = Config.load("tiny")
    names = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    yarn = {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "rope_theta": 160000}
    saved = changed(
        compress_ratios=None,
        rope_scaling=None,
        num_hash_layers=None,
        rope_theta=None,
        compress_rope_theta=None,
        qk_rope_head_dim=None,
        partial_rotary_factor=0.125,
        layer_types=[names[r] for r in config.ratios],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
        mlp_layer_types=["hash_moe"] * 2 + ["moe"] * 3,
        rope_parameters={
            "main": {"rope_type": "default", "rope_theta": 10000},
            "compress": yarn | {"original_max_position_embeddings": 65536, "attention_factor": 1.0},
        },
    )
    assert Config.from_dict(saved) == config


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"model_type": "deepseek_v41"},
            r"DeepSeek-V4\.1 .* is another architecture; supported: DeepSeek-V4 Flash and Pro",
        ),
        ({"architectures": ["DeepseekV41ForCausalLM"]}, r"DeepSeek-V4\.1"),
        ({"model_type": "deepseek_v3"}, r"model_type='deepseek_v3'; supported"),
        ({"dspark_block_size": 5}, r"DSpark draft \(dspark_block_size\)"),
        ({"num_nextn_predict_layers": 3}, r"DSpark draft \(3 draft layers\)"),
        ({"vision_config": {}}, r"vision tower"),
        ({"compress_ratios": [0, 128, 2, 128, 4, 0]}, r"compress_ratios \[0, 2, 4, 128\]; supported: \[0, 4, 128\]"),
        ({"compress_ratios": [0, 128, 4]}, r"has 3 entries; wanted: 5 layers \+ 1 MTP blocks"),
        ({"compress_ratios": None}, r"missing: ratios, mtp_ratios"),
        ({"hidden_size": None}, r"missing: hidden_size"),
        ({"hidden_size": "256"}, r"hidden_size='256'; allowed: an integer of at least 1"),
        ({"rms_norm_eps": float("nan")}, r"rms_norm_eps=nan; allowed: a finite number above 0"),
        ({"num_experts_per_tok": 9}, r"num_experts_per_tok=9"),
        ({"o_groups": 3}, r"num_attention_heads=8 is not a multiple of o_groups=3"),
        ({"scoring_func": "sigmoid"}, r"scoring_func='sigmoid' is not supported; supported: 'sqrtsoftplus'"),
        ({"rope_scaling": {"type": "linear"}}, r"rope scaling 'linear' is not supported"),
        ({"compress_ratios": None, "layer_types": ["full"] * 5}, r"layer_types \['full'\]; supported"),
    ],
)
def test_what_is_not_this_model_is_named(raw: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        Config.from_dict(changed(**raw))


def test_several_problems_come_at_once():
    with pytest.raises(ConfigError, match=r"hidden_act='gelu'.*o_groups=3.*num_experts_per_tok=9"):
        Config.from_dict(changed(hidden_act="gelu", o_groups=3, num_experts_per_tok=9))


def test_files_that_are_none(tmp_path: Path):
    for text in ("", "[1]", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match="config.json"):
            Config.load(tmp_path)
    with pytest.raises(ConfigError, match="wanted: a config.json, or flash, pro, tiny"):
        Config.load(tmp_path / "absent.json")
