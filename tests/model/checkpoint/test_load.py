"""Checkpoints in all formats: the values that come back, precisions, and every kind of damage in one error each."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import load, random_tensors, weights_from, write
from model.checkpoint.shards import INDEX, Shards
from model.config import Config
from model.errors import CheckpointError, ConfigError
from model.weights import Quantised, Weights, dense, specs
from oracles.formats import fp8, mxfp4


@pytest.fixture(scope="module")
def small() -> Config:
    """One CSA layer with hash routing, one HCA layer without, a draft block."""
    tiny = Config.load("tiny")
    return replace(tiny, ratios=(4, 128), num_hidden_layers=2, num_hash_layers=1, n_routed_experts=4)


@pytest.fixture(scope="module")
def values(small: Config) -> dict[str, torch.Tensor]:
    return random_tensors(small, seed=1)


@pytest.fixture(scope="module")
def folders(
    small: Config, values: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The same model in all formats, in several shards."""
    root = tmp_path_factory.mktemp("forms")
    forms = ("native", "nvfp4", "bf16", "fp32")
    return {form: write(root / form, small, values, form, shard_bytes=3_000_000) for form in forms}  # type: ignore[arg-type]


def same(a: Weights, b: Weights) -> bool:
    """Whether all weights have equal values."""
    pairs = zip(a.tensors(), b.tensors(), strict=True)
    return all(x == y and torch.equal(dense(v), dense(w)) for (x, v), (y, w) in pairs)


@pytest.mark.parametrize("form", ["bf16", "fp32"])
def test_plain_formats_come_back_exactly(form: str, small: Config, values: dict[str, torch.Tensor], folders: Any):
    config, weights = load(folders[form], precision="fp32")
    assert config.ratios == small.ratios and same(weights, weights_from(small, values))
    assert len(list(folders[form].glob("*.safetensors"))) > 2


def test_native_holds_what_the_formats_hold(small: Config, values: dict[str, torch.Tensor], folders: dict[str, Path]):
    """Linears in FP8 blocks of 128 x 128, experts in MXFP4, everything else unchanged."""
    rounded = dict(values)
    for name, spec in specs(small).items():
        if spec.role == "linear":
            rounded[name] = fp8.dequantize_128x128(*fp8.quantize_128x128(values[name]), dtype=torch.float32)
        elif spec.role == "expert":
            rounded[name] = mxfp4.rounded(values[name])
    wanted = weights_from(small, rounded)
    for precision in ("fp32", "native", "nvfp4"):
        _, weights = load(folders["native"], precision=precision)  # type: ignore[arg-type]
        assert same(weights, wanted), precision
    w1 = weights.layers[0].moe.w1
    assert isinstance(w1, Quantised) and w1.form == "nvfp4" and w1.shape == (4, 128, 256)
    assert w1.nbytes == 4 * (128 * 128 + 128 * 16 + 4)
    assert isinstance(weights.layers[0].attention.wq_a, Quantised)


def test_nvidia_keeps_the_draft_block_in_mxfp4(
    folders: dict[str, Path], small: Config, values: dict[str, torch.Tensor]
):
    _, weights = load(folders["nvfp4"], precision="native")
    layer, draft = weights.layers[1].moe, weights.mtp
    assert isinstance(layer.w1, Quantised) and layer.w1.form == "nvfp4" and layer.w1.input_scale is not None
    assert isinstance(layer.w3, Quantised) and torch.equal(layer.w1.global_scale, layer.w3.global_scale)  # type: ignore[arg-type]
    assert draft is not None and isinstance(draft.block.moe.w1, Quantised) and draft.block.moe.w1.form == "mxfp4"
    for e in range(4):
        wanted = values[f"layers.1.ffn.experts.{e}.w2.weight"]
        found = dense(layer.w2)[e]
        assert (found - wanted).norm() / wanted.norm() < 0.11


def test_a_full_nvfp4_build(folders: dict[str, Path], values: dict[str, torch.Tensor]):
    _, weights = load(folders["bf16"], precision="nvfp4_full")
    head, wq_b = weights.head, weights.layers[0].attention.wq_b
    for weight, name in ((head, "head.weight"), (wq_b, "layers.0.attn.wq_b.weight")):
        assert isinstance(weight, Quantised) and weight.form == "nvfp4"
        assert (dense(weight) - values[name]).norm() / values[name].norm() < 0.11
    assert isinstance(weights.layers[0].moe.gate, torch.Tensor)


