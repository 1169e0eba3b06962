"""Number formats of the tensor cores and of `cvt`: decode to float32 and encode from it, bit for bit.

Formats: f16, bf16, tf32 (in a 32-bit container), e4m3, e5m2, e2m3, e3m2, e2m1 (in the low bits of a byte), and the
scale formats ue8m0 (2^(x-127), 0xFF is NaN) and ue4m3 (e4m3 without its sign bit). Rules measured on an H200 where it
has the conversion, else PTX `cvt` and the CUDA headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
F32 = NDArray[np.float32]

ROUNDINGS = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A float format. `bits` significant bits of a code in elements of `dtype`; exponent and mantissa widths, `bias`;
    `largest` the code of the greatest finite value; `infinity` its code or None; `nan` the code that encode writes for
    NaN. `low` zero bits follow the code in its container (tf32: 13)."""

    name: str
    bits: int
    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int
    dtype: type
    low: int = 0

    @property
    def sign(self) -> int:
        """The sign bit of a code."""
        return 1 << (self.exponent + self.mantissa)


FORMATS = {
    f.name: f
    for f in (
        Format("f16", 16, 5, 10, 15, 0x7BFF, 0x7C00, 0x7FFF, np.uint16),
        Format("bf16", 16, 8, 7, 127, 0x7F7F, 0x7F80, 0x7FFF, np.uint16),
        Format("tf32", 19, 8, 10, 127, 0x3FBFF, 0x3FC00, 0x3FFFF, np.uint32, low=13),
        Format("e4m3", 8, 4, 3, 7, 0x7E, None, 0x7F, np.uint8),
        Format("e5m2", 8, 5, 2, 15, 0x7B, 0x7C, 0x7F, np.uint8),
        Format("e2m3", 6, 2, 3, 1, 0x1F, None, 0x1F, np.uint8),
        Format("e3m2", 6, 3, 2, 3, 0x1F, None, 0x1F, np.uint8),
        Format("e2m1", 4, 2, 1, 1, 0x7, None, 0x7, np.uint8),
    )
}
SCALE_FORMATS = ("ue8m0", "ue4m3")
# Where tensor memory's 8-bit holders keep a narrow element: bits [5:2] and [6:1].
HOLDER_SHIFT = {"e2m1": 2, "e2m3": 1, "e3m2": 1}


