"""A layout as CuTe writes it, as byte offsets: nested shape and stride, and the swizzle of the addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.debug.errors import BadBreakpoint
from emulator.memory.swizzle import B32, B64, B128, NONE, Swizzle

SWIZZLES: dict[str, Swizzle] = {"none": NONE, "32B": B32, "64B": B64, "128B": B128}
Mode = Any
"""An extent, or a tuple of modes."""


def offsets(shape: Mode, stride: Mode | None) -> NDArray[np.int64]:
    """Element offsets of a layout: one dimension for each top-level mode; a nested mode counts its first sub-mode
    fastest, as CuTe does. Without strides the last mode is the fastest (row-major)."""
    modes = shape if isinstance(shape, tuple) else (shape,)
    if stride is None:
        flat = [_size(m) for m in modes]
        steps: Mode = tuple(int(np.prod(flat[k + 1 :], dtype=np.int64)) for k in range(len(flat)))
        modes = tuple(flat)
    else:
        steps = stride if isinstance(stride, tuple) else (stride,)
    if len(modes) != len(steps):
        raise BadBreakpoint(f"layout: shape {shape} has {len(modes)} modes, stride {stride} has {len(steps)}")
    result = np.zeros((), np.int64)
    for mode, step in zip(modes, steps, strict=True):
        result = result[..., None] + _mode(mode, step)
    return result


def _mode(shape: Mode, stride: Mode) -> NDArray[np.int64]:
    if isinstance(shape, tuple) != isinstance(stride, tuple):
        raise BadBreakpoint(f"layout: mode of shape {shape} with stride {stride}; allowed: the same nesting")
    if not isinstance(shape, tuple):
        if not isinstance(shape, int) or not isinstance(stride, int) or shape < 1:
            raise BadBreakpoint(f"layout: mode {shape}:{stride}; allowed: integers, extents of at least 1")
        return np.arange(shape, dtype=np.int64) * stride
    if len(shape) != len(stride):
        raise BadBreakpoint(f"layout: mode of shape {shape} with stride {stride}; allowed: the same nesting")
    result = np.zeros(1, np.int64)
    for sub, step in zip(shape, stride, strict=True):
        result = (_mode(sub, step)[:, None] + result).ravel()
    return result


def _size(shape: Mode) -> int:
    return int(np.prod([_size(m) for m in shape], dtype=np.int64)) if isinstance(shape, tuple) else int(shape)


def byte_offsets(start: int, shape: Mode, stride: Mode | None, size: int, swizzle: str) -> NDArray[np.int64]:
    """Byte offsets of elements of `size` bytes in a tile that starts at byte `start`; the swizzle acts on whole
    addresses. Raises BadBreakpoint."""
    if swizzle not in SWIZZLES:
        raise BadBreakpoint(f"swizzle={swizzle!r}; allowed: {', '.join(SWIZZLES)}")
    return SWIZZLES[swizzle].apply(start + offsets(shape, stride) * size)
