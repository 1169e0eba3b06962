"""Conversions between number formats (PTX ISA 9.7.9.21), on values or bit patterns."""

from __future__ import annotations

import numpy as np

from emulator.builders.lanes_base import cleared, has_nan, select, some
from emulator.builders.lanes_float import canonical, flush, narrow_f32, saturate
from emulator.builders.lanes_half import round_bf16, round_f16, round_half, widen_half

F16, F32, F64 = np.float16, np.float32, np.float64
U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
_NAN32 = U32(0x7FFFFFFF)


def _range(type: str) -> tuple[np.dtype, np.ndarray, np.ndarray]:
    """An integer type: its dtype, and the smallest and largest float64 that it holds."""
    bits = int(type[1:])
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if type[0] == "s" else (0.0, 2.0**bits)
    high = high - 1 if bits < 64 else np.nextafter(high, 0.0)
    return np.dtype(f"{'i' if type[0] == 's' else 'u'}{bits // 8}"), np.full(32, low), np.full(32, high)


_RANGE = {f"{kind}{bits}": _range(f"{kind}{bits}") for kind in "su" for bits in (8, 16, 32, 64)}
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


# ---------------------------------------------------------------- integers and floats
def float_to_int(x: np.ndarray, type: str, rnd: str, double: bool) -> np.ndarray:
    """f32 or f64 lanes to an integer type, rounded and clamped. NaN gives 0 up to 32 bits and 0x8000000000000000 for
    64; from an f64 (`double`) it gives the pattern 0x80… of every width."""
    dtype, low, high = _RANGE[type]
    y = _ROUND[rnd](x.astype(F64))
    missing = has_nan(y)
    nan = y != y if missing else None
    if dtype.itemsize == 8:
        over = y > high
        result = np.maximum(cleared(y, over if nan is None else over | nan), low).astype(dtype)
        result[over] = np.iinfo(dtype).max
    else:
        y = np.minimum(np.maximum(y, low), high)
        result = (cleared(y, nan) if nan is not None else y).astype(dtype)
    if nan is not None and (double or dtype.itemsize == 8):
        result.view(f"u{dtype.itemsize}")[nan] = 1 << (8 * dtype.itemsize - 1)
    return result


def int_to_float(x: np.ndarray, type: str, rnd: str) -> np.ndarray:
    """Integer lanes to f32 or f64 values, or to f16 or bf16 patterns (u16); 64-bit integers go through float64 rounded
    to odd."""
    if type == "f64":
        return x.astype(F64) if rnd == "rn" or x.itemsize < 8 else _int64_to_f64(x, rnd)
    wide = x.astype(F64) if x.itemsize < 8 else _odd_f64(x)
    if type == "f32":
        return narrow_f32(wide, rnd)
    return narrow_half(wide, type, rnd)


