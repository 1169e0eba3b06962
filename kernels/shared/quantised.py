"""What the quantising passes share on the host: their result, their checks, their output tensors. No CuTe here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from kernels.shared.formats import CHUNK, BlockFormat

ARCHS = ("sm_90a", "sm_100a")
"""Architectures with a kernel, as backends spell them."""
DTYPES = {torch.bfloat16: "bf16", torch.float32: "f32"}
MAX_ROWS = (1 << 31) - 256
MAX_VALUES = 1 << 34
MAX_K = 1 << 20
MAX_STRIDE = (1 << 31) - 1


@dataclass(frozen=True)
class Quantised:
    """Codes, block scales and global scale of a tensor [rows, k].

    codes         uint8: [rows, k / 2] E2M1, the even index in the low four bits; or [rows, k] E4M3
    scales        uint8 (E4M3 or UE8M0) or fp32, [rows, k / block]; swizzled: flat, in atoms of 128 x 4, padding 0
    global_scale  fp32 [] of NVFP4, on the device; else None
    """

    codes: torch.Tensor
    scales: torch.Tensor
    global_scale: torch.Tensor | None = None


def check_arch(op: str, backend: Any) -> None:
    """Raise ValueError if there is no kernel for the backend's architecture."""
    if backend.arch not in ARCHS:
        raise ValueError(f"{op}: arch={backend.arch} is not supported; supported: {', '.join(ARCHS)}")


def check_config(op: str, problems: list[str]) -> None:
    """Raise ValueError with every reason why there is no such kernel."""
    if problems:
        raise ValueError(f"{op}: {'; '.join(problems)}")


def check_tensor(op: str, name: str, x: Any, dtypes: Iterable[torch.dtype], backend: Any) -> None:
    """Raise ValueError unless x is a tensor of one of the types where the backend runs."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{op}: {name} is a {type(x).__name__}; allowed: a torch.Tensor")
    dtypes = tuple(dtypes)
    if x.dtype not in dtypes:
        raise ValueError(f"{op}: {name}.dtype={x.dtype}; allowed: {', '.join(map(str, dtypes))}")
    if x.device != backend.device:
        raise ValueError(f"{op}: {name}.device={x.device}; allowed: {backend.device}, where the backend runs")


def check_shape(op: str, name: str, x: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless x has exactly this shape and is contiguous."""
    if tuple(x.shape) != shape:
        raise ValueError(f"{op}: {name}.shape={tuple(x.shape)}; allowed: {shape}")
    if not x.is_contiguous():
        raise ValueError(f"{op}: {name} has strides {x.stride()}; allowed: contiguous")


def check_rows(op: str, name: str, x: torch.Tensor, block: int = CHUNK) -> None:
    """Raise ValueError unless x is [rows, k] that threads can read 16 bytes at a time, k a multiple of the block."""
    if x.dim() != 2:
        raise ValueError(f"{op}: {name}.shape={tuple(x.shape)}; allowed: 2 dimensions (rows, k)")
    rows, k = x.shape
    if k == 0 or k % block or k > MAX_K:
        raise ValueError(f"{op}: {name} has k={k}; allowed: multiples of {block} from {block} to {MAX_K}")
    if rows * k > MAX_VALUES:
        raise ValueError(f"{op}: {name} has {rows} x {k} values; allowed: at most {MAX_VALUES}")
    check_aligned(op, name, x)


def check_aligned(op: str, name: str, x: torch.Tensor) -> None:
    """Raise ValueError unless the last stride is 1 and all others, and the address, are multiples of 16 bytes."""
    if x.numel() == 0:
        return
    if x.stride(-1) != 1:
        raise ValueError(f"{op}: {name}.stride(-1)={x.stride(-1)}; allowed: 1")
    for mode, (extent, stride) in enumerate(zip(x.shape[:-1], x.stride()[:-1], strict=True)):
        if extent > 1 and (stride * x.element_size() % 16 or not 0 <= stride <= MAX_STRIDE):
            raise ValueError(
                f"{op}: {name}.stride({mode})={stride} elements of {x.element_size()} bytes; "
                f"allowed: multiples of 16 bytes from 0 to {MAX_STRIDE} elements"
            )
    check_start(op, name, x)


def check_start(op: str, name: str, x: torch.Tensor) -> None:
    """Raise ValueError unless x, if it has elements, starts at a multiple of 16 bytes."""
    past = x.data_ptr() % 16 if x.numel() else 0
    if past:
        raise ValueError(f"{op}: {name}.data_ptr() is {past} past a multiple of 16 bytes; allowed: multiples")


def check_scalar(op: str, name: str, x: Any, backend: Any) -> None:
    """Raise ValueError unless x is one fp32 number on the device. Its value is not looked at."""
    check_tensor(op, name, x, (torch.float32,), backend)
    if x.numel() != 1:
        raise ValueError(f"{op}: {name}.shape={tuple(x.shape)}; allowed: one element")


def check_global_scale(op: str, form: BlockFormat, x: Any, backend: Any, name: str = "global_scale") -> None:
    """Raise ValueError unless x is the global scale that the format needs: one of NVFP4, none of FP8."""
    if form.name == "nvfp4":
        check_scalar(op, name, x, backend)
    elif x is not None:
        raise ValueError(f"{op}: {name} is given; allowed for fp8: None")


def check_number(op: str, name: str, value: Any) -> float:
    """The value as a float. Raises ValueError unless it is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{op}: {name}={value!r}; allowed: a finite number above 0")
    return float(value)


def format_for(
    op: str, backend: Any, format: str, block: int | None = None, scale: str = "ue8m0", swizzled: bool = False
) -> BlockFormat:
    """The format by what a caller says of it. Raises ValueError if there is none."""
    if format not in ("nvfp4", "fp8"):
        raise ValueError(f"{op}: format={format!r}; allowed: nvfp4, fp8")
    if not isinstance(swizzled, bool):
        raise ValueError(f"{op}: swizzled={swizzled!r}; allowed: True, False")
    if format == "nvfp4":
        form = BlockFormat("nvfp4", 16 if block is None else block, "e4m3", swizzled, backend.arch == "sm_100a")
    else:
        form = BlockFormat("fp8", 128 if block is None else block, scale, swizzled)
    check_config(op, form.problems())
    return form


def outputs(
    op: str, form: BlockFormat, rows: int, k: int, scale: torch.Tensor | None, out: Quantised | None, backend: Any
) -> Quantised:
    """Tensors for the result: those of `out` if given (ValueError if they do not fit), else new ones."""
    codes_shape = (rows, k * form.code_bytes // CHUNK)
    scales_shape = form.scales_shape(rows, k)
    scales_dtype = torch.float32 if form.scale == "fp32" else torch.uint8
    if out is None:
        return Quantised(
            backend.empty(codes_shape, torch.uint8, "codes"), backend.empty(scales_shape, scales_dtype, "scales"), scale
        )
    if not isinstance(out, Quantised):
        raise ValueError(f"{op}: out is a {type(out).__name__}; allowed: a Quantised")
    for name, x, dtype, shape in (
        ("out.codes", out.codes, torch.uint8, codes_shape),
        ("out.scales", out.scales, scales_dtype, scales_shape),
    ):
        check_tensor(op, name, x, (dtype,), backend)
        check_shape(op, name, x, shape)
        check_start(op, name, x)
    return Quantised(out.codes, out.scales, scale)


def row_stride(x: torch.Tensor) -> int:
    """Elements from one row to the next; that of a single row is never used."""
    return x.stride(0) if x.shape[0] > 1 else x.shape[-1]
