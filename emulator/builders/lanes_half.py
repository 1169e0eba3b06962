"""f16 and bf16 arithmetic, scalar (u16 lanes) and packed (u32 lanes of two), on bit patterns (PTX ISA 9.7.4).

`kind` is "f16" or "bf16". A packed array is viewed as twice as many u16, so both forms are the same code. Results are
rounded once: f32 sums are wide enough to round twice without harm (24 >= 2 * 11 + 2), products and fused sums go
through float64 rounded to odd. NaN results are 0x7FFF.
"""

from __future__ import annotations

import numpy as np

from emulator.builders.lanes_base import cleared, select, sized, some
from emulator.builders.lanes_float import add_odd, fmax, fmax_nan, fmin, fmin_nan

F16, F32, F64 = np.float16, np.float32, np.float64
U16, U32, S32 = np.uint16, np.uint32, np.int32
_16, _1, _7FFF = sized(16, U32), sized(1, U32), sized(0x7FFF, U32)
_TINY = {"f16": F32(2.0**-14), "bf16": F32(2.0**-126)}
_BELOW = {"f16": (sized(0x1FFF, U32), sized(0x1000, U32)), "bf16": (sized(0xFFFF, U32), sized(0x8000, U32))}
"""The bits of an f32 below the half type, and their pattern on a tie."""

_NAN = U16(0x7FFF)
_SIGN, _MAGNITUDE = U16(0x8000), U16(0x7FFF)


# ---------------------------------------------------------------- patterns to values and back
def widen_half(x: np.ndarray, kind: str, ftz: bool = False) -> np.ndarray:
    """Patterns as f32 (exact); `ftz` flushes subnormals of the half type."""
    halves = x.view(U16)
    wide = halves.view(F16).astype(F32) if kind == "f16" else (halves.astype(U32) << _16[halves.size]).view(F32)
    if ftz:
        small = np.abs(wide) < _TINY[kind]
        return wide * ~small
    return wide


def round_f16(x: np.ndarray) -> np.ndarray:
    """f32 or f64 to f16 patterns (u16), to nearest even."""
    raw = x.astype(F16).view(U16)
    nan = x != x
    if some(nan):
        raw[nan] = _NAN
    return raw


def round_bf16(x: np.ndarray) -> np.ndarray:
    """f32 to bf16 patterns (u16), to nearest even."""
    n, raw = x.size, x.view(U32)
    odd = raw >> _16[n]
    odd &= _1[n]
    odd += _7FFF[n]
    odd += raw
    rounded = odd.view(U16)[1::2].copy()
    nan = x != x
    if some(nan):
        rounded[nan] = _NAN
    return rounded


def odd_f32(x: np.ndarray) -> np.ndarray:
    """float64 to f32, rounded to odd."""
    y = x.astype(F32)
    error = x - y.astype(F64)
    lost = np.abs(error) > 0
    if not some(lost):
        return y
    lost &= (y.view(U32) & U32(1)) == 0
    # an overflow to infinity is even and loses: one step back is the largest finite number, whose last bit is set
    step = np.where(np.abs(y) > np.abs(x), -1, 1)
    return (y.view(S32) + np.where(lost, step, 0).astype(S32)).view(F32)


def round_half(x: np.ndarray, kind: str) -> np.ndarray:
    """f32, or float64 that is exact or rounded to odd, to patterns of the half type."""
    if kind == "f16":
        return round_f16(x)
    return round_bf16(x if x.dtype == F32 else odd_f32(x))


def _finish(x: np.ndarray, like: np.ndarray, kind: str, ftz: bool, sat: bool, relu: bool) -> np.ndarray:
    if ftz:
        x = x * ~(np.abs(x) < _TINY[kind])
    if sat:
        x = cleared(np.minimum(x, x.dtype.type(1)), ~(x > 0))
    if relu:
        x = cleared(x, x <= 0)
    return round_half(x, kind).view(like.dtype)


# ---------------------------------------------------------------- arithmetic
def half_add(a: np.ndarray, b: np.ndarray, kind: str, ftz: bool = False, sat: bool = False) -> np.ndarray:
    """a + b."""
    return _finish(widen_half(a, kind, ftz) + widen_half(b, kind, ftz), a, kind, ftz, sat, False)


def half_sub(a: np.ndarray, b: np.ndarray, kind: str, ftz: bool = False, sat: bool = False) -> np.ndarray:
    """a - b."""
    return _finish(widen_half(a, kind, ftz) - widen_half(b, kind, ftz), a, kind, ftz, sat, False)


def half_mul(a: np.ndarray, b: np.ndarray, kind: str, ftz: bool = False, sat: bool = False) -> np.ndarray:
    """a * b. Products are exact in f32, but for bf16 products that are subnormal there."""
    x, y = widen_half(a, kind, ftz), widen_half(b, kind, ftz)
    product = x * y
    if kind == "bf16":
        top = product.tobytes()[3::4]
        if b"\0" in top or b"\x80" in top:
            product = odd_f32(x.astype(F64) * y.astype(F64))
    return _finish(product, a, kind, ftz, sat, False)


def half_fma(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str, ftz: bool = False, sat: bool = False, relu: bool = False
) -> np.ndarray:
    """a * b + c in one rounding.

    Rounding the float64 sum to f32 and then to the half type is wrong only if the f32 lies on a tie of the half type;
    then (and for f16 subnormals, whose ties are elsewhere, and when flushing) the sum is rounded to odd.
    """
    x, y, z = (widen_half(v, kind, ftz).astype(F64) for v in (a, b, c))
    product = x * y
    total = (product + z).astype(F32)
    rest, tie = _BELOW[kind]
    near = (total.view(U32) & rest[total.size]) == tie[total.size]
    if kind == "f16":
        near |= np.abs(total) < _TINY[kind]
    if ftz or some(near):
        total = odd_f32(add_odd(product, z))
    return _finish(total, a, kind, ftz, sat, relu)


def half_neg(a: np.ndarray, kind: str, ftz: bool = False) -> np.ndarray:
    """-a; NaN becomes canonical."""
    return round_half(-widen_half(a, kind, ftz), kind).view(a.dtype)


def half_abs(a: np.ndarray, kind: str, ftz: bool = False) -> np.ndarray:
    """|a|; NaN becomes canonical."""
    return round_half(np.abs(widen_half(a, kind, ftz)), kind).view(a.dtype)


_EXTREMES = {("min", False): fmin, ("min", True): fmin_nan, ("max", False): fmax, ("max", True): fmax_nan}


def half_extreme(
    a: np.ndarray, b: np.ndarray, which: str, kind: str, ftz: bool = False, nan: bool = False, xorsign: bool = False
) -> np.ndarray:
    """min or max; -0 < +0; NaN loses unless `nan`; `xorsign` orders magnitudes and takes the sign of the product."""
    x, y = widen_half(a, kind, ftz), widen_half(b, kind, ftz)
    if not xorsign:
        return round_half(_EXTREMES[which, nan](x, y), kind).view(a.dtype)
    result = round_half(_EXTREMES[which, nan](np.abs(x), np.abs(y)), kind)
    sign = (a.view(U16) ^ b.view(U16)) & _SIGN
    return select(result == _NAN, result, result & _MAGNITUDE | sign).view(a.dtype)
