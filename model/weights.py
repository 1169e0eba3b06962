"""Which tensors a model has, and how they are held while it runs.

Names are those of the published checkpoints. A matrix is a plain tensor, or stays `Quantised` as it was stored; the
experts of a layer are stacked, expert first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import torch

from model.config import Config
from oracles.compressor import Weights as CompressorWeights
from oracles.formats import fp8, mxfp4, nvfp4

Form = Literal["fp8", "mxfp4", "nvfp4"]
Role = Literal["linear", "expert", "matrix", "norm", "wide", "table"]


@dataclass(frozen=True)
class Spec:
    """What one tensor must be. Roles, and how the published checkpoints store them:

    linear   FP8 with a scale per 128 x 128 block        expert   MXFP4 or NVFP4
    matrix   BF16      norm     BF16 vector      wide     FP32      table    INT64 expert ids by token id
    """

    shape: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Quantised:
    """A matrix [..., N, K] as codes and scales; leading dimensions are experts.

    fp8      data u8 (E4M3) [..., N, K], scales u8 (UE8M0) or f32 [..., N/128, K/128]
    mxfp4    data u8 [..., N, K/2], low nibble first, scales u8 (UE8M0) [..., N, K/32]
    nvfp4    data u8 [..., N, K/2], scales u8 (E4M3) [..., N, K/16], global_scale f32 [...]; input_scale f32 [...] is
             the calibrated scale of the activations, where the checkpoint has one
    """

    form: Form
    data: torch.Tensor
    scales: torch.Tensor
    global_scale: torch.Tensor | None = None
    input_scale: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape, in elements."""
        last = self.data.shape[-1]
        return (*self.data.shape[:-1], last if self.form == "fp8" else 2 * last)

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return sum(t.nbytes for t in (self.data, self.scales, self.global_scale, self.input_scale) if t is not None)

    def __getitem__(self, index: Any) -> Quantised:
        """The same for some of the experts; `index` selects along the leading dimensions."""
        picked = [
            None if t is None else t[index] for t in (self.data, self.scales, self.global_scale, self.input_scale)
        ]
        return Quantised(self.form, picked[0], picked[1], picked[2], picked[3])  # type: ignore[arg-type]

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        """The values [..., N, K]; exact in f32, rounded once to other dtypes."""
        if self.form == "fp8":
            return fp8.dequantize_128x128(self.data, self.scales, dtype=torch.float32).to(dtype)
        if self.form == "mxfp4":
            return mxfp4.dequantize(self.data, self.scales, dtype=torch.float32).to(dtype)
        if self.global_scale is None:
            raise ValueError("nvfp4 without a global scale")
        scale = self.global_scale[..., None, None]
        return nvfp4.dequantize(self.data, self.scales, scale, dtype=torch.float32).to(dtype)


Weight = torch.Tensor | Quantised


