"""The model is DeepSeek-V4: the same numbers as the implementation in transformers, which shares no code with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import load, random_tensors, weights_from, write
from model.config import Config
from model.forward import Model

ATOL = 2e-5
LENGTHS = (1, 3, 4, 5, 8, 127, 128, 129, 300, 420)


def theirs(folder: Path, **options: Any) -> Any:
    """The checkpoint in transformers."""
    transformers = pytest.importorskip("transformers", minversion="5.24")
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    return transformers.DeepseekV4ForCausalLM.from_pretrained(folder, **({"dtype": torch.float32} | options)).eval()


@pytest.fixture(scope="module")
def folder(config: Config, tensors: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our BF16 checkpoint in two shards."""
    return write(tmp_path_factory.mktemp("bf16"), config, tensors, "bf16", shard_bytes=20_000_000)


@pytest.fixture(scope="module")
def other(folder: Path) -> Any:
    """Our checkpoint in transformers."""
    return theirs(folder)


@pytest.fixture(scope="module")
def reference(other: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """One forward of 420 tokens: logits, streams after each layer, chosen experts, chosen entries, by our names."""
    found: dict[str, torch.Tensor] = {}

    def keep(name: str, pick: Callable[[Any], torch.Tensor]) -> Callable[..., None]:
        return lambda module, args, output: found.__setitem__(name, pick(output))

    for i, layer in enumerate(other.model.layers):
        layer.register_forward_hook(keep(f"layers.{i}", lambda x: (x[0] if isinstance(x, tuple) else x)[0]))
        layer.mlp.gate.register_forward_hook(keep(f"layers.{i}.experts", lambda x: x[2]))
        indexer = getattr(layer.self_attn.compressor, "indexer", None)
        if indexer is not None:
            indexer.register_forward_hook(keep(f"layers.{i}.topk", lambda x: x[0]))
    with torch.no_grad():
        found["logits"] = other(ids[None]).logits[0]
    return found


@pytest.fixture(scope="module")
def ours(folder: Path) -> Model:
    """The same checkpoint here."""
    return Model(*load(folder, precision="fp32"))


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Logits within 2e-5, and every argmax."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= ATOL
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))


@pytest.mark.parametrize("length", LENGTHS)
def test_prefill_gives_their_logits(length: int, ours: Model, ids: torch.Tensor, reference: dict[str, torch.Tensor]):
    cache = ours.new_cache(1, 512)
    found = ours.prefill(cache, [cache.open()], [ids[:length]], logits="all")[0]
    assert_same(found, reference["logits"][:length])


def test_every_decoded_token_gives_their_logits(ours: Model, ids: torch.Tensor, reference: dict[str, torch.Tensor]):
    cache = ours.new_cache(1, 512)
    sequence = cache.open()
    ours.prefill(cache, [sequence], [ids[:301]])
    found = [ours.decode(cache, [sequence], ids[None, i : i + 1])[0] for i in range(301, 420)]
    assert len(found) == 119
    assert_same(torch.cat(found), reference["logits"][301:])
    changes = torch.cat(found).diff(dim=0).abs().amax(dim=1)
    assert changes.min() > 0.1, "a hidden state that stands still gives the same logits at every position"


def test_chunks_that_cut_windows_give_their_logits(ours: Model, ids: torch.Tensor, reference: dict[str, torch.Tensor]):
    cache, at, found = ours.new_cache(1, 512), 0, []
    sequence = cache.open()
    for length in (130, 127, 1, 162):
        found.append(ours.prefill(cache, [sequence], [ids[at : at + length]], logits="all")[0])
        at += length
    assert_same(torch.cat(found), reference["logits"])


