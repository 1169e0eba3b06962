"""Operators of the block-scaled linears with something at their end (sm_100a); x and weight come as in `scaled`.

dsv4::nvfp4_linear_quantize      -> codes, scales of the outputs
dsv4::nvfp4_linear_swiglu        -> codes, scales of SwiGLU; the weight holds gate and up, interleaved
dsv4::nvfp4_linear_swiglu_bf16   -> SwiGLU, BF16
dsv4::nvfp4_linear_rope          -> outputs BF16, the end of each head rotated
"""

from __future__ import annotations

from typing import Any

import torch

from kernels import linear as kernel
from kernels.library.operator import operator
from kernels.library.places import backend_for, own
from kernels.library.quantisers import stored
from kernels.library.scaled import tensors_of
from kernels.linear import PackedSm100, Quantise, Rotate, Swiglu
from kernels.shared.quantised import Quantised

Tensor = torch.Tensor


def _run(op: str, x: Quantised, packed: PackedSm100, epilogue: Any) -> Any:
    return kernel.linear(x, packed, epilogue=epilogue, backend=backend_for(op, x.codes))


@operator("nvfp4_linear_quantize", lambda a: stored(a, a.codes, a.codes.shape[0], a.n))
def quantize_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    n: int,
    k: int,
    out_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
) -> tuple[Tensor, Tensor]:
    """See ``kernels.linear.Quantise``."""
    packed = PackedSm100(w_codes, w_scales, alpha, (n,), k)
    ending = Quantise(format, out_scale, swizzled, block, scale)
    found = _run("nvfp4_linear_quantize", Quantised(codes, scales, global_scale), packed, ending)
    return own(found.codes), own(found.scales)


@operator("nvfp4_linear_swiglu", lambda a: stored(a, a.codes, a.codes.shape[0], a.n))
def swiglu_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    n: int,
    k: int,
    limit: float | None,
    out_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
) -> tuple[Tensor, Tensor]:
    """See ``kernels.linear.Swiglu``; n: outputs, half the rows of the weight."""
    packed = PackedSm100(w_codes, w_scales, alpha, (2 * n,), k, interleaved=True)
    ending = Swiglu(limit, Quantise(format, out_scale, swizzled, block, scale))
    found = _run("nvfp4_linear_swiglu", Quantised(codes, scales, global_scale), packed, ending)
    return own(found.codes), own(found.scales)


@operator("nvfp4_linear_swiglu_bf16", lambda a: a.codes.new_empty((a.codes.shape[0], a.n), dtype=torch.bfloat16))
def swiglu_bf16_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    n: int,
    k: int,
    limit: float | None,
) -> Tensor:
    """See ``kernels.linear.Swiglu``; n: outputs, half the rows of the weight."""
    packed = PackedSm100(w_codes, w_scales, alpha, (2 * n,), k, interleaved=True)
    return own(_run("nvfp4_linear_swiglu_bf16", Quantised(codes, scales, global_scale), packed, Swiglu(limit)))


@operator("nvfp4_linear_rope", lambda a: a.codes.new_empty((a.codes.shape[0], a.n), dtype=torch.bfloat16))
def rope_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    n: int,
    k: int,
    cos: Tensor,
    sin: Tensor,
    head: int,
    inverse: bool,
) -> Tensor:
    """See ``kernels.linear.Rotate``."""
    packed = PackedSm100(w_codes, w_scales, alpha, (n,), k)
    x, ending = Quantised(codes, scales, global_scale), Rotate(cos, sin, head, inverse)
    return own(_run("nvfp4_linear_rope", x, packed, ending))


def nvfp4_linear_quantize(x: Quantised, packed: PackedSm100, store: Quantise) -> Quantised:
    """The outputs of one weight, stored as codes."""
    given = (*_one("nvfp4_linear_quantize", x, packed, False), packed.parts[0], packed.k)
    return Quantised(*quantize_op(*given, *_settings(store)), store.global_scale)


def nvfp4_linear_swiglu(x: Quantised, packed: PackedSm100, *, limit: float | None = 10.0, store: Quantise) -> Quantised:
    """SwiGLU of a gate and an up packed with `interleaved`, stored as codes."""
    given = (*_one("nvfp4_linear_swiglu", x, packed, True), packed.parts[0] // 2, packed.k)
    return Quantised(*swiglu_op(*given, limit, *_settings(store)), store.global_scale)


def nvfp4_linear_swiglu_bf16(x: Quantised, packed: PackedSm100, *, limit: float | None = 10.0) -> Tensor:
    """SwiGLU of a gate and an up packed with `interleaved`: BF16 [m, n]."""
    given = (*_one("nvfp4_linear_swiglu_bf16", x, packed, True), packed.parts[0] // 2, packed.k)
    return swiglu_bf16_op(*given, limit)


def nvfp4_linear_rope(
    x: Quantised, packed: PackedSm100, cos: Tensor, sin: Tensor, *, head: int = 512, inverse: bool = False
) -> Tensor:
    """The outputs of one weight, the end of every head of `head` outputs rotated: BF16 [m, n]."""
    given = (*_one("nvfp4_linear_rope", x, packed, False), packed.parts[0], packed.k)
    return rope_op(*given, cos, sin, head, inverse)


def _one(op: str, x: Quantised, packed: PackedSm100, interleaved: bool) -> tuple[Tensor, ...]:
    """The tensors of an operator that takes one weight."""
    if len(packed.parts) != 1 or packed.grouped or packed.interleaved != interleaved:
        raise ValueError(
            f"{op}: packed has parts={packed.parts}, grouped={packed.grouped}, interleaved={packed.interleaved}; "
            f"allowed: one, False, {interleaved}"
        )
    return tensors_of(op, x, packed)


def _settings(store: Quantise) -> tuple[Tensor | None, str, int | None, str, bool]:
    return store.global_scale, store.format, store.block, store.scale, store.swizzled
