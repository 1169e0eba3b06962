"""Operators that store a matrix [rows, k] as codes and block scales.

    dsv4::quantize_nvfp4           with the global scale given -> codes, scales
    dsv4::quantize_nvfp4_dynamic   -> codes, scales and the global scale, found on the device
    dsv4::quantize_fp8             -> codes, scales
    dsv4::rmsnorm_quantize         norm of the rows first
    dsv4::swiglu_quantize          SwiGLU of gate and up first

Two for NVFP4, because an operator may not give an argument back. The functions of these names give a `Quantised`.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels import quantize_fp8 as fp8
from kernels import quantize_nvfp4 as nvfp4
from kernels import rmsnorm_quantize as rmsnorm
from kernels import swiglu_quantize as swiglu
from kernels.library.operator import operator
from kernels.library.places import backend_for, own
from kernels.shared.formats import CHUNK, BlockFormat
from kernels.shared.quantised import Quantised

Tensor = torch.Tensor


def form_of(format: str, block: int | None, scale: str, swizzled: bool) -> BlockFormat:
    """What the named format stores; shapes do not depend on the architecture."""
    if format == "nvfp4":
        return BlockFormat("nvfp4", CHUNK if block is None else block, "e4m3", swizzled)
    return BlockFormat("fp8", 128 if block is None else block, scale, swizzled)


def fake_outputs(x: Tensor, form: BlockFormat, rows: int, k: int) -> tuple[Tensor, Tensor]:
    """Codes and scales without values; `rows` may be symbolic."""
    codes = x.new_empty((rows, k * form.code_bytes // CHUNK), dtype=torch.uint8)
    scales_dtype = torch.float32 if form.scale == "fp32" else torch.uint8
    return codes, x.new_empty(form.scales_shape(rows, k), dtype=scales_dtype)


def stored(a: Any, x: Tensor, rows: int, k: int) -> tuple[Tensor, Tensor]:
    """The same in the format that an operator's arguments name."""
    return fake_outputs(x, form_of(a.format, a.block, a.scale, a.swizzled), rows, k)


def _fake_dynamic(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    codes, scales = fake_outputs(a.x, form_of("nvfp4", None, "", a.swizzled), *a.x.shape)
    return codes, scales, a.x.new_empty((), dtype=torch.float32)


@operator("quantize_nvfp4", lambda a: fake_outputs(a.x, form_of("nvfp4", None, "", a.swizzled), *a.x.shape))
def quantize_nvfp4_op(x: Tensor, global_scale: Tensor, swizzled: bool) -> tuple[Tensor, Tensor]:
    """See ``kernels.quantize_nvfp4``."""
    backend = backend_for("quantize_nvfp4", x)
    found = nvfp4.quantize_nvfp4(x, global_scale, swizzled=swizzled, backend=backend)
    return own(found.codes), own(found.scales)


@operator("quantize_nvfp4_dynamic", _fake_dynamic)
def quantize_nvfp4_dynamic_op(x: Tensor, swizzled: bool) -> tuple[Tensor, Tensor, Tensor]:
    """See ``kernels.quantize_nvfp4``."""
    found = nvfp4.quantize_nvfp4(x, swizzled=swizzled, backend=backend_for("quantize_nvfp4", x))
    assert found.global_scale is not None
    return own(found.codes), own(found.scales), own(found.global_scale)


@operator("quantize_fp8", lambda a: fake_outputs(a.x, form_of("fp8", a.block, a.scale, False), *a.x.shape))
def quantize_fp8_op(x: Tensor, block: int, scale: str) -> tuple[Tensor, Tensor]:
    """See ``kernels.quantize_fp8``."""
    found = fp8.quantize_fp8(x, block=block, scale=scale, backend=backend_for("quantize_fp8", x))
    return own(found.codes), own(found.scales)


@operator("rmsnorm_quantize", lambda a: stored(a, a.x, *a.x.shape))
def rmsnorm_quantize_op(
    x: Tensor,
    weight: Tensor,
    global_scale: Tensor | None,
    format: str,
    eps: float,
    block: int | None,
    scale: str,
    swizzled: bool,
) -> tuple[Tensor, Tensor]:
    """See ``kernels.rmsnorm_quantize``."""
    backend, settings = backend_for("rmsnorm_quantize", x), {"block": block, "scale": scale, "swizzled": swizzled}
    found = rmsnorm.rmsnorm_quantize(x, weight, global_scale, format=format, eps=eps, **settings, backend=backend)
    return own(found.codes), own(found.scales)


@operator("swiglu_quantize", lambda a: stored(a, a.gate, *a.gate.shape))
def swiglu_quantize_op(
    gate: Tensor,
    up: Tensor,
    global_scale: Tensor | None,
    format: str,
    limit: float | None,
    block: int | None,
    scale: str,
    swizzled: bool,
) -> tuple[Tensor, Tensor]:
    """See ``kernels.swiglu_quantize``."""
    backend, settings = backend_for("swiglu_quantize", gate), {"block": block, "scale": scale, "swizzled": swizzled}
    found = swiglu.swiglu_quantize(gate, up, global_scale, format=format, limit=limit, **settings, backend=backend)
    return own(found.codes), own(found.scales)


def quantize_nvfp4(x: Tensor, global_scale: Tensor | None = None, *, swizzled: bool = False) -> Quantised:
    """x [rows, k] BF16 or fp32 as NVFP4; the global scale is the given one, or found on the device."""
    if global_scale is None:
        return Quantised(*quantize_nvfp4_dynamic_op(x, swizzled))
    return Quantised(*quantize_nvfp4_op(x, global_scale, swizzled), global_scale)


def quantize_fp8(x: Tensor, *, block: int = 128, scale: str = "ue8m0") -> Quantised:
    """x [rows, k] BF16 or fp32 as E4M3 with a scale for each `block` values of a row."""
    return Quantised(*quantize_fp8_op(x, block, scale))


def rmsnorm_quantize(
    x: Tensor,
    weight: Tensor,
    global_scale: Tensor | None = None,
    *,
    format: str = "nvfp4",
    eps: float = 1e-6,
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
) -> Quantised:
    """The rows of x over their root mean square, times the weight, quantised."""
    found = rmsnorm_quantize_op(x, weight, global_scale, format, eps, block, scale, swizzled)
    return Quantised(*found, global_scale)


def swiglu_quantize(
    gate: Tensor,
    up: Tensor,
    global_scale: Tensor | None = None,
    *,
    format: str = "nvfp4",
    limit: float | None = 10.0,
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
) -> Quantised:
    """silu(min(gate, limit)) clamp(up, -limit, limit), quantised."""
    found = swiglu_quantize_op(gate, up, global_scale, format, limit, block, scale, swizzled)
    return Quantised(*found, global_scale)
