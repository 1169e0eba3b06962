"""Writing small checkpoints in the published layouts, from plain tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from model.checkpoint.convert import to_nvfp4
from model.checkpoint.shards import INDEX
from model.config import Config
from model.errors import CheckpointError
from model.weights import Quantised, specs
from oracles.formats import fp8, mxfp4

FormName = Literal["native", "nvfp4", "bf16", "fp32"]
FORMS: dict[FormName, str] = {
    "native": "DeepSeek's: experts MXFP4, linears FP8 in 128 x 128 blocks, the rest BF16 and FP32",
    "nvfp4": "NVIDIA's: as native, with the experts of the layers (not of MTP) in NVFP4",
    "bf16": "matrices and norms BF16, the rest FP32",
    "fp32": "everything FP32",
}


def write(
    folder: str | Path,
    config: Config,
    tensors: Mapping[str, torch.Tensor],
    form: FormName = "native",
    *,
    shard_bytes: int = 4_000_000_000,
) -> Path:
    """Write config.json, shards of about `shard_bytes` and their index into `folder`; returns the folder.

    `tensors` are f32 values by published name, all of those that the configuration asks for. In "nvfp4" the scale of
    the activations is that of inputs up to 6. Raises ValueError for an unknown form, CheckpointError for a missing
    tensor."""
    if form not in FORMS:
        raise ValueError(f"form={form!r}; allowed: {', '.join(FORMS)}")
    for name, spec in specs(config).items():
        if name not in tensors or tuple(tensors[name].shape) != spec.shape:
            found = list(tensors[name].shape) if name in tensors else "no such tensor"
            raise CheckpointError("tensors", name, found, list(spec.shape))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards = _shards(_stored(config, tensors, form), shard_bytes)
    count = len(shards)
    index: dict[str, str] = {}
    total = 0
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(shard, file)
        total += sum(t.nbytes for t in shard.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
    (folder / INDEX).write_text(text, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_config(config, form), indent=2) + "\n", encoding="utf-8")
    return folder


def _config(config: Config, form: FormName) -> dict[str, Any]:
    raw = config.to_dict()
    if form in ("native", "nvfp4"):
        block = {"weight_block_size": [128, 128], "scale_fmt": "ue8m0", "activation_scheme": "dynamic", "fmt": "e4m3"}
        raw["quantization_config"] = {"quant_method": "fp8", **block}
        raw["torch_dtype"] = "bfloat16"
    else:
        raw["expert_dtype"] = "bf16"
        raw["torch_dtype"] = "bfloat16" if form == "bf16" else "float32"
    if form == "nvfp4":
        raw["quantization_config"]["moe_quant_algo"] = "NVFP4"
    return raw


def _stored(config: Config, tensors: Mapping[str, torch.Tensor], form: FormName) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors as they are stored, in the order of loading."""
    for name, spec in specs(config).items():
        value, stem = tensors[name], name.removesuffix(".weight")
        if spec.role == "table":
            yield name, value.long()
        elif form == "fp32" or spec.role == "wide":
            yield name, value.float()
        elif form == "bf16" or spec.role in ("matrix", "norm"):
            yield name, value.bfloat16()
        elif spec.role == "linear":
            codes, scales = fp8.quantize_128x128(value)
            yield name, codes.view(torch.float8_e4m3fn)
            yield f"{stem}.scale", scales.view(torch.float8_e8m0fnu)
        elif form == "native" or name.startswith("mtp."):
            codes, scales = mxfp4.quantize(value)
            yield name, codes.view(torch.int8)
            yield f"{stem}.scale", scales.view(torch.float8_e8m0fnu)
        else:
            yield from _nvfp4(name, tensors)


def _nvfp4(name: str, tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """An expert's matrix; w1 and w3 share their global scale."""
    stem = name.removesuffix(".weight")
    partner = {"w1": "w3", "w3": "w1"}.get(stem.rsplit(".", 1)[1])
    names = [name] + ([f"{stem.rsplit('.', 1)[0]}.{partner}.weight"] if partner else [])
    packed: Quantised = to_nvfp4(*(tensors[n] for n in names))[0]
    assert packed.global_scale is not None
    yield name, packed.data
    yield f"{stem}.weight_scale", packed.scales.view(torch.float8_e4m3fn)
    yield f"{stem}.weight_scale_2", packed.global_scale
    yield f"{stem}.input_scale", torch.tensor(6.0 / (6.0 * 448.0))


def _shards(stored: Iterator[tuple[str, torch.Tensor]], limit: int) -> list[dict[str, torch.Tensor]]:
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, value in stored:
        if shards[-1] and size + value.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = value.contiguous()
        size += value.nbytes
    return shards
