"""Element-wise read-modify-write of bulk and tensor reductions (cp.reduce.async.bulk), as measured on an H200."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction
from emulator.units.formats import decode, encode

Bits = NDArray[Any]

_BITWISE = ("and", "or", "xor")
_ORDERED = ("add", "min", "max")
LEGAL: dict[str, tuple[str, ...]] = {
    "u32": (*_ORDERED, *_BITWISE, "inc", "dec"),
    "s32": (*_ORDERED, *_BITWISE),
    "u64": (*_ORDERED, *_BITWISE),
    "s64": ("min", "max"),
    "f16": _ORDERED,
    "bf16": _ORDERED,
    "f32": ("add",),
    "f32ftz": ("add",),
    "f64": ("add",),
}
RAW: dict[str, type] = {
    "u32": np.uint32,
    "s32": np.uint32,
    "u64": np.uint64,
    "s64": np.uint64,
    "f16": np.uint16,
    "bf16": np.uint16,
    "f32": np.uint32,
    "f32ftz": np.uint32,
    "f64": np.uint64,
}
# Untyped elements of the bulk form, which only has bitwise operations on them.
_UNTYPED = {"b32": "u32", "b64": "u64"}
_SIGNED = {"s32": np.int32, "s64": np.int64}


def check(op: str, kind: str) -> None:
    """Raise IllegalInstruction unless the hardware has reduction `op` for elements of `kind`."""
    if op not in LEGAL.get(kind, ()):
        allowed = ", ".join(LEGAL[kind]) if kind in LEGAL else "none"
        raise IllegalInstruction(
            f"reduction .{op} on {kind} elements: the hardware faults; allowed for {kind}: {allowed}"
        )


def reduce_values(op: str, kind: str, old: Bits, new: Bits) -> Bits:
    """`old op new` on raw elements (dtype `RAW[kind]`, any shape).

    Integers wrap. Floats round to nearest even, a NaN result is 0x7FFF.., except that of f64: the NaN operand as it is,
    signalling or not, rather the new one. f32ftz flushes subnormal inputs and results
    to signed zero; f16 and bf16 min/max drop a NaN operand and order -0 below +0. inc: old >= new ? 0 : old + 1; dec:
    old == 0 or old > new ? new : old - 1.
    """
    check(op, kind)
    with np.errstate(all="ignore"):
        if op in _BITWISE:
            return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](old, new)
        if kind in ("f16", "bf16"):
            return _half(op, kind, old, new)
        if kind in ("f32", "f32ftz", "f64"):
            return _add(kind, old, new)
        if op == "inc":
            return np.where(old >= new, old.dtype.type(0), old + old.dtype.type(1))
        if op == "dec":
            return np.where((old == 0) | (old > new), new, old - old.dtype.type(1))
        if op == "add":
            return old + new
        dtype = _SIGNED.get(kind, old.dtype.type)
        pick = np.minimum if op == "min" else np.maximum
        return pick(old.view(dtype), new.view(dtype)).view(old.dtype)


def reduce_elements(op: str, kind: str, old: NDArray[np.uint8], new: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`old op new` on the elements that two byte arrays of equal length hold; `kind` as PTX names it, b32 and b64
    included. Bytes [n] in, bytes [n] out."""
    kind = _UNTYPED.get(kind, kind)
    check(op, kind)
    return reduce_values(op, kind, old.view(RAW[kind]), new.view(RAW[kind])).view(np.uint8)


def _half(op: str, kind: str, old: Bits, new: Bits) -> Bits:
    a, b = decode(kind, old), decode(kind, new)
    if op == "add":
        # The float32 sum rounded again is the exact sum rounded once: 24 >= 2 * 11 + 2 bits.
        return encode(kind, a + b)
    # fmin/fmax drop a NaN; -0 sorts below +0 through a comparison of the sign on equal values.
    first = np.signbit(a) if op == "min" else ~np.signbit(a)
    out = np.where(np.where(a == b, first, a < b if op == "min" else a > b), a, b)
    out = np.where(np.isnan(a), b, np.where(np.isnan(b), a, out)).astype(np.float32)
    return encode(kind, out)


def _add(kind: str, old: Bits, new: Bits) -> Bits:
    dtype: type = np.float64 if kind == "f64" else np.float32
    a: Bits = old.view(dtype)
    b: Bits = new.view(dtype)
    if kind == "f32ftz":
        a, b = _flush(a), _flush(b)
    total = a + b
    if kind == "f32ftz":
        total = _flush(total)
    raw: Bits = total.view(RAW[kind])
    if kind == "f64":
        return np.where(np.isnan(b), new, np.where(np.isnan(a), old, raw))
    return np.where(np.isnan(total), np.uint32(0x7FFFFFFF), raw)


def _flush(x: Bits) -> Bits:
    tiny = np.abs(x) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), x), x).astype(np.float32)