def dense(weight: Weight, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A weight as values; a plain one that already has the dtype is returned as it is."""
    return weight.to(dtype) if isinstance(weight, torch.Tensor) else weight.dense(dtype)


@dataclass(frozen=True)
class HyperConnection:
    """Mixing of the residual streams: fn [n (n + 2), n d] (head: [n, n d]), base, scale; f32."""

    fn: torch.Tensor
    base: torch.Tensor
    scale: torch.Tensor


@dataclass(frozen=True)
class Indexer:
    """wq_b [h 128, q_lora], weights_proj [h, d] and the compressor of its keys."""

    wq_b: Weight
    weights_proj: Weight
    compressor: CompressorWeights


@dataclass(frozen=True)
class Attention:
    """Attention of one layer. `compressor` where the ratio is above 0, `indexer` where it is 4."""

    wq_a: Weight
    q_norm: torch.Tensor
    wq_b: Weight
    wkv: Weight
    kv_norm: torch.Tensor
    sink: torch.Tensor
    wo_a: Weight
    wo_b: Weight
    compressor: CompressorWeights | None
    indexer: Indexer | None


@dataclass(frozen=True)
class Moe:
    """Router, routed experts [E, I, d] and [E, d, I], shared expert. `table` in hash layers, `bias` in the others."""

    gate: Weight
    bias: torch.Tensor | None
    table: torch.Tensor | None
    w1: Weight
    w3: Weight
    w2: Weight
    shared_w1: Weight
    shared_w3: Weight
    shared_w2: Weight


@dataclass(frozen=True)
class Block:
    """One layer."""

    attn_norm: torch.Tensor
    ffn_norm: torch.Tensor
    hc_attn: HyperConnection
    hc_ffn: HyperConnection
    attention: Attention
    moe: Moe


@dataclass(frozen=True)
class Mtp:
    """The block of multi-token prediction; embedding and output head are the model's."""

    enorm: torch.Tensor
    hnorm: torch.Tensor
    e_proj: Weight
    h_proj: Weight
    block: Block
    hc_head: HyperConnection
    norm: torch.Tensor


@dataclass(frozen=True)
class Weights:
    """Every tensor of a model. `mtp` is None where the checkpoint has none."""

    embed: torch.Tensor
    layers: tuple[Block, ...]
    hc_head: HyperConnection
    norm: torch.Tensor
    head: Weight
    mtp: Mtp | None

    def tensors(self) -> Iterator[tuple[str, Weight]]:
        """Every weight with its path, such as `layers[0].moe.w1`."""
        yield from _walk("", self)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(w.nbytes for _, w in self.tensors())


def _walk(path: str, value: Any) -> Iterator[tuple[str, Weight]]:
    if isinstance(value, torch.Tensor | Quantised):
        yield path, value
    elif isinstance(value, CompressorWeights):
        for name, item in zip(value._fields, value, strict=True):
            yield f"{path}.{name}", item
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _walk(f"{path}[{i}]", item)
    elif value is not None:
        for f in fields(value):
            yield from _walk(f"{path}.{f.name}".lstrip("."), getattr(value, f.name))


def specs(config: Config, mtp: bool = True) -> dict[str, Spec]:
    """Every tensor that a checkpoint of this configuration must have, by name, in the order of loading."""
    d, v = config.hidden_size, config.vocab_size
    found = {"embed.weight": Spec((v, d), "matrix")}
    for i, ratio in enumerate(config.ratios):
        found |= _block_specs(config, f"layers.{i}.", ratio, config.hashed(i))
    found |= _head_specs(config, "") | {"head.weight": Spec((v, d), "matrix")}
    for k, ratio in enumerate(config.mtp_ratios if mtp else ()):
        prefix = f"mtp.{k}."
        found |= {f"{prefix}{name}.weight": Spec((d,), "norm") for name in ("enorm", "hnorm")}
        found |= {f"{prefix}{name}.weight": Spec((d, d), "linear") for name in ("e_proj", "h_proj")}
        found |= _block_specs(config, prefix, ratio, config.hashed(config.num_hidden_layers + k))
        found |= _head_specs(config, prefix)
    return found


def _head_specs(config: Config, prefix: str) -> dict[str, Spec]:
    n, d = config.hc_mult, config.hidden_size
    return {
        f"{prefix}hc_head_fn": Spec((n, n * d), "wide"),
        f"{prefix}hc_head_base": Spec((n,), "wide"),
        f"{prefix}hc_head_scale": Spec((1,), "wide"),
        f"{prefix}norm.weight": Spec((d,), "norm"),
    }


def _block_specs(config: Config, prefix: str, ratio: int, hashed: bool) -> dict[str, Spec]:
    n, d = config.hc_mult, config.hidden_size
    found = {f"{prefix}{name}.weight": Spec((d,), "norm") for name in ("attn_norm", "ffn_norm")}
    for site in ("hc_attn", "hc_ffn"):
        found[f"{prefix}{site}_fn"] = Spec((n * (n + 2), n * d), "wide")
        found[f"{prefix}{site}_base"] = Spec((n * (n + 2),), "wide")
        found[f"{prefix}{site}_scale"] = Spec((3,), "wide")
    return found | _attention_specs(config, f"{prefix}attn.", ratio) | _moe_specs(config, f"{prefix}ffn.", hashed)


def _attention_specs(config: Config, prefix: str, ratio: int) -> dict[str, Spec]:
    d, c, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    groups, lora = config.o_groups, config.q_lora_rank
    found = {
        f"{prefix}wq_a.weight": Spec((lora, d), "linear"),
        f"{prefix}q_norm.weight": Spec((lora,), "norm"),
        f"{prefix}wq_b.weight": Spec((heads * c, lora), "linear"),
        f"{prefix}wkv.weight": Spec((c, d), "linear"),
        f"{prefix}kv_norm.weight": Spec((c,), "norm"),
        f"{prefix}attn_sink": Spec((heads,), "wide"),
        f"{prefix}wo_a.weight": Spec((groups * config.o_lora_rank, heads * c // groups), "linear"),
        f"{prefix}wo_b.weight": Spec((d, groups * config.o_lora_rank), "linear"),
    }
    if ratio:
        found |= _compressor_specs(f"{prefix}compressor.", d, c, ratio)
    if ratio == 4:
        index_heads, index_dim = config.index_n_heads, config.index_head_dim
        found[f"{prefix}indexer.wq_b.weight"] = Spec((index_heads * index_dim, lora), "linear")
        found[f"{prefix}indexer.weights_proj.weight"] = Spec((index_heads, d), "matrix")
        found |= _compressor_specs(f"{prefix}indexer.compressor.", d, index_dim, ratio)
    return found


def _compressor_specs(prefix: str, d: int, width: int, ratio: int) -> dict[str, Spec]:
    rows = 2 * width if ratio == 4 else width
    return {
        f"{prefix}wkv.weight": Spec((rows, d), "matrix"),
        f"{prefix}wgate.weight": Spec((rows, d), "matrix"),
        f"{prefix}ape": Spec((ratio, rows), "wide"),
        f"{prefix}norm.weight": Spec((width,), "norm"),
    }


def _moe_specs(config: Config, prefix: str, hashed: bool) -> dict[str, Spec]:
    d, width, experts = config.hidden_size, config.moe_intermediate_size, config.n_routed_experts
    found = {f"{prefix}gate.weight": Spec((experts, d), "matrix")}
    if hashed:
        found[f"{prefix}gate.tid2eid"] = Spec((config.vocab_size, config.num_experts_per_tok), "table")
    else:
        found[f"{prefix}gate.bias"] = Spec((experts,), "wide")
    shapes = {"w1": (width, d), "w3": (width, d), "w2": (d, width)}
    for e in range(experts):
        found |= {f"{prefix}experts.{e}.{w}.weight": Spec(shape, "expert") for w, shape in shapes.items()}
    found |= {f"{prefix}shared_experts.{w}.weight": Spec(shape, "linear") for w, shape in shapes.items()}
    return found


class Source(Protocol):
    """Where `assemble` takes tensors from."""

    def weight(self, name: str) -> Weight:
        """One matrix, in the precision wanted."""

    def plain(self, name: str) -> torch.Tensor:
        """One tensor that is never quantised."""

    def experts(self, prefix: str) -> tuple[Weight, Weight, Weight]:
        """w1, w3 and w2 of all experts below `prefix`, stacked."""


def assemble(config: Config, source: Source, mtp: bool) -> Weights:
    """All weights, layer by layer, in the order of `specs`."""
    embed = source.plain("embed.weight")
    layers = tuple(_block(source, f"layers.{i}.", ratio, config.hashed(i)) for i, ratio in enumerate(config.ratios))
    hc_head, norm, head = _hc(source, "hc_head"), source.plain("norm.weight"), source.weight("head.weight")
    draft = _mtp(config, source) if mtp and config.mtp_ratios else None
    return Weights(embed, layers, hc_head, norm, head, draft)


def _hc(source: Source, prefix: str) -> HyperConnection:
    return HyperConnection(*(source.plain(f"{prefix}_{part}") for part in ("fn", "base", "scale")))


def _block(source: Source, prefix: str, ratio: int, hashed: bool) -> Block:
    return Block(
        attn_norm=source.plain(f"{prefix}attn_norm.weight"),
        ffn_norm=source.plain(f"{prefix}ffn_norm.weight"),
        hc_attn=_hc(source, f"{prefix}hc_attn"),
        hc_ffn=_hc(source, f"{prefix}hc_ffn"),
        attention=_attention(source, f"{prefix}attn.", ratio),
        moe=_moe(source, f"{prefix}ffn.", hashed),
    )


def _compressor(source: Source, prefix: str) -> CompressorWeights:
    return CompressorWeights(
        wkv=source.plain(f"{prefix}wkv.weight"),
        wgate=source.plain(f"{prefix}wgate.weight"),
        ape=source.plain(f"{prefix}ape"),
        norm=source.plain(f"{prefix}norm.weight"),
    )


def _attention(source: Source, prefix: str, ratio: int) -> Attention:
    wq_a, wq_b, wkv, wo_a, wo_b = (
        source.weight(f"{prefix}{w}.weight") for w in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b")
    )
    indexer = None
    if ratio == 4:
        indexer = Indexer(
            wq_b=source.weight(f"{prefix}indexer.wq_b.weight"),
            weights_proj=source.plain(f"{prefix}indexer.weights_proj.weight"),
            compressor=_compressor(source, f"{prefix}indexer.compressor."),
        )
    return Attention(
        wq_a=wq_a,
        q_norm=source.plain(f"{prefix}q_norm.weight"),
        wq_b=wq_b,
        wkv=wkv,
        kv_norm=source.plain(f"{prefix}kv_norm.weight"),
        sink=source.plain(f"{prefix}attn_sink"),
        wo_a=wo_a,
        wo_b=wo_b,
        compressor=_compressor(source, f"{prefix}compressor.") if ratio else None,
        indexer=indexer,
    )


def _moe(source: Source, prefix: str, hashed: bool) -> Moe:
    w1, w3, w2 = source.experts(f"{prefix}experts.")
    shared = {w: source.weight(f"{prefix}shared_experts.{w}.weight") for w in ("w1", "w3", "w2")}
    return Moe(
        gate=source.plain(f"{prefix}gate.weight"),
        bias=None if hashed else source.plain(f"{prefix}gate.bias"),
        table=source.plain(f"{prefix}gate.tid2eid") if hashed else None,
        w1=w1,
        w3=w3,
        w2=w2,
        shared_w1=shared["w1"],
        shared_w3=shared["w3"],
        shared_w2=shared["w2"],
    )


def _mtp(config: Config, source: Source) -> Mtp:
    prefix = "mtp.0."
    return Mtp(
        enorm=source.plain(f"{prefix}enorm.weight"),
        hnorm=source.plain(f"{prefix}hnorm.weight"),
        e_proj=source.weight(f"{prefix}e_proj.weight"),
        h_proj=source.weight(f"{prefix}h_proj.weight"),
        block=_block(source, prefix, config.mtp_ratios[0], config.hashed(config.num_hidden_layers)),
        hc_head=_hc(source, f"{prefix}hc_head"),
        norm=source.plain(f"{prefix}norm.weight"),
    )
