"""NVFP4: a matrix becomes E2M1 codes, E4M3 block scales and one fp32 global scale, without a look from the host."""

from __future__ import annotations

from typing import Any

import torch

from kernels.shared.quantised import (
    DTYPES,
    Quantised,
    check_arch,
    check_rows,
    check_scalar,
    check_tensor,
    format_for,
    outputs,
    row_stride,
)

__all__ = ["Quantised", "quantize_nvfp4"]

OP = "quantize_nvfp4"


def quantize_nvfp4(
    x: torch.Tensor,
    global_scale: torch.Tensor | None = None,
    *,
    swizzled: bool = False,
    out: Quantised | None = None,
    backend: Any,
    kernel: Any = None,
    ctas: int | None = None,
) -> Quantised:
    """x [rows, k] BF16 or fp32 -> codes [rows, k / 2], E4M3 scales [rows, k / 16] and the fp32 global scale.

    global_scale  fp32, one element on the device, > 0. None: amax / (6 x 448) of x, found by a launch of its own;
                  1 for a tensor of zeros or without rows, NaN if x holds NaN or infinity
    swizzled      scales flat, in atoms of 128 rows x 4 (PTX, scale factors of tcgen05.mma), padding 0
    out           written and returned, with the global scale in use, if given
    x             the last stride 1, the other and the address multiples of 16 bytes, k a multiple of 16

    s = E4M3(amax / (6 g)), code = E2M1(x / (s g)), each step one fp32 operation, nearest even, saturating: 448 and 6. A
    block whose scale rounds to 0 has signed zeros. NaN makes its block's scale NaN and its codes +6; infinity counts as
    amax: a scale of 448, a code of 6. One launch, two with global_scale None; no synchronisation; x unchanged. No rows:
    empty tensors, no launch of a kernel. Raises ValueError naming argument, value and what is allowed before anything
    is launched. `kernel` replaces the kernel's class, `ctas` how many share the rows.
    """
    check_arch(OP, backend)
    form = format_for(OP, backend, "nvfp4", swizzled=swizzled)
    check_tensor(OP, "x", x, DTYPES, backend)
    check_rows(OP, "x", x)
    if global_scale is not None:
        check_scalar(OP, "global_scale", global_scale, backend)
    result = outputs(OP, form, x.shape[0], x.shape[1], global_scale, out, backend)
    new = backend.empty((), torch.float32, "global_scale") if global_scale is None else None
    if new is not None:
        result = Quantised(result.codes, result.scales, new)
    if x.shape[0] == 0:
        if new is not None:
            new.fill_(1.0)
        return result

    from kernels.quantize_nvfp4.config import ChunkConfig, threads_for
    from kernels.quantize_nvfp4.simt import QuantizeNvfp4
    from kernels.shared.launches import launch_chunks

    config = ChunkConfig(form, DTYPES[x.dtype], threads_for(x.shape[1] // 16), global_scale is None)
    scale = global_scale if new is None else _largest(x, config, backend, ctas)
    launch_chunks(OP, kernel or QuantizeNvfp4, config, {"x": x}, scale, new, result, backend, ctas)
    return result


def _largest(x: torch.Tensor, config: Any, backend: Any, ctas: int | None) -> torch.Tensor:
    """Partial maxima of |x|, the bits of floats."""
    from cutlass import Int32

    from kernels.quantize_nvfp4.config import parts_for
    from kernels.quantize_nvfp4.simt import Largest

    count = ctas or parts_for(x.numel() // 16, backend.multiprocessors)
    parts = backend.empty((count,), torch.uint32, "partial maxima")
    arguments = (
        backend.tensor(x.detach(), "x", leading_dim=1, align=16, writable=False),
        backend.tensor(parts, "partial maxima", align=4),
        Int32(x.shape[0]),
        Int32(x.shape[1] // 16),
        Int32(row_stride(x)),
        Int32(count),
        backend.stream(),
    )
    backend.launch(backend.compile(Largest(config), *arguments, name="largest"), *arguments)
    return parts
