"""The host side of the epilogues on sm_100a: checks, outputs, the launch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.linear.epilogues import Epilogue, Quantise, Rotate, Swiglu
from kernels.linear.sm100_host import Settings, check, config_for, launch
from kernels.linear.sm100_pack import PackedSm100
from kernels.shared.formats import BlockFormat
from kernels.shared.quantised import (
    Quantised,
    check_global_scale,
    check_shape,
    check_tensor,
    format_for,
    outputs,
)

OP = "linear"


def finished(
    x: Any, packed: PackedSm100, out: Any, epilogue: Any, backend: Any, kernel: Any, settings: Settings
) -> Any:
    """What ``kernels.linear.linear`` gives with an epilogue: a tensor [m, n], or a ``Quantised``."""
    if not isinstance(epilogue, Quantise | Swiglu | Rotate):
        raise ValueError(
            f"{OP}: epilogue is a {type(epilogue).__name__}; allowed: None, Quantise, Swiglu, Rotate of kernels.linear"
        )
    m = check(OP, x, packed, backend)
    if packed.interleaved != isinstance(epilogue, Swiglu):
        raise ValueError(
            f"{OP}: packed.interleaved={packed.interleaved} with epilogue {type(epilogue).__name__}; "
            "allowed: True with Swiglu, False with others"
        )
    ending, form = _ending(epilogue, m, backend)
    n = packed.parts[0] // ending.accumulators
    vector = n % 8 == 0 and (not isinstance(out, torch.Tensor) or out.data_ptr() % 16 == 0)
    config = config_for(OP, packed, m, vector=vector, epilogue=ending, settings=settings)
    result: Any = _plain(out, (m, n), backend) if form is None else None
    if form is not None:
        store: Any = epilogue.store if isinstance(epilogue, Swiglu) else epilogue
        result = outputs(OP, form, m, n, store.global_scale, out, backend)
    if m == 0:
        return result

    if kernel is None:
        from kernels.linear.sm100_epilogues import kernel_for

        kernel = kernel_for(ending)
    to = result.codes if isinstance(result, Quantised) else result
    extras = _extras(result, epilogue, backend)
    launch(OP, config, x, packed, to.view(-1), settings.get("ctas"), backend, kernel, extras)
    return result


def _ending(epilogue: Quantise | Swiglu | Rotate, m: int, backend: Any) -> tuple[Epilogue, BlockFormat | None]:
    """What the kernel is compiled for, and the format of the outputs."""
    if isinstance(epilogue, Rotate):
        from kernels.rope import check_angles

        width = check_angles(OP, epilogue.cos, epilogue.sin, m, backend)
        if not isinstance(epilogue.head, int) or not isinstance(epilogue.inverse, bool):
            raise ValueError(
                f"{OP}: epilogue Rotate: head={epilogue.head!r}, inverse={epilogue.inverse!r}; allowed: an integer, "
                "True or False"
            )
        return Epilogue("rotate", head=epilogue.head, width=width, inverse=epilogue.inverse), None
    limit = epilogue.limit if isinstance(epilogue, Swiglu) else None
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
        raise ValueError(f"{OP}: epilogue Swiglu: limit={limit!r}; allowed: a finite number above 0, or None")
    store = epilogue.store if isinstance(epilogue, Swiglu) else epilogue
    form = None if store is None else _format(store, backend)
    kind = "swiglu" if isinstance(epilogue, Swiglu) else "quantise"
    return Epilogue(kind, form, None if limit is None else float(limit)), form


def _format(store: Any, backend: Any) -> BlockFormat:
    """The format that outputs are stored in."""
    if not isinstance(store, Quantise):
        raise ValueError(f"{OP}: epilogue Swiglu: store is a {type(store).__name__}; allowed: None or Quantise")
    form = format_for(OP, backend, store.format, store.block, store.scale, store.swizzled)
    check_global_scale(OP, form, store.global_scale, backend, "epilogue global_scale")
    return form


def _plain(out: Any, shape: tuple[int, int], backend: Any) -> torch.Tensor:
    """A BF16 output: the given one if it fits, else a new one."""
    if out is None:
        return backend.empty(shape, torch.bfloat16, "out")
    check_tensor(OP, "out", out, (torch.bfloat16,), backend)
    check_shape(OP, "out", out, shape)
    return out


def _extras(result: Any, epilogue: Any, backend: Any) -> tuple[Any, Any, Any, Any]:
    """Block scales and global scale of quantised outputs, cos and sin."""
    scales = scale = cos = sin = None
    if isinstance(result, Quantised):
        scales = backend.tensor(result.scales, "scales", align=16)
        if result.global_scale is not None:
            g = result.global_scale.detach().reshape(1)
            scale = backend.tensor(g, "global_scale", align=4, writable=False)
    if isinstance(epilogue, Rotate):
        angles = {"leading_dim": 1, "align": 16, "writable": False}
        cos = backend.tensor(epilogue.cos.detach(), "cos", **angles)
        sin = backend.tensor(epilogue.sin.detach(), "sin", **angles)
    return scales, scale, cos, sin
