"""Exact f32 arithmetic in every rounding mode, and what all float types share (PTX ISA 9.7.3).

A sum or product of f32 is formed in float64 together with the error of that rounding, so the pair is the exact value;
`to_odd` folds the error into the last bit, after which one more rounding (to f32, f16 or bf16, in any mode) is exact.
Functions take 32 or 64 lanes and return NaN of any payload: whoever observes bits makes it canonical.
"""

from __future__ import annotations

import numpy as np

from emulator.builders.lanes_base import cleared, select, sized, some
from emulator.builders.lanes_exact import fma_f64, round_f64

F32, F64, U64, S64 = np.float32, np.float64, np.uint64, np.int64
_TINY32 = sized(2.0**-126, F32)
_TINY = sized(2.0**-126, F64)
_ONE32 = sized(1.0, F32)
_INFINITY = {"rm": sized(-np.inf, F32), "rp": sized(np.inf, F32), "rz": sized(0.0, F32)}
_LOW29 = sized(0x1FFFFFFF, U64)
_TIE29 = sized(0x10000000, U64)
_CANONICAL = {2: 0x7FFF, 4: 0x7FFFFFFF}
_ZERO = {2: b"\0", 4: b"\0\0\0", 8: b"\0\0\0\0\0\0\0"}


# ---------------------------------------------------------------- NaN, subnormals, saturation
def canonical(x: np.ndarray) -> np.ndarray:
    """A copy with every NaN as 0x7FFF or 0x7FFFFFFF."""
    clean = x.copy()
    clean.view(f"u{x.itemsize}")[np.isnan(x)] = _CANONICAL[x.itemsize]
    return clean


canonical_f16 = canonical
canonical_f32 = canonical


def flush(x: np.ndarray) -> np.ndarray:
    """f32 subnormals to zero of the same sign."""
    small = np.abs(x) < _TINY32[x.size]
    return x * ~small if some(small) else x


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamped to [0, 1]; NaN and negative zero give +0."""
    return cleared(np.minimum(x, x.dtype.type(1)), ~(x > 0))


# ---------------------------------------------------------------- exact sums in float64
def to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    """total + error rounded to odd: toward zero, then the last bit set if anything was lost."""
    raw = total.view(S64)
    lost = (np.abs(error) > 0) & ((raw & 1) == 0)
    return (raw + np.where(lost, np.where((error > 0) == (total > 0), 1, -1), 0)).view(F64)


def sum_error(x: np.ndarray, y: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The exact error of total = x + y (Knuth's two-sum; NaN where the sum is not finite)."""
    back = total - x
    return (x - (total - back)) + (y - back)