def decode(name: str, bits: Bits) -> F32:
    """The values of raw codes, float32 of the same shape; exact. Bits above the code are ignored (tf32: the 13 below).

    NaN of an 8-bit format or f16 becomes 0x7FFFFFFF; bf16 and tf32 keep their payload. Raises ValueError for an
    unknown format.
    """
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name == "tf32":
        return (bits.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return decode_table(name).take(bits)


@cache
def decode_table(name: str) -> F32:
    """float32 value of every code: 65536 entries for f16, 256 for a byte format (bits above the code ignored)."""
    if name == "f16":
        with np.errstate(invalid="ignore"):
            table = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
        return _canonical_nan(table)
    codes = np.arange(256)
    if name == "ue8m0":
        table = np.ldexp(np.float32(1), np.minimum(codes, 254) - 127).astype(np.float32)
        table[255] = np.nan
        return _canonical_nan(table)
    if name == "ue4m3":
        return decode_table("e4m3")[codes & 0x7F]
    if name not in FORMATS or FORMATS[name].dtype is not np.uint8:
        raise ValueError(f"format {name!r}: allowed: {', '.join((*FORMATS, *SCALE_FORMATS))}")
    fmt = FORMATS[name]
    codes &= (fmt.sign << 1) - 1
    field = codes >> fmt.mantissa & ((1 << fmt.exponent) - 1)
    fraction = codes & ((1 << fmt.mantissa) - 1)
    significand = np.where(field, fraction + (1 << fmt.mantissa), fraction)
    value = np.ldexp(significand.astype(np.float32), np.maximum(field, 1) - fmt.bias - fmt.mantissa)
    value = np.where(codes & fmt.sign, -value, value).astype(np.float32)
    magnitude = codes & (fmt.sign - 1)
    if fmt.infinity is not None:
        value[magnitude == fmt.infinity] *= np.float32(np.inf)
        value[magnitude > fmt.infinity] = np.nan
    elif name == "e4m3":
        value[magnitude == 0x7F] = np.nan
    return _canonical_nan(value)


def _canonical_nan(values: F32) -> F32:
    out = np.ascontiguousarray(values, np.float32)
    out.view(np.uint32)[np.isnan(out)] = 0x7FFFFFFF
    return out


def encode(name: str, values: F32, rounding: str = "rn", satfinite: bool = False, relu: bool = False) -> Bits:
    """Codes of float32 values (any shape), in the format's dtype.

    rounding: rn (ties to even), rz, rm, rp; for tf32 also rna (ties away); ue8m0 takes rz or rp only, and ignores the
    sign. satfinite: beyond the largest finite value (infinities included) gives that value with its sign. Formats
    without infinity (e4m3 and narrower) always saturate. relu: negative values and -0 give +0.
    NaN gives the format's NaN, or +largest for the 6- and 4-bit formats, with either option.
    Raises ValueError for an unknown format or rounding.
    """
    word = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if name == "ue8m0":
        return _encode_ue8m0(word, rounding, satfinite)
    if name == "tf32" and rounding == "rna":
        return _encode_tf32_away(word, satfinite)
    if name not in FORMATS or rounding not in ROUNDINGS:
        raise ValueError(f"encode to {name!r} with rounding {rounding!r}: no such conversion")
    fmt = FORMATS[name]
    magnitude = (word & np.uint32(0x7FFFFFFF)).astype(np.int64)
    negative = word >> np.uint32(31) != 0
    code = _round(magnitude, negative, fmt, rounding)
    over = code > fmt.largest
    if over.any():
        code = np.where(over, _overflow(magnitude, negative, fmt, rounding, satfinite), code)
    code = np.where(negative, 0 if relu else code | fmt.sign, code)
    code = np.where(magnitude > 0x7F800000, fmt.nan, code)
    return (code << fmt.low).astype(fmt.dtype)


def _round(magnitude: Bits, negative: Bits, fmt: Format, rounding: str) -> Bits:
    """Magnitude codes without a range check: rounding carries run on into the exponent and past `largest`."""
    field = magnitude >> 23
    significand = (magnitude & 0x7FFFFF) | np.where(field, 1 << 23, 0)
    exponent = np.maximum(field, 1) - 127
    least = 1 - fmt.bias
    # Bits to drop: 23 - mantissa for normal results, more when the result is subnormal. 26 already leaves nothing.
    drop = np.minimum(np.maximum(exponent, least) - exponent + (23 - fmt.mantissa), 26)
    kept = significand >> drop
    rest = significand - (kept << drop)
    if rounding == "rn":
        half = np.int64(1) << (drop - 1)
        up = (rest > half) | ((rest == half) & (kept & 1 != 0))
    elif rounding == "rz":
        up = np.zeros(1, bool)
    else:
        up = (rest != 0) & (negative == (rounding == "rm"))
    return kept + up + ((np.maximum(exponent, least) - least) << fmt.mantissa)


def _overflow(magnitude: Bits, negative: Bits, fmt: Format, rounding: str, satfinite: bool) -> Bits:
    """What a magnitude beyond `largest` becomes: infinity, or the largest value where the rounding stops there."""
    if satfinite or fmt.infinity is None:
        return np.full(magnitude.shape, fmt.largest, np.int64)
    stops = {"rn": np.zeros_like(negative), "rz": np.ones_like(negative), "rm": ~negative, "rp": negative}[rounding]
    return np.where(stops & (magnitude < 0x7F800000), fmt.largest, fmt.infinity)


def _encode_ue8m0(word: Bits, rounding: str, satfinite: bool) -> Bits:
    if rounding not in ("rz", "rp"):
        raise ValueError(f"encode to 'ue8m0' with rounding {rounding!r}: allowed: rz, rp")
    magnitude = word & np.uint32(0x7FFFFFFF)
    code = (magnitude >> np.uint32(23)).astype(np.int64)
    if rounding == "rp":
        # 0x00400000 is 2^-127, the least value: anything up to it rounds up to code 0.
        code += (magnitude & np.uint32(0x7FFFFF) != 0) & (magnitude > 0x400000) & (magnitude < 0x7F800000)
    if satfinite:
        code = np.where((code == 255) & (magnitude <= 0x7F800000), 254, code)
    return code.astype(np.uint8)


def _encode_tf32_away(word: Bits, satfinite: bool) -> Bits:
    """cvt.rna.tf32: NaN is only masked (a payload in the low bits becomes infinity); satfinite steps whatever has an
    all-ones exponent down by one unit, NaN included."""
    finite = word & np.uint32(0x7FFFFFFF) < np.uint32(0x7F800000)
    out = (word + np.where(finite, np.uint32(0x1000), np.uint32(0))) & np.uint32(0xFFFFE000)
    if satfinite:
        out = np.where(out & np.uint32(0x7F800000) == np.uint32(0x7F800000), out - np.uint32(0x2000), out)
    return out.astype(np.uint32)
