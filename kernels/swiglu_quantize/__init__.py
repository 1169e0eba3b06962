"""SwiGLU of an expert's two projections, and the quantisation of its result, in one launch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.shared.quantised import (
    Quantised,
    check_arch,
    check_config,
    check_global_scale,
    check_rows,
    check_tensor,
    format_for,
    outputs,
)

__all__ = ["Quantised", "swiglu_quantize"]

OP = "swiglu_quantize"


def swiglu_quantize(
    gate: torch.Tensor,
    up: torch.Tensor,
    global_scale: torch.Tensor | None = None,
    *,
    format: str = "nvfp4",
    limit: float | None = 10.0,
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
    out: Quantised | None = None,
    backend: Any,
    kernel: Any = None,
    ctas: int | None = None,
) -> Quantised:
    """h = silu(min(gate, limit)) clamp(up, -limit, limit), stored as NVFP4 or FP8: gate, up [rows, k] BF16.

    global_scale  fp32, one element on the device, > 0: of nvfp4, which needs it; fp8 takes none
    format        "nvfp4", with `swizzled`, as quantize_nvfp4; "fp8", with `block` and `scale`, as quantize_fp8
    limit         a finite number above 0, or None for no limits
    gate, up      the last stride 1, the others (one each: halves of one tensor will do) and the addresses multiples of
                  16 bytes, k a multiple of the block

    h is computed in fp32 with an error of at most 2^-21 of it, and not rounded before it is quantised: a value so near
    a midpoint may get the neighbouring code. NaN stays visible as in the quantiser. One launch, no synchronisation,
    inputs unchanged. No rows: empty tensors, no launch. Raises ValueError naming argument, value and what is allowed
    before anything is launched. `kernel` replaces the kernel's class, `ctas` how many share the rows.
    """
    check_arch(OP, backend)
    form = format_for(OP, backend, format, block, scale, swizzled)
    for name, x in (("gate", gate), ("up", up)):
        check_tensor(OP, name, x, (torch.bfloat16,), backend)
        check_rows(OP, name, x, form.block)
    if up.shape != gate.shape:
        raise ValueError(f"{OP}: up.shape={tuple(up.shape)}; allowed: that of gate, {tuple(gate.shape)}")
    check_global_scale(OP, form, global_scale, backend)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
        raise ValueError(f"{OP}: limit={limit!r}; allowed: a finite number above 0, or None")

    from kernels.swiglu_quantize.config import SwigluConfig, threads_for

    config = SwigluConfig(form, "bf16", threads_for(gate.shape[1] // 16), limit=None if limit is None else float(limit))
    check_config(OP, config.problems())
    result = outputs(OP, form, gate.shape[0], gate.shape[1], global_scale, out, backend)
    if gate.shape[0] == 0:
        return result

    from kernels.shared.launches import launch_chunks
    from kernels.swiglu_quantize.simt import SwigluQuantize

    inputs = {"gate": gate, "up": up}
    launch_chunks(OP, kernel or SwigluQuantize, config, inputs, global_scale, None, result, backend, ctas)
    return result
