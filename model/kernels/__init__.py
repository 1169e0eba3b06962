"""The kernels that take places of oracles in the model: what each is made of, and which models it refuses.

Operations with linears have three: one that leaves products to PyTorch, for weights without a linear kernel, and behind
it, taken if they may run, those with the linears of sm_90a (exact products of BF16 inputs) and of sm_100a (NVFP4 inputs
times NVFP4 weights).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernels.mhc.config import STREAMS
from kernels.qk_norm_rope.config import QkConfig
from kernels.rope.config import RopeConfig
from model.kernels.functions import Functions
from model.kernels.linears import Dense, Exact, Linears, Scaled
from model.ops import Given, Kernel
from model.packs import Bound
from model.reference import Stored
from model.weights import Block, Quantised, Weight

__all__ = ["KERNELS"]

FORMS = ("nvfp4", "mxfp4", "fp8")
"""Of weights that the linears of BF16 inputs read."""
BOTH = ("sm90", "sm100")
Groups = Iterator[tuple[str, tuple[Weight, ...]]]
"""Weights that share a launch, with their names."""
Check = Callable[[Given], str]


def _blocks(given: Given) -> Iterator[tuple[str, Block]]:
    yield from ((f"layers.{i}", block) for i, block in enumerate(given.weights.layers))
    if given.weights.mtp is not None:
        yield "mtp.0", given.weights.mtp.block


def _of_qkv(given: Given) -> Groups:
    for name, block in _blocks(given):
        yield f"{name}.attn.wq_a and wkv", (block.attention.wq_a, block.attention.wkv)
        yield f"{name}.attn.wq_b", (block.attention.wq_b,)


def _of_output(given: Given) -> Groups:
    for name, block in _blocks(given):
        yield f"{name}.attn.wo_a", (block.attention.wo_a,)
        yield f"{name}.attn.wo_b", (block.attention.wo_b,)


def _of_index(given: Given) -> Groups:
    for name, block in _blocks(given):
        if block.attention.indexer is not None:
            yield f"{name}.attn.indexer.wq_b", (block.attention.indexer.wq_b,)


def _of_expert(given: Given) -> Groups:
    for name, block in _blocks(given):
        yield f"{name}.ffn.shared_experts.w1 and w3", (block.moe.shared_w1, block.moe.shared_w3)
        yield f"{name}.ffn.shared_experts.w2", (block.moe.shared_w2,)


def _of_head(given: Given) -> Groups:
    yield "head", (given.weights.head,)


def _of_draft(given: Given) -> Groups:
    if given.weights.mtp is not None:
        yield "mtp.0.e_proj", (given.weights.mtp.e_proj,)
        yield "mtp.0.h_proj", (given.weights.mtp.h_proj,)


def _packable(groups: Callable[[Given], Groups], taken: tuple[str, ...]) -> Check:
    """Why linears that take these formats do not take some of the weights."""

    def check(given: Given) -> str:
        for name, weights in groups(given):
            forms = [w.form if isinstance(w, Quantised) else str(w.dtype) for w in weights]
            if len(set(forms)) > 1 or forms[0] not in taken:
                return f"{name}: {', '.join(dict.fromkeys(forms))}; the linear kernels take {', '.join(taken)}"
        return ""

    return check


def _streams(given: Given) -> str:
    n = given.config.hc_mult
    return "" if n == STREAMS else f"hc_mult={n}; the mHC kernels take {STREAMS}"


def _stores(given: Given) -> str:
    return "" if given.stored != "plain" else "inputs of linears are stored as bf16; the pass stores fp8 or nvfp4"


def _nvfp4(given: Given) -> str:
    found = "bf16" if given.stored == "plain" else given.stored
    return "" if found == "nvfp4" else f"inputs of linears are stored as {found}; the block-scaled linears take nvfp4"


def _heads(given: Given) -> str:
    c = given.config
    config = QkConfig(c.num_attention_heads, c.head_dim, c.qk_rope_head_dim, eps=c.rms_norm_eps)
    return "; ".join(config.problems())


def _whole_groups(given: Given) -> str:
    """A block of FP8 scales has 128 rows, all of one group."""
    for name, block in _blocks(given):
        w, rows = block.attention.wo_a, given.config.o_lora_rank
        if isinstance(w, Quantised) and w.form == "fp8" and rows % 128:
            return f"{name}.attn.wo_a: fp8 in groups of {rows} rows; the linear kernels take multiples of 128"
    return ""


def _rotated(heads: str) -> Check:
    def check(given: Given) -> str:
        return "; ".join(RopeConfig(getattr(given.config, heads), given.config.qk_rope_head_dim).problems())

    return check


def _bf16(given: Given) -> str:
    return "" if given.dtype == torch.bfloat16 else f"activations are {given.dtype}; the kernels take torch.bfloat16"


def _kernel(
    op: str,
    gates: tuple[str, ...],
    *checks: Check,
    arches: tuple[str, ...] = BOTH,
    linears: Callable[[Bound], Linears] = Dense,
    storing: dict[Stored, tuple[str, ...]] | None = None,
    note: str = "",
) -> Kernel:
    """One row of `KERNELS`: `gates`, and those of `storing` for the form in use; the first check that says something is
    the refusal."""

    def bind(bound: Bound) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(Functions(bound, linears(bound)), op)
        return function

    def refuses(given: Given) -> str:
        return next((why for check in (_bf16, *checks) if (why := check(given))), "")

    return Kernel(op, arches, bind, gates, refuses, note, storing or {})


def _three(
    op: str,
    passes: tuple[str, ...],
    linears: tuple[str, ...],
    groups: Callable[[Given], Groups],
    *checks: Check,
    storing: dict[Stored, tuple[str, ...]] | None = None,
    note: str = "",
    codes: bool = False,
    also: tuple[Check, ...] = (),
) -> tuple[Kernel, ...]:
    """An operation whose linears are PyTorch's, those of sm_90a, those of sm_100a. Without passes of its own the first
    needs inputs that are stored. codes: sm_100a quantises an input again that comes as values. also: further checks of
    the linears."""
    alone = checks if passes else (*checks, _stores)
    scaled = (*(f"{gate}_w4a4" for gate in linears), *passes, *(("quantize_nvfp4",) if codes else ()))
    exact, blocks = (_packable(groups, FORMS), *also), (_packable(groups, ("nvfp4",)), *also)
    return (
        _kernel(op, passes, *alone, storing=storing, note="its linears in PyTorch"),
        _kernel(op, (*linears, *passes), *checks, *exact, arches=("sm90",), linears=Exact, storing=storing, note=note),
        _kernel(op, scaled, *checks, _nvfp4, *blocks, arches=("sm100",), linears=Scaled, storing=storing, note=note),
    )


_NORM: dict[Stored, tuple[str, ...]] = {"fp8": ("rmsnorm_quantize",), "nvfp4": ("rmsnorm_quantize",)}
_SWIGLU: dict[Stored, tuple[str, ...]] = {"fp8": ("swiglu_quantize",), "nvfp4": ("swiglu_quantize",)}
_KEPT: dict[Stored, tuple[str, ...]] = {"fp8": ("quantize_fp8",), "nvfp4": ("quantize_nvfp4",)}

KERNELS: tuple[Kernel, ...] = (
    _kernel("mhc_pre", ("mhc_pre_rmsnorm_quantize",), _streams, _stores),
    _kernel("mhc_post", ("mhc_post",), _streams),
    *_three(
        "qkv_projection",
        ("qk_norm_rope",),
        ("multi_linear", "nvfp4_linear"),
        _of_qkv,
        _heads,
        storing=_NORM,
        codes=True,
    ),
    *_three("index_queries", ("rope",), ("nvfp4_linear",), _of_index, _rotated("index_n_heads"), codes=True),
    *_three(
        "output_projection",
        ("rope",),
        ("grouped_linear", "nvfp4_linear"),
        _of_output,
        _rotated("num_attention_heads"),
        storing=_KEPT,
        also=(_whole_groups,),
    ),
    *_three("shared_expert", (), ("multi_linear", "nvfp4_linear"), _of_expert, storing=_SWIGLU, codes=True),
    *_three("logits", (), ("nvfp4_linear",), _of_head, storing=_NORM, note="in BF16"),
    *_three("mtp_combine", (), ("nvfp4_linear",), _of_draft, storing=_NORM),
)
"""All of them; `Ops.from_ledger` chooses."""
