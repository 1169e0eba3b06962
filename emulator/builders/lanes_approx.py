"""Approximate functions (PTX ISA 9.7.3.8 to 9.7.3.22, 9.7.4.9 and 9.7.4.10).

f16 and bf16 forms are tables captured on an H200: exact. f32 forms are the float64 function rounded to f32, with the
hardware's special cases; against 20,000 captured words per function they differ by at most 2 ulp (ex2), 1 ulp (rcp,
rsqrt, sqrt, div), 2^-22 (lg2), 2^-16 relative (tanh) and 3.3e-7 absolute (sin and cos of any finite argument).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from emulator.builders.approximate import EX2, EX2_HIGH, EX2_LOW, EX2_TABLE, LG2, MAGIC, ROOT_HALF_BITS
from emulator.builders.lanes_base import cleared, select, some
from emulator.builders.lanes_float import flush, narrow_f32

F32, F64, U16, U64, S64 = np.float32, np.float64, np.uint16, np.uint64, np.int64
_LEAST = np.full(32, -126, F32)
_ONE = np.ones(32)
_TURN = F64(np.array(0x3E22F983, np.uint32).view(F32))
_HIGH_WORD = U64(0xFFFFFFFF00000000)
_NAN_WORD = U64(0x7FFFFFFF00000000)


# ---------------------------------------------------------------- f32
_LOW, _HIGH, _MAGIC = (np.full(32, value) for value in (EX2_LOW, EX2_HIGH, MAGIC))
_EX2 = [np.full(32, value) for value in EX2]
_LG2 = [np.full(32, value) for value in LG2]
_44, _52, _255, _ROOT_HALF = (np.full(32, value, S64) for value in (44, 52, 255, ROOT_HALF_BITS))
_TABLE = np.array(EX2_TABLE, U64).view(S64)
_SQUARE = EX2_HIGH**2
_ZERO, _INFINITY = np.zeros(32), np.full(32, np.inf)


def ex2_f32(x: np.ndarray, ftz: bool) -> np.ndarray:
    """2^x. `ftz`: 2^x below 2^-126 is 0."""
    wide = x.astype(F64)
    if not wide.dot(wide) < _SQUARE:  # some lane may be out of range, or NaN
        np.maximum(wide, _LOW, out=wide)
        np.minimum(wide, _HIGH, out=wide)
    shifted = wide + _MAGIC
    wide -= shifted - _MAGIC
    total = wide * _EX2[1]
    total += _EX2[0]
    total *= wide
    steps = shifted.view(S64)
    power = _TABLE.take(steps & _255)
    steps <<= _44
    power += steps
    power = power.view(F64)
    total *= power
    total += power
    y = total.astype(F32)
    if ftz:
        small = x < _LEAST
        if some(small):
            return cleared(y, small)
    return y


def lg2_f32(x: np.ndarray, ftz: bool) -> np.ndarray:
    """log2(x); NaN below zero, -infinity at either zero."""
    wide = (flush(x) if ftz else x).astype(F64)
    raw = wide.view(S64)
    exponent = (raw - _ROOT_HALF) >> _52
    fraction = (raw - (exponent << _52)).view(F64)
    y = (fraction - _ONE) / (fraction + _ONE)
    square = y * y
    total = square * _LG2[-1]
    for coefficient in _LG2[-2:0:-1]:
        total += coefficient
        total *= square
    total += _LG2[0]
    total *= y
    total += exponent.astype(F64)
    usual = (wide > _ZERO) & (wide < _INFINITY)
    if not usual.all():
        total = select(usual, total, np.log2(wide))
    return total.astype(F32)


def rcp_approx_f32(x: np.ndarray, ftz: bool) -> np.ndarray:
    """1 / x."""
    return narrow_f32(_ONE / (flush(x) if ftz else x).astype(F64), "rn", ftz)


def rsqrt_f32(x: np.ndarray, ftz: bool) -> np.ndarray:
    """1 / sqrt(x); infinity of the zero's sign at zero."""
    return (_ONE / np.sqrt((flush(x) if ftz else x).astype(F64))).astype(F32)


def sqrt_approx_f32(x: np.ndarray, ftz: bool) -> np.ndarray:
    """sqrt(x)."""
    return np.sqrt((flush(x) if ftz else x).astype(F64)).astype(F32)


def div_approx_f32(a: np.ndarray, b: np.ndarray, ftz: bool, full: bool) -> np.ndarray:
    """a / b. Unless `full`, a divisor above 2^126 has a reciprocal of zero: finite a gives zero, infinite a NaN."""
    if ftz:
        a, b = flush(a), flush(b)
    y = narrow_f32(a.astype(F64) / b.astype(F64), "rn", ftz)
    if not full:
        size = np.abs(b)
        lost = (size > F32(2.0**126)) & (size < F32(np.inf))
        y = select(lost, a * np.copysign(F32(0), b), y)
    return y


def _turns(x: np.ndarray) -> np.ndarray:
    """The argument in turns as the hardware reduces it: x * 0.15915494 in f32 toward zero, subnormals to zero."""
    turns = narrow_f32(x.astype(F64) * _TURN, "rz", True)
    return np.fmod(turns.astype(F64), 1.0) * (2 * np.pi)


def sin_f32(x: np.ndarray) -> np.ndarray:
    """sin(x); always flushes; 0 where an f32 holds whole turns only; NaN for infinities."""
    return np.sin(_turns(x)).astype(F32)


def cos_f32(x: np.ndarray) -> np.ndarray:
    """cos(x); 1 where an f32 holds whole turns only; NaN for infinities."""
    return np.cos(_turns(x)).astype(F32)


def tanh_f32(x: np.ndarray) -> np.ndarray:
    """tanh(x); subnormals pass."""
    return np.tanh(x.astype(F64)).astype(F32)


# ---------------------------------------------------------------- f64
def rcp_approx_f64(x: np.ndarray) -> np.ndarray:
    """1 / x to 20 bits: of the upper word, the lower word of the result zero; subnormals flushed both ways."""
    return _upper_word(1.0 / _upper_word(x))


def rsqrt_f64(x: np.ndarray, ftz: bool) -> np.ndarray:
    """1 / sqrt(x); `ftz` is the 20-bit form of the upper word."""
    if not ftz:
        return 1.0 / np.sqrt(x)
    return _upper_word(1.0 / np.sqrt(_upper_word(x)))


def _upper_word(x: np.ndarray) -> np.ndarray:
    cut = (x.view(U64) & _HIGH_WORD).view(F64)
    cut = np.copysign(cleared(cut, np.abs(cut) < np.finfo(F64).tiny), x)
    nan = cut != cut
    return select(nan, np.full_like(x.view(U64), _NAN_WORD).view(F64), cut) if some(nan) else cut


# ---------------------------------------------------------------- f16 and bf16
@cache
def _table(name: str) -> np.ndarray:
    with files("emulator.builders").joinpath("data/half_functions.npz").open("rb") as file, np.load(file) as tables:
        ordered = tables[name]
    return _unfold(ordered)


def _unfold(differences: np.ndarray) -> np.ndarray:
    """Tables are stored as differences of neighbours, which compress to a few kilobytes."""
    return np.cumsum(differences, dtype=U16)


def half_function(x: np.ndarray, name: str) -> np.ndarray:
    """ex2_f16, ex2_bf16, tanh_f16 or tanh_bf16 of u16 patterns, or of packed pairs (u32), by table."""
    return _table(name).take(x.view(U16)).view(x.dtype)