def test_values_are_those_of_compressed_tensors(folders: dict[str, Path]):
    """A packed NVFP4 matrix read by code that is not ours; its global scale is the inverse of the published one."""
    helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    files = [load_file(f) for f in folders["nvfp4"].glob("*.safetensors")]
    raw = {k: v for f in files for k, v in f.items() if k.startswith("layers.1.ffn.experts.2.w1")}
    stem = "layers.1.ffn.experts.2.w1."
    codes = helpers.unpack_fp4_from_uint8(raw[f"{stem}weight"], 128, 256, dtype=torch.float32)
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
    wanted = dequantize(
        codes,
        raw[f"{stem}weight_scale"].float(),
        args=args,
        dtype=torch.float32,
        global_scale=1.0 / raw[f"{stem}weight_scale_2"],
    )
    found = dense(load(folders["nvfp4"])[1].layers[1].moe.w1)[2]
    assert torch.allclose(found, wanted, rtol=1e-6, atol=0.0)


def test_the_bar_ends_full_and_is_only_there_if_asked(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    load(folders["native"], progress=True)
    load(folders["native"])
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("loading") == 1
    size = sum(f.stat().st_size for f in folders["native"].glob("*.safetensors"))
    assert f"{size / 1e6:.1f}/{size / 1e6:.1f} MB" in shown.err


@pytest.mark.parametrize("precision", ["native", "bf16", "nvfp4_full"])
def test_one_expert_at_a_time_is_on_the_host(precision: Any, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    """What has been read from files and is still alive never exceeds what one expert or one matrix needs."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most, names = 0, []
    read = Shards.read

    def watched(self: Shards, name: str) -> torch.Tensor:
        nonlocal most
        value = read(self, name)
        names.append(name)
        alive.append(weakref.ref(value))
        most = max(most, sum(t.nbytes for r in alive if (t := r()) is not None))
        return value

    monkeypatch.setattr(Shards, "read", watched)
    load(folders["native"], precision=precision)
    assert len(names) == len(set(names))
    assert most <= 4096 * 128 + 1024, "wq_b in FP8 is the largest tensor but for the mixing matrices"


Edit = Callable[[Path], None]


def edit(change: Callable[[dict[str, torch.Tensor]], Any], holding: str) -> Edit:
    """Change the tensors of the shard that holds `holding`, in file and index."""

    def apply(folder: Path) -> None:
        table = json.loads((folder / INDEX).read_text())
        file = table["weight_map"][holding]
        held = load_file(folder / file)
        change(held)
        save_file(held, folder / file)
        kept = {k: f for k, f in table["weight_map"].items() if f != file or k in held}
        table["weight_map"] = kept | {k: file for k in held}
        (folder / INDEX).write_text(json.dumps(table))

    return apply


def shard(name: str, change: Callable[[Path], Any]) -> Edit:
    """Change the file that holds a tensor."""
    return lambda folder: change(folder / json.loads((folder / INDEX).read_text())["weight_map"][name])


def set_nan(name: str) -> Edit:
    """The first scale of `name` becomes NaN."""

    def change(held: dict[str, torch.Tensor]) -> None:
        held[name].view(torch.uint8).flatten()[0] = 0xFF

    return edit(change, name)


WQ_A, EXPERT = "layers.0.attn.wq_a", "layers.1.ffn.experts.1.w3"
DAMAGE: list[tuple[str, Edit, str]] = [
    (
        "missing",
        edit(lambda t: t.pop("norm.weight"), "norm.weight"),
        r"norm\.weight: found no such tensor; wanted \[256\]",
    ),
    (
        "extra",
        edit(lambda t: t.update({"mtp.0.main_proj.weight": torch.ones(2)}), "norm.weight"),
        r"mtp\.0\.main_proj\.weight: found a tensor; wanted nothing of that name",
    ),
    (
        "misnamed",
        edit(lambda t: t.update({"layers.0.attn.wqa.weight": t.pop(f"{WQ_A}.weight")}), f"{WQ_A}.weight"),
        r"layers\.0\.attn\.wqa\.weight: found a tensor; wanted nothing",
    ),
    (
        "shape",
        edit(lambda t: t.update({f"{WQ_A}.weight": t[f"{WQ_A}.weight"][:64].clone()}), f"{WQ_A}.weight"),
        r"wq_a\.weight: found F8_E4M3 \[64, 256\]; wanted F8_E4M3 \[128, 256\]",
    ),
    (
        "dtype",
        edit(lambda t: t.update({"norm.weight": t["norm.weight"].long()}), "norm.weight"),
        r"norm\.weight: found I64 \[256\]; wanted BF16 or F32 or F16 \[256\]",
    ),
    (
        "no scale",
        edit(lambda t: t.pop(f"{WQ_A}.scale"), f"{WQ_A}.scale"),
        r"wq_a\.scale: found no such tensor; wanted scales \[1, 2\] of F8_E4M3 codes",
    ),
    ("nan fp8 scale", set_nan(f"{WQ_A}.scale"), r"wq_a\.scale: found 1 NaN scales; wanted finite scales"),
    ("nan mxfp4 scale", set_nan(f"{EXPERT}.scale"), r"w3\.scale: found 1 NaN scales; wanted finite scales"),
    (
        "expert ids",
        edit(lambda t: t["layers.0.ffn.gate.tid2eid"].fill_(4), "layers.0.ffn.gate.tid2eid"),
        r"tid2eid: found expert ids 4\.\.4; wanted 0\.\.3",
    ),
    (
        "truncated",
        shard("head.weight", lambda f: f.write_bytes(f.read_bytes()[:-100])),
        r"safetensors: file: found .*; wanted a whole safetensors file",
    ),
    ("not safetensors", shard("head.weight", lambda f: f.write_text("PK")), r"wanted a whole safetensors file"),
    (
        "no shard",
        shard("head.weight", lambda f: f.unlink()),
        r"index\.json: .*: found the missing shard model-0.*; wanted a file beside the index",
    ),
    ("bad index", lambda f: (f / INDEX).write_text("{}") and None, r"index\.json: file: found KeyError"),
    (
        "not in index",
        lambda f: (f / INDEX).write_text((f / INDEX).read_text().replace('"norm.weight"', '"norm2.weight"')) and None,
        r"norm2\.weight: found no such tensor; wanted a tensor, as the index says",
    ),
    (
        "mixed experts",
        edit(
            lambda t: (t.update({f"{EXPERT}.weight": torch.ones(128, 256)}), t.pop(f"{EXPERT}.scale")),
            f"{EXPERT}.weight",
        ),
        r"experts\.1\.w3\.weight: found bfloat16 after mxfp4; wanted the same format for all experts",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [d[1:] for d in DAMAGE], ids=[d[0] for d in DAMAGE])
def test_damage_is_one_error(
    damage: Edit, message: str, small: Config, values: dict[str, torch.Tensor], tmp_path: Path
):
    folder = write(tmp_path, small, values, "native", shard_bytes=3_000_000)
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder)
    error = caught.value
    assert error.file and error.found and error.wanted and str(tmp_path) in str(error)


def test_nan_in_nvfp4_scales(folders: dict[str, Path], small: Config, values: dict[str, torch.Tensor], tmp_path: Path):
    for suffix, change in (
        ("weight_scale", lambda t, n: t[n].view(torch.uint8).view(-1)[:2].fill_(0x7F)),
        ("weight_scale_2", lambda t, n: t[n].fill_(float("nan"))),
    ):
        folder = write(tmp_path / suffix, small, values, "nvfp4")
        name = f"layers.0.ffn.experts.0.w1.{suffix}"
        edit(lambda t, change=change, name=name: change(t, name), name)(folder)  # type: ignore[misc]
        with pytest.raises(CheckpointError, match=rf"w1\.{suffix}: found [12] NaN scales"):
            load(folder)


def test_exponents_too_far_apart_for_an_exact_cast(small: Config, values: dict[str, torch.Tensor], tmp_path: Path):
    spread = dict(values)
    name = "layers.0.ffn.experts.0.w1.weight"
    spread[name] = values[name].clone()
    spread[name][0, :32] *= 2.0**30
    folder = write(tmp_path, small, spread, "native")
    with pytest.raises(CheckpointError, match=r"w1\.weight: found .*exponents=.*; wanted values that NVFP4 holds"):
        load(folder, precision="nvfp4")
    assert load(folder)[1].mtp is not None


def test_a_checkpoint_without_a_draft_block_is_whole(small: Config, values: dict[str, torch.Tensor], tmp_path: Path):
    folder = write(tmp_path, small, values, "bf16", shard_bytes=10**12)
    (file,) = folder.glob("*.safetensors")
    (folder / INDEX).unlink()
    save_file({k: v for k, v in load_file(file).items() if not k.startswith("mtp.")}, file)
    assert load(folder)[1].mtp is None
    held = load_file(file)
    save_file(held | {"model.norm.weight": held["norm.weight"].clone()}, file)
    with pytest.raises(
        CheckpointError, match=r"norm\.weight: found also stored as (model\.)?norm\.weight in .*; wanted one"
    ):
        load(folder)


def test_bad_arguments(tmp_path: Path, small: Config, values: dict[str, torch.Tensor]):
    with pytest.raises(ValueError, match="precision='int8'; allowed: fp32, bf16"):
        load(tmp_path, precision="int8")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"found no \.safetensors file"):
        load(tmp_path / "absent", small)
    with pytest.raises(ValueError, match="form='gguf'; allowed: native"):
        write(tmp_path, small, values, "gguf")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"tensors: head\.weight: found no such tensor; wanted \[512, 256\]"):
        write(tmp_path / "x", small, {k: v for k, v in values.items() if k != "head.weight"})
    assert not (tmp_path / "x").exists()
    with pytest.raises(CheckpointError, match=r"norm\.weight: found \[3\]; wanted \[256\]"):
        weights_from(small, values | {"norm.weight": torch.ones(3)})
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="config.json"):
        load(tmp_path)
