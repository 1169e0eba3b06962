"""RMSNorm of rows and the quantisation of its result, in one launch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.rmsnorm_quantize.config import MANY_ROWS, RowConfig
from kernels.shared.quantised import (
    DTYPES,
    Quantised,
    check_arch,
    check_config,
    check_global_scale,
    check_number,
    check_rows,
    check_shape,
    check_start,
    check_tensor,
    format_for,
    outputs,
    row_stride,
)

__all__ = ["Quantised", "rmsnorm_quantize"]

OP = "rmsnorm_quantize"


def rmsnorm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    global_scale: torch.Tensor | None = None,
    *,
    format: str = "nvfp4",
    eps: float = 1e-6,
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
    out: Quantised | None = None,
    backend: Any,
    kernel: Any = None,
    ctas: int | None = None,
) -> Quantised:
    """quantise(w x / sqrt(mean(x^2) + eps)): x [rows, k] BF16, weight [k] BF16 or fp32.

    global_scale  fp32, one element on the device, > 0: of nvfp4, which needs it; fp8 takes none
    format        "nvfp4", with `swizzled`, as quantize_nvfp4; "fp8", with `block` and `scale`, as quantize_fp8
    eps           finite, at least 1e-30
    x             the last stride 1, the other and the address multiples of 16 bytes; k a multiple of the block, at most
                  32,768. Magnitudes below 1.8e19: squares are fp32 numbers

    The norm is as good as rounded once to fp32, and is not stored. A row of zeros has codes of zero. NaN or infinity
    in x makes the codes of its row NaN (finite values beside infinity: zeros). One launch, no synchronisation, inputs
    unchanged. No rows: empty tensors, no launch. Raises ValueError naming argument, value and what is allowed before
    anything is launched. `kernel` replaces the kernel's class, `ctas` how many share the rows (default: one each
    of few rows). The weight is read while
    the kernel before may still run (programmatic dependent launch): it must not write it.
    """
    check_arch(OP, backend)
    form = format_for(OP, backend, format, block, scale, swizzled)
    check_tensor(OP, "x", x, (torch.bfloat16,), backend)
    check_rows(OP, "x", x, form.block)
    check_tensor(OP, "weight", weight, DTYPES, backend)
    check_shape(OP, "weight", weight, (x.shape[1],))
    check_start(OP, "weight", weight)
    check_global_scale(OP, form, global_scale, backend)
    many = x.shape[0] >= MANY_ROWS if ctas is None else ctas < x.shape[0]
    config = RowConfig(x.shape[1], form, DTYPES[weight.dtype], check_number(OP, "eps", eps), many)
    check_config(OP, config.problems())
    result = outputs(OP, form, x.shape[0], x.shape[1], global_scale, out, backend)
    if x.shape[0]:
        _launch(config, x, weight, result, backend, kernel, ctas)
    return result


def _launch(
    config: RowConfig,
    x: torch.Tensor,
    weight: torch.Tensor,
    result: Quantised,
    backend: Any,
    kernel: Any,
    ctas: int | None,
) -> None:
    from cutlass import Int32

    if kernel is None:
        from kernels.rmsnorm_quantize.simt import RmsnormQuantize as kernel
    g = result.global_scale
    padded_rows = config.format.padded(x.shape[0], config.chunks)[0]
    arguments = (
        backend.tensor(x.detach(), "x", leading_dim=1, align=16, writable=False),
        backend.tensor(weight.detach(), "weight", align=16, writable=False),
        None if g is None else backend.tensor(g.detach().reshape(1), "global_scale", align=4, writable=False),
        backend.tensor(result.codes, "codes", leading_dim=1, align=16),
        backend.tensor(result.scales, "scales", align=16),
        Int32(x.shape[0]),
        Int32(padded_rows),
        Int32(row_stride(x)),
        Int32(min(padded_rows, ctas or backend.multiprocessors * config.resident) if config.many else padded_rows),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=OP), *arguments)