def _split64(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit integer as two float64 whose sum it is: the nearest one, and what is missing."""
    near = x.astype(F64)
    high = (x >> x.dtype.type(32)).astype(F64) * 4294967296.0
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(F64)
    return near, (high - near) + low


def _odd_f64(x: np.ndarray) -> np.ndarray:
    near, missing = _split64(x)
    raw = near.view(np.int64)
    step = np.where((missing > 0) == (near > 0), 1, -1)
    return (raw + np.where((missing != 0) & ((raw & 1) == 0), step, 0)).view(F64)


def _int64_to_f64(x: np.ndarray, rnd: str) -> np.ndarray:
    near, missing = _split64(x)
    if rnd == "rz":
        return select(missing * np.sign(near) < 0, np.nextafter(near, 0.0), near)
    if rnd == "rm":
        return select(missing < 0, np.nextafter(near, -np.inf), near)
    return select(missing > 0, np.nextafter(near, np.inf), near)


def round_integral(x: np.ndarray, rnd: str, ftz: bool = False) -> np.ndarray:
    """A float rounded to an integral value of its own type."""
    return _ROUND[rnd](flush(x) if ftz else x)


# ---------------------------------------------------------------- to f16, bf16 and tf32
def quantize(x: np.ndarray, digits: int, smallest: int, rnd: str) -> np.ndarray:
    """float64 lanes rounded to `digits` significant bits, not finer than 2^(smallest + 1 - digits); the range is not
    limited."""
    exponent = np.maximum(np.frexp(x)[1] - 1, smallest) + (1 - digits)
    steps = np.ldexp(x, -exponent)
    rounded = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[rnd](steps)
    return np.copysign(np.ldexp(rounded, exponent), x)


_HALF = {"f16": (11, -14, 65504.0), "bf16": (8, -126, float.fromhex("0x1.fep127"))}
_LARGEST = {kind: np.full(64, row[2], F32) for kind, row in _HALF.items()}


def narrow_half(
    x: np.ndarray, kind: str, rnd: str, sat: bool = False, relu: bool = False, finite: bool = False
) -> np.ndarray:
    """f32 or float64 (exact or rounded to odd) to f16 or bf16 patterns (u16).

    `sat` clamps to [0, 1] with NaN to +0, `relu` turns negatives into +0, `finite` clamps to the largest finite number.
    """
    if sat:
        x = saturate(x)
    if relu:
        x = cleared(x, x <= 0)
    if rnd != "rn":
        digits, smallest, largest = _HALF[kind]
        y = quantize(x.astype(F64), digits, smallest, rnd)
        over = (np.abs(y) > largest) & np.isfinite(x)
        inward = {"rz": over, "rm": over & (y > 0), "rp": over & (y < 0)}[rnd]
        x = select(inward, np.copysign(largest, y), y)
    if finite:
        limit = _LARGEST[kind] if x.size == 64 and x.dtype == F32 else x.dtype.type(_HALF[kind][2])
        x = np.maximum(np.minimum(x, limit), -limit)
    return round_half(x, kind)


def narrow_f16x2(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two f32 to packed f16, to nearest even."""
    both = np.empty(32, U32)
    halves = both.view(F16)
    halves[1::2] = high
    halves[0::2] = low
    if has_nan(high) or has_nan(low):
        both.view(U16)[halves != halves] = 0x7FFF
    return both


def narrow_bf16x2(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two f32 to packed bf16, to nearest even."""
    return round_bf16(_interleaved(high, low)).view(U32)


def _interleaved(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    pair = np.empty(64, F32)
    pair[0::2] = low
    pair[1::2] = high
    return pair


def narrow_pair(high: np.ndarray, low: np.ndarray, kind: str, rnd: str, relu: bool, finite: bool) -> np.ndarray:
    """Two f32 to packed f16 or bf16 with any modifiers."""
    return narrow_half(_interleaved(high, low), kind, rnd, False, relu, finite).view(U32)


def narrow_tf32(x: np.ndarray, rnd: str, relu: bool = False, finite: bool = False) -> np.ndarray:
    """f32 to tf32 patterns (u32, 13 low bits clear).

    rna is (u + 0x1000) & ~0x1FFF for every pattern that is not NaN, and only masks NaN (0x7F800001 becomes infinity);
    with `finite` infinities and NaN lose one step, as the hardware does. rn and rz give 0x7FFFE000 for NaN.
    """
    raw = x.view(U32)
    magnitude = raw & _NAN32
    nan = magnitude > U32(0x7F800000)
    if rnd == "rna":
        rounded = select(nan, raw, raw + U32(0x1000)) & ~U32(0x1FFF)
        over = (rounded & _NAN32) >= U32(0x7F800000)
        return select(over, rounded - U32(0x2000), rounded) if finite else rounded
    step = U32(0xFFF) + (raw >> U32(13) & U32(1)) if rnd == "rn" else U32(0)
    rounded = (raw + step) & ~U32(0x1FFF)
    if finite:
        over = (rounded & _NAN32) >= U32(0x7F800000)
        rounded = select(over, raw & U32(0x80000000) | U32(0x7F7FE000), rounded)
    if relu:
        rounded = cleared(rounded, raw >> U32(31) != 0)
    return select(nan, np.full_like(raw, 0x7FFFE000), rounded)


# ---------------------------------------------------------------- 8, 6 and 4 bit floats
_SMALL = {  # mantissa bits, bias, largest code, code of NaN
    "e4m3": (3, 7, 0x7E, 0x7F),
    "e5m2": (2, 15, 0x7B, 0x7F),
    "e2m3": (3, 1, 0x1F, 0x1F),
    "e3m2": (2, 3, 0x1F, 0x1F),
    "e2m1": (1, 1, 0x7, 0x7),
}
_SIGN_SHIFT = {"e4m3": 24, "e5m2": 24, "e2m3": 26, "e3m2": 26, "e2m1": 28}


class _Encoder:
    """Constants of one small format for 64 values."""

    def __init__(self, kind: str) -> None:
        mantissa, bias, largest, nan = _SMALL[kind]
        self.shift = np.full(64, 23 - mantissa, U32)
        self.half = np.full(64, (1 << (22 - mantissa)) - 1, U32)
        self.rebias = np.full(64, (127 - bias) << mantissa, U32)
        self.magic = np.full(64, 2.0 ** (24 - bias - mantissa), F32)
        self.normal = np.full(64, (128 - bias) << 23, U32)
        self.largest = np.full(64, largest, U32)
        self.sign_shift = np.full(64, _SIGN_SHIFT[kind], U32)
        self.sign = np.full(64, 0x80 >> (_SIGN_SHIFT[kind] - 24), U32)
        self.nan = nan


_ENCODERS = {kind: _Encoder(kind) for kind in _SMALL}
_ABS, _LSB, _INF = (np.full(64, value, U32) for value in (0x7FFFFFFF, 1, 0x7F800000))
_FOUR = np.full(32, 4, U8)


def encode_small(x: np.ndarray, kind: str, relu: bool = False) -> np.ndarray:
    """64 f32 to codes (u32) of a small format, to nearest even, clamped to the largest finite number.

    Below the smallest normal number, adding 2^(23 + smallest exponent - mantissa bits) makes the float unit round at
    the format's quantum; above, the mantissa is rounded in place. Codes are ordered like magnitudes, so clamping is a
    minimum.
    """
    k, raw = _ENCODERS[kind], x.view(U32)
    magnitude = raw & _ABS
    code = magnitude >> k.shift
    code &= _LSB
    code += k.half
    code += magnitude
    code >>= k.shift
    code -= k.rebias
    small = magnitude < k.normal
    if some(small):
        below = (magnitude.view(F32) + k.magic).view(U32)
        below -= k.magic.view(U32)
        np.putmask(code, small, below)
    np.minimum(code, k.largest, out=code)
    sign = raw >> k.sign_shift
    sign &= k.sign
    code = cleared(code, sign != 0) if relu else code | sign
    nan = magnitude > _INF
    if some(nan):
        code[nan] = k.nan
    return code


def encode_pair(high: np.ndarray, low: np.ndarray, kind: str, relu: bool = False) -> np.ndarray:
    """Two f32 to a packed pair of a small format: u8 for e2m1, u16 for the others."""
    codes = encode_small(_interleaved(high, low), kind, relu).astype(U8)
    return codes[0::2] | codes[1::2] << _FOUR if kind == "e2m1" else codes.view(U16)


def encode_halves(x: np.ndarray, kind: str, source: str, relu: bool = False) -> np.ndarray:
    """A packed pair of f16 or bf16 (u32) to a packed pair of a small format."""
    wide = widen_half(x, source)
    return encode_pair(wide[1::2], wide[0::2], kind, relu)


def _decode_table(kind: str) -> np.ndarray:
    """f16 patterns of all codes of a format."""
    mantissa, bias, largest, _ = _SMALL[kind]
    codes = np.arange(256, dtype=np.int64)
    width = 32 - _SIGN_SHIFT[kind]
    magnitude = codes & ((1 << (width - 1)) - 1)
    exponent, fraction = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    digits = np.where(exponent > 0, fraction + (1 << mantissa), fraction).astype(F64)
    value = np.ldexp(digits, np.maximum(exponent, 1) - bias - mantissa)
    if kind in ("e4m3", "e5m2"):
        value[magnitude > largest] = np.nan
    if kind == "e5m2":
        value[magnitude == 0x7C] = np.inf
    return round_f16(np.where(codes >> (width - 1) & 1, -value, value))


_TABLES = {kind: _decode_table(kind) for kind in _SMALL}


def decode_pair(x: np.ndarray, kind: str, relu: bool = False) -> np.ndarray:
    """A packed pair of a small format (u16, or u8 for e2m1) to packed f16 (u32)."""
    if kind == "e2m1":
        codes = np.stack((x & U8(15), x >> U8(4)), axis=1).reshape(-1)
    else:
        codes = x.view(U8)
    halves = _TABLES[kind].take(codes)
    if relu:
        halves = cleared(halves, (halves >= U16(0x8000)) & (halves <= U16(0xFC00)))
    return halves.view(U32)


# ---------------------------------------------------------------- powers of two
_EXPONENT, _FRACTION, _LEAST_SCALE, _NO_SCALE = (np.full(64, v, U32) for v in (23, 0x7FFFFF, 0x400000, 0xFF))


def encode_scales(high: np.ndarray, low: np.ndarray, rnd: str, finite: bool) -> np.ndarray:
    """Two f32 to packed ue8m0 (u16): the exponent of |x|, rounded toward zero or up; NaN, and what exceeds 2^127, give
    0xFF (with `finite` the excess gives 0xFE). The sign is dropped and nothing is smaller than 2^-127."""
    magnitude = _interleaved(high, low).view(U32) & _ABS
    code = magnitude >> _EXPONENT
    if rnd == "rp":
        code += ((magnitude & _FRACTION) > 0) & (magnitude > _LEAST_SCALE) & (magnitude < _INF)
    if finite:
        np.putmask(code, (code == _NO_SCALE) & (magnitude <= _INF), 0xFE)
    return code.astype(U8).view(U16)


def encode_half_scales(x: np.ndarray, rnd: str, finite: bool) -> np.ndarray:
    """Packed bf16 (u32) to packed ue8m0 (u16)."""
    wide = widen_half(x, "bf16")
    return encode_scales(wide[1::2], wide[0::2], rnd, finite)


def decode_scales(x: np.ndarray) -> np.ndarray:
    """Packed ue8m0 (u16) to packed bf16 (u32): 2^(code - 127), 0xFF is NaN."""
    codes = x.view(U8)
    halves = codes.astype(U16) << U16(7)
    halves[codes == 0] = 0x0040
    halves[codes == 0xFF] = 0x7FFF
    return halves.view(U32)


# ---------------------------------------------------------------- f64 and f32, which keep the payload of NaN
def narrow_double(x: np.ndarray, rnd: str, ftz: bool, sat: bool) -> np.ndarray:
    """f64 to f32 patterns (u32); NaN keeps its sign and leading payload bits."""
    y = narrow_f32(x, rnd, ftz)
    if sat:
        y = saturate(y)
    return y.view(U32)


def widen_double(raw: np.ndarray, type: str, ftz: bool, sat: bool) -> np.ndarray:
    """f32, f16 or bf16 patterns to f64; with `ftz` NaN becomes canonical on the way."""
    x = raw.view(F32) if type == "f32" else widen_half(raw, type)
    y = (canonical(flush(x)) if ftz else x).astype(F64)
    return saturate(y) if sat else y


def narrow_double_half(x: np.ndarray, kind: str, rnd: str) -> np.ndarray:
    """f64 to f16 or bf16 patterns (u16); NaN keeps its sign and leading payload bits."""
    raw, nan = narrow_half(x, kind, rnd), x != x
    if some(nan):
        quiet, shift, payload = (0x7E00, 42, 0x3FF) if kind == "f16" else (0x7FC0, 45, 0x7F)
        kept = x.view(U64)
        words = kept >> U64(48) & U64(0x8000) | U64(quiet) | kept >> U64(shift) & U64(payload)
        raw[nan] = words.astype(U16)[nan]
    return raw