def add_odd(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y in float64, rounded to odd."""
    total = x + y
    error = sum_error(x, y, total)
    return to_odd(total, error) if some(np.abs(error) > 0) else total


# ---------------------------------------------------------------- float64 to f32
def narrow_f32(x: np.ndarray, rnd: str = "rn", ftz: bool = False, error: np.ndarray | None = None) -> np.ndarray:
    """float64 to f32 in one rounding. The exact number is x or, for directed rounding of a float64 sum, x + error.
    `ftz` flushes what is tiny before rounding."""
    y = nearest = x.astype(F32)
    if rnd != "rn":
        excess = y.astype(F64) - x
        if error is not None:
            excess = excess - error
        if rnd == "rz":
            excess = np.copysign(excess, excess * x)
        wrong = excess < 0 if rnd == "rp" else excess > 0
        if some(wrong):
            y = np.copysign(select(wrong, np.nextafter(y, _INFINITY[rnd][y.size]), y), nearest)
    if ftz:
        size = np.abs(x)
        tiny = size < _TINY[x.size]
        if error is not None:
            tiny |= (size == _TINY[x.size]) & (error * x < 0)
        y = np.copysign(cleared(y, tiny), nearest) if some(tiny) else y
    return y


def _rounded_sum(x: np.ndarray, y: np.ndarray, rnd: str, ftz: bool) -> np.ndarray:
    """The float64 sum x + y to f32 in one rounding; an exact zero of opposite terms is -0 when rounding down."""
    if rnd == "rn":
        return narrow_f32(add_odd(x, y), rnd, ftz)
    total = -((-x) + (-y)) if rnd == "rm" else x + y
    return narrow_f32(total, rnd, ftz, sum_error(x, y, total))


# ---------------------------------------------------------------- f32 arithmetic
def add_f32(a: np.ndarray, b: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """a + b."""
    if ftz:
        a, b = flush(a), flush(b)
    if rnd == "rn":
        total = a + b
        return flush(total) if ftz else total
    return _rounded_sum(a.astype(F64), b.astype(F64), rnd, ftz)


def sub_f32(a: np.ndarray, b: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """a - b."""
    return add_f32(a, -b, rnd, ftz)


def mul_f32(a: np.ndarray, b: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """a * b (the product is exact in float64)."""
    if ftz:
        a, b = flush(a), flush(b)
    return narrow_f32(a.astype(F64) * b.astype(F64), rnd, ftz)


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """a * b + c in one rounding.

    Fast path: rounding the exact product plus c to float64 and then to f32 is wrong only if the float64 sum lies on a
    tie of f32, or if the result may be subnormal; only then is the error of the sum computed.
    """
    if ftz:
        a, b, c = flush(a), flush(b), flush(c)
    product = a.astype(F64) * b.astype(F64)
    addend = c.astype(F64)
    if rnd != "rn" or ftz:
        return _rounded_sum(product, addend, rnd, ftz)
    total = product + addend
    result = total.astype(F32)
    top = result.tobytes()[3::4]
    if b"\0" in top or b"\x80" in top or some((total.view(U64) & _LOW29[total.size]) == _TIE29[total.size]):
        return to_odd(total, sum_error(product, addend, total)).astype(F32)
    return result


def div_f32(a: np.ndarray, b: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """a / b. A quotient of 24-bit numbers is never nearer to a 25-bit number than float64 can tell, unless equal."""
    if ftz:
        a, b = flush(a), flush(b)
    return narrow_f32(a.astype(F64) / b.astype(F64), rnd, ftz)


def rcp_f32(a: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """1 / a."""
    return div_f32(_ONE32[a.size], a, rnd, ftz)


def sqrt_f32(a: np.ndarray, rnd: str = "rn", ftz: bool = False) -> np.ndarray:
    """Square root; the same argument as for quotients."""
    return narrow_f32(np.sqrt((flush(a) if ftz else a).astype(F64)), rnd)


# ---------------------------------------------------------------- minimum and maximum
def fmin(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Smaller; -0 < +0; a NaN operand loses."""
    result = np.fmin(a, b)
    return _order_zeros(result, a, b, np.bitwise_or) if _ZERO[result.itemsize] in result.tobytes() else result


def fmax(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Larger; -0 < +0; a NaN operand loses."""
    result = np.fmax(a, b)
    return _order_zeros(result, a, b, np.bitwise_and) if _ZERO[result.itemsize] in result.tobytes() else result


def fmin_nan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Smaller; -0 < +0; NaN if either operand is."""
    result = np.minimum(a, b)
    return _order_zeros(result, a, b, np.bitwise_or) if _ZERO[result.itemsize] in result.tobytes() else result


def fmax_nan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Larger; -0 < +0; NaN if either operand is."""
    result = np.maximum(a, b)
    return _order_zeros(result, a, b, np.bitwise_and) if _ZERO[result.itemsize] in result.tobytes() else result


def _order_zeros(result: np.ndarray, a: np.ndarray, b: np.ndarray, combine: np.ufunc) -> np.ndarray:
    """NumPy returns either zero when both operands are zero: take the right sign wherever the operands are equal.
    (A zero shows as a run of zero bytes; other numbers with such a run only take this longer way.)"""
    raw = f"u{result.itemsize}"
    return select(a == b, combine(a.view(raw), b.view(raw)).view(result.dtype), result)


# ---------------------------------------------------------------- f64
def add_f64(a: np.ndarray, b: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """a + b."""
    return a + b if rnd == "rn" else fma_f64(a, np.ones_like(a), b, rnd)


def sub_f64(a: np.ndarray, b: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """a - b."""
    return add_f64(a, -b, rnd)


def mul_f64(a: np.ndarray, b: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """a * b."""
    return a * b if rnd == "rn" else round_f64("mul", rnd, a, b)


def div_f64(a: np.ndarray, b: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """a / b."""
    return a / b if rnd == "rn" else round_f64("div", rnd, a, b)


def rcp_f64(a: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """1 / a."""
    return div_f64(np.ones_like(a), a, rnd)


def sqrt_f64(a: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """Square root."""
    return np.sqrt(a) if rnd == "rn" else round_f64("sqrt", rnd, a)


# ---------------------------------------------------------------- tests and signs
def float_class(x: np.ndarray, kind: str) -> np.ndarray:
    """testp: finite, infinite, number, notanumber, normal (zero included), subnormal."""
    magnitude = np.abs(x)
    subnormal = (magnitude > 0) & (magnitude < np.finfo(x.dtype).tiny)
    if kind == "subnormal":
        return subnormal
    if kind == "normal":
        return np.isfinite(x) & ~subnormal
    if kind in ("finite", "infinite"):
        return np.isfinite(x) if kind == "finite" else np.isinf(x)
    return ~np.isnan(x) if kind == "number" else np.isnan(x)