def test_layers_experts_and_entries_are_theirs(ours: Model, ids: torch.Tensor, reference: dict[str, torch.Tensor]):
    cache, found = ours.new_cache(1, 512), {}
    ours.prefill(cache, [cache.open()], [ids], tap=lambda name, value: found.__setitem__(name, value))
    assert set(found) == set(reference) - {"logits"}
    for i in range(ours.config.num_hidden_layers):
        mine, wanted = found[f"layers.{i}"], reference[f"layers.{i}"]
        cos = torch.nn.functional.cosine_similarity(mine.flatten(1), wanted.flatten(1))
        assert cos.min() >= 0.999999, f"layer {i}"
        assert torch.equal(
            found[f"layers.{i}.experts"].sort(-1).values, reference[f"layers.{i}.experts"].sort(-1).values
        )
    for i in (2, 4):
        mine, wanted = found[f"layers.{i}.topk"][0].sort(-1).values, reference[f"layers.{i}.topk"].sort(-1).values
        assert torch.equal(mine, wanted), f"layer {i}"
        assert (mine == -1).any() and (mine >= 0).all(dim=-1).any()


def test_rotary_frequencies_are_theirs(ours: Model, other: Any):
    """Plain for layers with a window only, YaRN for the others: 420 tokens would hardly show the difference."""
    rotary = other.model.rotary_emb
    assert torch.allclose(ours.freqs[False], rotary.main_inv_freq, rtol=1e-6, atol=0.0)
    assert torch.allclose(ours.freqs[True], rotary.compress_inv_freq, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_each_kind_of_layer_alone(ratio: int, config: Config, ids: torch.Tensor, tmp_path: Path):
    """One hashed and one scored layer, with limits that many values reach and another routing factor."""
    small = replace(config.with_ratios(ratio, ratio), num_hash_layers=1, swiglu_limit=0.4, routed_scaling_factor=2.5)
    tensors = random_tensors(small, seed=3)
    reference = theirs(write(tmp_path, small, tensors, "bf16"))
    mine = Model(small, weights_from(small, tensors))
    cache = mine.new_cache(1, 512)
    sequence = cache.open()
    length = 290 if ratio == 128 else 200
    found = [mine.prefill(cache, [sequence], [ids[: length - 3]], logits="all")[0]]
    found += [mine.decode(cache, [sequence], ids[None, i : i + 1])[0] for i in range(length - 3, length)]
    with torch.no_grad():
        assert_same(torch.cat(found), reference(ids[None, :length]).logits[0])


def test_what_transformers_saves_loads_here(
    other: Any, ids: torch.Tensor, reference: dict[str, torch.Tensor], tmp_path: Path
):
    """It writes kv_norm under another name, prefixes names, and drops the draft block."""
    other.save_pretrained(tmp_path)
    config, weights = load(tmp_path, precision="fp32")
    assert weights.mtp is None
    model = Model(config, weights)
    cache = model.new_cache(1, 256)
    found = model.prefill(cache, [cache.open()], [ids[:150]], logits="all")[0]
    assert_same(found, reference["logits"][:150])


def test_our_native_checkpoint_reads_the_same_there(config: Config, tensors: dict[str, torch.Tensor], tmp_path: Path):
    """MXFP4 experts and FP8 linears: transformers dequantises to BF16 on a CPU, and every value must be ours."""
    pytest.importorskip("accelerate")
    write(tmp_path, config, tensors, "native")
    state = theirs(tmp_path, dtype=torch.bfloat16).state_dict()
    _, weights = load(tmp_path, precision="bf16")
    pairs = {
        "self_attn.q_a_proj.weight": lambda b: b.attention.wq_a,
        "self_attn.q_b_proj.weight": lambda b: b.attention.wq_b,
        "self_attn.o_a_proj.weight": lambda b: b.attention.wo_a,
        "self_attn.compressor.indexer.q_b_proj.weight": lambda b: b.attention.indexer.wq_b,
        "mlp.shared_experts.down_proj.weight": lambda b: b.moe.shared_w2,
        "mlp.experts.gate_up_proj": lambda b: torch.cat((b.moe.w1, b.moe.w3), dim=1),
        "mlp.experts.down_proj": lambda b: b.moe.w2,
    }
    for name, pick in pairs.items():
        assert torch.equal(state[f"model.layers.2.{name}"], pick(weights.layers[2])), name
