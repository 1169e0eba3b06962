"""FP8: a matrix becomes E4M3 codes and one scale for 32, 64 or 128 values of a row."""

from __future__ import annotations

from typing import Any

import torch

from kernels.shared.quantised import (
    DTYPES,
    Quantised,
    check_arch,
    check_rows,
    check_tensor,
    format_for,
    outputs,
)

__all__ = ["Quantised", "quantize_fp8"]

OP = "quantize_fp8"


def quantize_fp8(
    x: torch.Tensor,
    *,
    block: int = 128,
    scale: str = "ue8m0",
    out: Quantised | None = None,
    backend: Any,
    kernel: Any = None,
    ctas: int | None = None,
) -> Quantised:
    """x [rows, k] BF16 or fp32 -> E4M3 codes uint8 [rows, k] and scales [rows, k / block].

    block  32, 64 or 128 values of a row share a scale; k is a multiple of it
    scale  "ue8m0": bytes, the smallest power of two s with 448 s >= amax. "fp32": amax / 448
    out    written and returned if given
    x      the last stride 1, the other and the address multiples of 16 bytes

    amax is at least 1e-4, so a block of zeros has the scale of that and codes 0. code = E4M3(x / s), the quotient one
    fp32 operation, nearest even, saturating at 448. NaN makes a block NaN. Infinity: the largest scale, code 448
    (ue8m0), or NaN with zeros around it (fp32: s is infinite). One launch, no synchronisation, x unchanged. No rows:
    empty tensors, no launch. Raises ValueError naming argument, value and what is allowed before anything is launched.
    `kernel` replaces the kernel's class, `ctas` how many share the rows.
    """
    check_arch(OP, backend)
    form = format_for(OP, backend, "fp8", block, scale)
    check_tensor(OP, "x", x, DTYPES, backend)
    check_rows(OP, "x", x, form.block)
    result = outputs(OP, form, x.shape[0], x.shape[1], None, out, backend)
    if x.shape[0] == 0:
        return result

    from kernels.quantize_fp8.config import ChunkConfig, threads_for
    from kernels.quantize_fp8.simt import QuantizeFp8
    from kernels.shared.launches import launch_chunks

    config = ChunkConfig(form, DTYPES[x.dtype], threads_for(x.shape[1] // 16))
    launch_chunks(OP, kernel or QuantizeFp8, config, {"x": x}, None, None, result, backend, ctas)
    return result
