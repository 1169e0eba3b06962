"""Raw words as numbers: the element types that views and breakpoints show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.units.formats import decode
from emulator.views.labels import ViewError

_PLAIN: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
}  # fmt: skip
_CODED: dict[str, Any] = {
    "bf16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8, "ue8m0": np.uint8, "ue4m3": np.uint8,
}  # fmt: skip
DTYPES = (*_PLAIN, *_CODED)


def width(dtype: str) -> int:
    """Bytes of one element. Raises ViewError for an unknown type."""
    if dtype not in DTYPES:
        raise ViewError(f"dtype={dtype!r}; allowed: {', '.join(DTYPES)}")
    return int(np.dtype(_PLAIN.get(dtype) or _CODED[dtype]).itemsize)


def elements(raw: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Contiguous raw data [..., n] of any unsigned type as elements of `dtype` [..., m]; formats that NumPy does not
    have (bf16, fp8, scales) come as float32 of the same value."""
    size = width(dtype)
    if raw.shape[-1] * raw.itemsize % size:
        raise ViewError(f"{raw.shape[-1] * raw.itemsize} bytes are no whole number of {dtype} elements")
    if dtype in _PLAIN:
        return np.ascontiguousarray(raw).view(_PLAIN[dtype])
    return decode(dtype, np.ascontiguousarray(raw).view(_CODED[dtype]))
