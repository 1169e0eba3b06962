"""Lane functions as LLVM IR, continued: conversions, half types, small floats, integers. See `llvm_pure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.builders.llvm_pure import (
    INFINITY,
    PURE,
    ROUNDING,
    TINY,
    as_float,
    double,
    flush,
    inline,
    narrow,
    printed,
    raw_bits,
    saturate,
    signed_zero_if,
    size,
    sum_odd,
    zero_if,
)
from emulator.builders.llvm_values import VECTOR, W
from emulator.builders.sources import WIDTH

__all__ = ["PURE"]

TINY_HALF = {"f16": (0x38800000, 0x3F10000000000000), "bf16": (TINY["f32"], TINY["f64"])}
"""The smallest normal number of a half type as f32 and f64 patterns."""

LARGEST = {"f16": 0x477FE000, "bf16": 0x7F7F0000}
NAN_HALF = 0x7FFF


# ---------------------------------------------------------------- integers and floats
@printed
def float_to_int(b: Any, x: W, type: str, rnd: str, double: bool) -> W:
    """Rounded and clamped; NaN gives 0, or 0x80… for 64 bits and from f64."""
    y = b.intrinsic(ROUNDING[rnd], x.type, x)
    name = f"llvm.fpto{'s' if type[0] == 's' else 'u'}i.sat.v32i{WIDTH[type]}.v32{x.type}"
    result = W(b.call(name, VECTOR[type], y), type)
    if double or WIDTH[type] == 64:
        result = b.select(b.isnan(y), b.const(type, 1 << (WIDTH[type] - 1)), result)
    return result


@printed
def int_to_float(b: Any, x: W, type: str, rnd: str) -> W | None:
    """To the nearest f32 or f64, or f16 pattern."""
    if rnd != "rn" or type == "bf16":
        return None
    step = "sitofp" if x.type[0] == "s" else "uitofp"
    if type == "f16":
        # What is not exact in f32 is too large for f16.
        return round_half(b, b.convert(step, x, "f32"), "f16")
    return b.convert(step, x, type)


@inline
def round_integral(b: Any, x: W, rnd: str, ftz: bool = False) -> W:
    """To an integral value of its own type."""
    return b.intrinsic(ROUNDING[rnd], x.type, flush(b, x) if ftz else x, loose_nan=x.type != "f64")


@inline
def narrow_double(b: Any, x: W, rnd: str, ftz: bool, sat: bool) -> W | None:
    """f64 to f32 patterns; NaN keeps its payload."""
    if rnd != "rn":
        return None
    y = narrow(b, x, ftz)
    return raw_bits(b, saturate(b, y) if sat else y)


@inline
def widen_double(b: Any, raw: W, type: str, ftz: bool, sat: bool) -> W:
    """f32, f16 or bf16 patterns to f64."""
    x = as_float(b, raw) if type == "f32" else widen_half(b, raw, type)
    if ftz:
        x = flush(b, x)
        x.loose_nan = True
        x = b.canonical(x)
    y = b.convert("fpext", x, "f64")
    return saturate(b, y) if sat else y


# ---------------------------------------------------------------- half types
@inline
def widen_half(b: Any, x: W, kind: str, ftz: bool = False) -> W:
    """Patterns (u16) as f32; `ftz` flushes subnormals of the half type."""
    if kind == "f16":
        y = b.convert("fpext", as_float(b, x), "f32")
    else:
        y = as_float(b, b.shl(b.resize(x, "u32"), b.const("u32", 16)))
        y.loose_nan = True
    if not ftz:
        return y
    return signed_zero_if(b, b.cmp("lt", size(b, y), b.const("f32", TINY_HALF[kind][0])), y, y)


def odd_f32(b: Any, x: W) -> W:
    """f64 to f32, rounded to odd."""
    y = b.convert("fptrunc", x, "f32")
    back = double(b, y)
    error = b.fsub(x, back)
    raw, zero = raw_bits(b, y), b.const("u32", 0)
    lost = b.and_(b.cmp("gt", size(b, error), b.const("f64", 0)), b.cmp("eq", b.and_(raw, b.const("u32", 1)), zero))
    inward = b.cmp("gt", size(b, back), size(b, x))
    step = b.select(inward, b.const("u32", -1), b.const("u32", 1))
    return as_float(b, b.add(raw, b.select(lost, step, zero)))


def round_half(b: Any, x: W, kind: str) -> W:
    """f32, or f64 that is exact or rounded to odd, to patterns (u16) to nearest even."""
    x = x if x.type == "f32" else odd_f32(b, x)
    if kind == "f16":
        raw = raw_bits(b, b.convert("fptrunc", x, "f16"))
    else:
        word, shift = raw_bits(b, x), b.const("u32", 16)
        odd = b.and_(b.shr(word, shift), b.const("u32", 1))
        raw = b.resize(b.shr(b.add(word, b.add(odd, b.const("u32", 0x7FFF))), shift), "u16")
    return b.select(b.isnan(x), b.const("u16", NAN_HALF), raw)


def _finish(b: Any, x: W, kind: str, ftz: bool, sat: bool, relu: bool) -> W:
    if ftz:
        tiny = b.const(x.type, TINY_HALF[kind][x.type == "f64"])
        x = signed_zero_if(b, b.cmp("lt", size(b, x), tiny), x, x)
    if sat:
        x = saturate(b, x)
    if relu:
        x = zero_if(b, b.cmp("le", x, b.const(x.type, 0)), x)
    return round_half(b, x, kind)


def _halves(b: Any, operation: Callable[..., W], *operands: W) -> W:
    """An operation on u16 patterns, for both halves of packed operands."""
    if operands[0].type == "u16":
        return operation(*operands)
    split = [b.unpack(o, 2) for o in operands]
    return b.pack([operation(*(s[k] for s in split)) for k in (0, 1)])


@printed
def half_add(b: Any, x: W, y: W, kind: str, ftz: bool = False, sat: bool = False) -> W:
    """a + b."""

    def one(x: W, y: W) -> W:
        return _finish(b, b.fadd(widen_half(b, x, kind, ftz), widen_half(b, y, kind, ftz)), kind, ftz, sat, False)

    return _halves(b, one, x, y)


@printed
def half_sub(b: Any, x: W, y: W, kind: str, ftz: bool = False, sat: bool = False) -> W:
    """a - b."""

    def one(x: W, y: W) -> W:
        return _finish(b, b.fsub(widen_half(b, x, kind, ftz), widen_half(b, y, kind, ftz)), kind, ftz, sat, False)

    return _halves(b, one, x, y)


@printed
def half_mul(b: Any, x: W, y: W, kind: str, ftz: bool = False, sat: bool = False) -> W:
    """a * b; products of bf16 may be subnormal in f32, so they go through f64."""

    def one(x: W, y: W) -> W:
        left, right = widen_half(b, x, kind, ftz), widen_half(b, y, kind, ftz)
        if kind == "bf16":
            product = odd_f32(b, b.fmul(double(b, left), double(b, right)))
        else:
            product = b.fmul(left, right)
        return _finish(b, product, kind, ftz, sat, False)

    return _halves(b, one, x, y)


@printed
def half_fma(b: Any, x: W, y: W, z: W, kind: str, ftz: bool = False, sat: bool = False, relu: bool = False) -> W:
    """a * b + c in one rounding."""

    def one(*operands: W) -> W:
        left, right, addend = (double(b, widen_half(b, o, kind, ftz)) for o in operands)
        return _finish(b, sum_odd(b, b.fmul(left, right), addend), kind, ftz, sat, relu)

    return _halves(b, one, x, y, z)


@printed
def half_neg(b: Any, x: W, kind: str, ftz: bool = False) -> W:
    """-a; NaN becomes canonical."""
    return _halves(b, lambda v: round_half(b, b.fneg(widen_half(b, v, kind, ftz)), kind), x)


@printed
def half_abs(b: Any, x: W, kind: str, ftz: bool = False) -> W:
    """|a|; NaN becomes canonical."""
    return _halves(b, lambda v: round_half(b, size(b, widen_half(b, v, kind, ftz)), kind), x)


@printed
def half_extreme(
    b: Any, x: W, y: W, which: str, kind: str, ftz: bool = False, nan: bool = False, xorsign: bool = False
) -> W:
    """min or max; `xorsign` orders magnitudes and takes the sign of the product."""
    choose = b.fmin if which == "min" else b.fmax

    def one(x: W, y: W) -> W:
        left, right = widen_half(b, x, kind, ftz), widen_half(b, y, kind, ftz)
        if not xorsign:
            return round_half(b, choose(left, right, nan), kind)
        result = round_half(b, choose(size(b, left), size(b, right), nan), kind)
        sign = b.and_(b.xor(x, y), b.const("u16", 0x8000))
        signed = b.or_(b.and_(result, b.const("u16", 0x7FFF)), sign)
        return b.select(b.cmp("eq", result, b.const("u16", NAN_HALF)), result, signed)

    return _halves(b, one, x, y)


# ---------------------------------------------------------------- narrowing
@printed
def narrow_half(
    b: Any, x: W, kind: str, rnd: str, sat: bool = False, relu: bool = False, finite: bool = False
) -> W | None:
    """f32 to f16 or bf16 patterns (u16)."""
    if rnd != "rn" or x.type != "f32":
        return None
    x = saturate(b, x) if sat else x
    x = zero_if(b, b.cmp("le", x, b.const("f32", 0)), x) if relu else x
    if finite:
        most = b.const("f32", LARGEST[kind])
        least = b.const("f32", LARGEST[kind] | 0x80000000)
        x = b.select(b.cmp("gt", x, most), most, x)
        x = b.select(b.cmp("lt", x, least), least, x)
    return round_half(b, x, kind)


@printed
def narrow_f16x2(b: Any, high: W, low: W) -> W:
    """Two f32 to packed f16."""
    return b.pack([round_half(b, low, "f16"), round_half(b, high, "f16")])


@printed
def narrow_bf16x2(b: Any, high: W, low: W) -> W:
    """Two f32 to packed bf16."""
    return b.pack([round_half(b, low, "bf16"), round_half(b, high, "bf16")])


@inline
def narrow_pair(b: Any, high: W, low: W, kind: str, rnd: str, relu: bool, finite: bool) -> W | None:
    """Two f32 to packed f16 or bf16 with any modifiers."""
    parts = [PURE["narrow_half"](b, "u16", v, kind, rnd, False, relu, finite) for v in (low, high)]
    return None if parts[0] is None else b.pack(parts)


SMALL = {"e4m3": (3, 7, 0x7E, 0x7F), "e5m2": (2, 15, 0x7B, 0x7F)}
"""Mantissa bits, bias, largest code and code of NaN of the formats that are encoded here."""


def _encode(b: Any, x: W, kind: str, relu: bool) -> W:
    """f32 to codes (u32) of an 8-bit format, to nearest even, clamped to the largest finite number."""
    mantissa, bias, largest, nan = SMALL[kind]
    raw = raw_bits(b, x)
    magnitude, shift = b.and_(raw, b.const("u32", 0x7FFFFFFF)), b.const("u32", 23 - mantissa)
    odd = b.and_(b.shr(magnitude, shift), b.const("u32", 1))
    rounded = b.add(b.add(odd, b.const("u32", (1 << (22 - mantissa)) - 1)), magnitude)
    code = b.sub(b.shr(rounded, shift), b.const("u32", (127 - bias) << mantissa))
    magic = b.const("u32", (127 + 24 - bias - mantissa) << 23)
    below = b.sub(raw_bits(b, b.fadd(as_float(b, magnitude), as_float(b, magic))), magic)
    code = b.select(b.cmp("lt", magnitude, b.const("u32", (128 - bias) << 23)), below, code)
    code = b.min(code, b.const("u32", largest))
    sign = b.and_(b.shr(raw, b.const("u32", 24)), b.const("u32", 0x80))
    code = zero_if(b, b.cmp("ne", sign, b.const("u32", 0)), code) if relu else b.or_(code, sign)
    return b.select(b.cmp("gt", magnitude, b.const("u32", INFINITY["f32"])), b.const("u32", nan), code)


@printed
def encode_pair(b: Any, high: W, low: W, kind: str, relu: bool = False) -> W | None:
    """Two f32 to a packed pair of 8-bit floats."""
    if kind not in SMALL:
        return None
    return b.pack([b.resize(_encode(b, v, kind, relu), "u8") for v in (low, high)])


# ---------------------------------------------------------------- integers
@printed
def divide(b: Any, x: W, y: W) -> W:
    """Quotient toward zero; all ones for a zero divisor; the smallest integer over -1 gives itself."""
    return b.select(_is_zero(b, y), b.const(x.type, -1), _divided(b, "div", x, y))


@printed
def remainder(b: Any, x: W, y: W) -> W:
    """Remainder with the sign of the dividend; all ones for a zero divisor."""
    return b.select(_is_zero(b, y), b.const(x.type, -1), _divided(b, "rem", x, y))


def _is_zero(b: Any, x: W) -> W:
    return b.cmp("eq", x, b.const(x.type, 0))


def _divided(b: Any, operation: str, x: W, y: W) -> W:
    """A division by 1 where LLVM leaves the result undefined: the remainder by -1 is 0, the quotient its operand."""
    one = b.const(x.type, 1)
    safe = b.select(_is_zero(b, y), one, y)
    if x.type[0] == "s":
        lowest = b.const(x.type, 1 << (WIDTH[x.type] - 1))
        overflows = b.and_(b.cmp("eq", x, lowest), b.cmp("eq", y, b.const(x.type, -1)))
        safe = b.select(overflows, one, safe)
    return b.value(f"{x.type[0]}{operation} {b.text(x)}, {b.name(safe)}", x.type)


@printed
def permute(b: Any, x: W, y: W, control: W, mode: str | None) -> W | None:
    """prmt without a mode: four bytes of the eight in {b, a}."""
    if mode is not None:
        return None
    both = b.or_(b.resize(x, "u64"), b.shl(b.resize(y, "u64"), b.const("u32", 32)))
    parts = []
    for k in range(4):
        nibble = b.shr(control, b.const("u32", 4 * k))
        amount = b.shl(b.and_(nibble, b.const("u32", 7)), b.const("u32", 3))
        chosen = b.resize(b.shr(both, amount), "u8")
        sign = b.bits(b.shr(b.bits(chosen, "s8"), b.const("u32", 7)), "u8")
        extended = b.cmp("ne", b.and_(nibble, b.const("u32", 8)), b.const("u32", 0))
        parts.append(b.select(extended, sign, chosen))
    return b.pack(parts)
