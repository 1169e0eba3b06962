"""Lane functions as LLVM IR, by the names of `lanes.py`: each does the same IEEE operations as its NumPy twin.

A definition prints its operations with the builder, once per kernel and combination of operand types and settings, as a
function of its own (`inline` ones where they are used). It answers None for settings that it does not cover, directed
rounding above all; these, and what is not listed here or in `llvm_formats`, are calls of the NumPy function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.builders.approximate import (
    EX2,
    EX2_HIGH,
    EX2_LOW,
    EX2_TABLE,
    LG2,
    MAGIC,
    ONE_BITS,
    ROOT_HALF_BITS,
    pattern,
)
from emulator.builders.llvm_values import LANES, VECTOR, W
from emulator.builders.sources import WIDTH

Lanes = Callable[..., Any]
PURE: dict[str, Lanes] = {}
TINY = {"f32": 0x00800000, "f64": pattern(2.0**-126)}
ONE = {"f16": 0x3C00, "f32": 0x3F800000, "f64": ONE_BITS}
INFINITY = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}
ROUNDING = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def inline(function: Lanes) -> Lanes:
    """Register a definition whose operations are printed where it is used."""
    PURE[function.__name__] = lambda b, types, *arguments: function(b, *arguments)
    return function


def printed(function: Lanes) -> Lanes:
    """Register a definition that is printed as a function."""

    def use(b: Any, types: str, *arguments: Any) -> Any:
        values = [a for a in arguments if isinstance(a, W)]
        settings = "".join(f".{a}" for a in arguments if not isinstance(a, W))
        key = f"{function.__name__}{settings}.{'.'.join(v.type for v in values)}"
        if key not in b.frame.functions:
            b.frame.functions[key] = _print(b, key, function, values, arguments)
        if b.frame.functions[key] is None:
            return None
        return b.value(f'call {VECTOR[types]} @"{key}"({", ".join(b.text(v) for v in values)})', types)

    PURE[function.__name__] = use
    return function


def _print(b: Any, key: str, function: Lanes, values: list[W], arguments: tuple[Any, ...]) -> list[str] | None:
    """The body of a definition, or None if it does not cover the settings."""
    frame = b.frame
    outside = frame.lines, frame.count
    frame.lines, frame.count = [], 0
    inner = type(b)(frame, b.layout, b.block, frozenset(), 0)
    parameters = iter([W(f"%a{k}", v.type) for k, v in enumerate(values)])
    result = function(inner, *(next(parameters) if isinstance(a, W) else a for a in arguments))
    text = None
    if result is not None:
        answer = inner.text(result)
        heads = ", ".join(f"{VECTOR[v.type]} %a{k}" for k, v in enumerate(values))
        head = f'define internal {VECTOR[result.type]} @"{key}"({heads}) nounwind {{'
        text = [head, "start:", *frame.lines, f"ret {answer}", "}"]
    frame.lines, frame.count = outside
    return text


# ---------------------------------------------------------------- pieces
def double(b: Any, x: W) -> W:
    return x if x.type == "f64" else b.convert("fpext", x, "f64")


def number(b: Any, value: float) -> W:
    return b.const("f64", pattern(value))


def size(b: Any, x: W) -> W:
    return b.intrinsic("fabs", x.type, x)


def sign_of(b: Any, magnitude: W, sign: W) -> W:
    """The magnitude of a number with another sign; it is not NaN, and may stand beside what may be."""
    return b.intrinsic("copysign", magnitude.type, magnitude, sign, loose_nan=magnitude.type == "f32")


def zero_if(b: Any, p: W, x: W) -> W:
    """+0 where p, else x."""
    return b.select(p, b.const(x.type, 0), x)


def signed_zero_if(b: Any, p: W, x: W, sign: W) -> W:
    """Zero of the sign of `sign` where p, else x."""
    return b.select(p, sign_of(b, b.const(x.type, 0), sign), x)


def raw_bits(b: Any, x: W) -> W:
    """The bits of a float as they are, NaN included."""
    return b.value(f"bitcast {b.text(x)} to {VECTOR[f'u{WIDTH[x.type]}']}", f"u{WIDTH[x.type]}")


def as_float(b: Any, x: W) -> W:
    return b.value(f"bitcast {b.text(x)} to {VECTOR[f'f{WIDTH[x.type]}']}", f"f{WIDTH[x.type]}")


def narrow(b: Any, x: W, ftz: bool) -> W:
    """f64 to f32 to nearest; `ftz` flushes what is tiny before rounding."""
    y = b.convert("fptrunc", x, "f32")
    if not ftz:
        return y
    return signed_zero_if(b, b.cmp("lt", size(b, x), b.const("f64", TINY["f64"])), y, y)


# ---------------------------------------------------------------- f32 and f64
@inline
def flush(b: Any, x: W) -> W | None:
    """Subnormals to zero of the same sign."""
    if x.type != "f32":
        return None
    return signed_zero_if(b, b.cmp("lt", size(b, x), b.const("f32", TINY["f32"])), x, x)


@inline
def saturate(b: Any, x: W) -> W:
    """Clamped to [0, 1]; NaN and negative zero give +0."""
    one = b.const(x.type, ONE[x.type])
    low = b.select(b.cmp("lt", x, one), x, one)
    return b.select(b.cmp("gt", x, b.const(x.type, 0)), low, b.const(x.type, 0))


def flushed(b: Any, ftz: bool, *values: W) -> list[W]:
    return [flush(b, v) for v in values] if ftz else list(values)


@printed
def add_f32(b: Any, x: W, y: W, rnd: str, ftz: bool = False) -> W | None:
    """a + b; sums of normal numbers are exact below the smallest one."""
    if rnd != "rn":
        return None
    x, y = flushed(b, ftz, x, y)
    total = b.fadd(x, y)
    return flush(b, total) if ftz else total


@printed
def sub_f32(b: Any, x: W, y: W, rnd: str, ftz: bool = False) -> W | None:
    """a - b."""
    if rnd != "rn":
        return None
    x, y = flushed(b, ftz, x, y)
    total = b.fsub(x, y)
    return flush(b, total) if ftz else total


@printed
def mul_f32(b: Any, x: W, y: W, rnd: str, ftz: bool = False) -> W | None:
    """a * b."""
    if rnd != "rn":
        return None
    x, y = flushed(b, ftz, x, y)
    return narrow(b, b.fmul(double(b, x), double(b, y)), ftz) if ftz else b.fmul(x, y)


def sum_odd(b: Any, x: W, y: W) -> W:
    """x + y in f64, rounded to odd."""
    total = b.fadd(x, y)
    back = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, back)), b.fsub(y, back))
    raw, zero = raw_bits(b, total), b.const("f64", 0)
    lost = b.and_(b.cmp("gt", size(b, error), zero), b.cmp("eq", b.and_(raw, b.const("u64", 1)), b.const("u64", 0)))
    outward = b.xor(b.cmp("gt", error, zero), b.cmp("gt", total, zero))
    step = b.select(outward, b.const("u64", -1), b.const("u64", 1))
    return as_float(b, b.add(raw, b.select(lost, step, b.const("u64", 0))))


@printed
def fma_f32(b: Any, x: W, y: W, z: W, rnd: str, ftz: bool = False) -> W | None:
    """a * b + c in one rounding."""
    if rnd != "rn":
        return None
    if not ftz:
        return b.ffma(x, y, z)
    x, y, z = (double(b, v) for v in flushed(b, ftz, x, y, z))
    return narrow(b, sum_odd(b, b.fmul(x, y), z), ftz)


@printed
def fma_f64(b: Any, x: W, y: W, z: W, rnd: str) -> W | None:
    """a * b + c in one rounding; NaN as a separate product (zero if it only overflows) and sum give it."""
    if rnd != "rn":
        return None
    result = b.intrinsic("fma", "f64", x, y, z)
    infinity = b.const("f64", INFINITY["f64"])
    finite = b.and_(b.cmp("lt", size(b, x), infinity), b.cmp("lt", size(b, y), infinity))
    apart = b.fadd(b.select(finite, b.const("f64", 0), b.fmul(x, y)), z)
    return b.select(b.isnan(result), apart, result)


@printed
def div_f32(b: Any, x: W, y: W, rnd: str, ftz: bool = False) -> W | None:
    """a / b."""
    if rnd != "rn":
        return None
    x, y = flushed(b, ftz, x, y)
    return narrow(b, _quotient(b, x, y), ftz)


def _quotient(b: Any, x: W, y: W) -> W:
    return b.value(f"fdiv {b.text(double(b, x))}, {b.name(double(b, y))}", "f64")


@printed
def rcp_f32(b: Any, x: W, rnd: str, ftz: bool = False) -> W | None:
    """1 / a."""
    return div_f32(b, b.const("f32", ONE["f32"]), x, rnd, ftz)


@printed
def sqrt_f32(b: Any, x: W, rnd: str, ftz: bool = False) -> W | None:
    """Square root."""
    return b.convert("fptrunc", _root(b, x, ftz), "f32") if rnd == "rn" else None


def _root(b: Any, x: W, ftz: bool) -> W:
    (x,) = flushed(b, ftz, x)
    return b.intrinsic("sqrt", "f64", double(b, x))


@printed
def div_f64(b: Any, x: W, y: W, rnd: str) -> W | None:
    """a / b."""
    return _quotient(b, x, y) if rnd == "rn" else None


@printed
def rcp_f64(b: Any, x: W, rnd: str) -> W | None:
    """1 / a."""
    return _quotient(b, number(b, 1.0), x) if rnd == "rn" else None


@printed
def sqrt_f64(b: Any, x: W, rnd: str) -> W | None:
    """Square root."""
    return b.intrinsic("sqrt", "f64", x) if rnd == "rn" else None


# ---------------------------------------------------------------- approximate
@printed
def rcp_approx_f32(b: Any, x: W, ftz: bool) -> W:
    """1 / x."""
    (x,) = flushed(b, ftz, x)
    return narrow(b, _quotient(b, number(b, 1.0), x), ftz)


@printed
def rsqrt_f32(b: Any, x: W, ftz: bool) -> W:
    """1 / sqrt(x)."""
    return b.convert("fptrunc", _quotient(b, number(b, 1.0), _root(b, x, ftz)), "f32")


@printed
def sqrt_approx_f32(b: Any, x: W, ftz: bool) -> W:
    """sqrt(x)."""
    return b.convert("fptrunc", _root(b, x, ftz), "f32")


@printed
def div_approx_f32(b: Any, x: W, y: W, ftz: bool, full: bool) -> W:
    """a / b; unless `full`, a divisor above 2^126 has a reciprocal of zero."""
    x, y = flushed(b, ftz, x, y)
    result = narrow(b, _quotient(b, x, y), ftz)
    if full:
        return result
    extent = size(b, y)
    lost = b.and_(b.cmp("gt", extent, b.const("f32", 0x7E800000)), b.cmp("lt", extent, b.const("f32", INFINITY["f32"])))
    return b.select(lost, b.fmul(x, sign_of(b, b.const("f32", 0), y)), result)


@printed
def ex2_f32(b: Any, x: W, ftz: bool) -> W:
    """2^x, see `approximate`."""
    wide, low, high, magic = double(b, x), number(b, EX2_LOW), number(b, EX2_HIGH), number(b, MAGIC)
    wide = b.select(b.cmp("lt", wide, low), low, wide)
    wide = b.select(b.cmp("gt", wide, high), high, wide)
    shifted = b.fadd(wide, magic)
    rest = b.fsub(wide, b.fsub(shifted, magic))
    total = b.fmul(b.fadd(b.fmul(rest, number(b, EX2[1])), number(b, EX2[0])), rest)
    steps = raw_bits(b, shifted)
    entry = b.and_(steps, b.const("u64", 255))
    places = f"<{LANES} x ptr> {b.raw(f'getelementptr i64, ptr @ex2.table, {b.text(entry)}')}"
    b.frame.globals["ex2.table"] = f"[256 x i64] [{', '.join(f'i64 {p}' for p in EX2_TABLE)}], align 64"
    kind = VECTOR["u64"]
    loaded = b.raw(
        f"call {kind} @llvm.masked.gather.v{LANES}i64.v{LANES}p0"
        f"({places}, i32 8, <{LANES} x i1> splat (i1 true), {kind} poison)"
    )
    power = as_float(b, b.add(W(loaded, "u64"), b.shl(steps, b.const("u32", 44))))
    y = b.convert("fptrunc", b.fadd(b.fmul(total, power), power), "f32")
    return zero_if(b, b.cmp("lt", x, b.const("f32", 0xC2FC0000)), y) if ftz else y


@printed
def lg2_f32(b: Any, x: W, ftz: bool) -> W:
    """log2(x), see `approximate`."""
    (x,) = flushed(b, ftz, x)
    wide = double(b, x)
    raw = b.bits(raw_bits(b, wide), "s64")
    exponent = b.shr(b.sub(raw, b.const("s64", ROOT_HALF_BITS)), b.const("u32", 52))
    fraction = as_float(b, b.sub(raw, b.shl(exponent, b.const("u32", 52))))
    one = number(b, 1.0)
    y = _quotient(b, b.fsub(fraction, one), b.fadd(fraction, one))
    square = b.fmul(y, y)
    total = b.fmul(square, number(b, LG2[-1]))
    for coefficient in LG2[-2:0:-1]:
        total = b.fmul(b.fadd(total, number(b, coefficient)), square)
    total = b.fmul(b.fadd(total, number(b, LG2[0])), y)
    total = b.fadd(total, b.convert("sitofp", exponent, "f64"))
    zero, infinity = b.const("f64", 0), b.const("f64", INFINITY["f64"])
    total = b.select(b.cmp("lt", wide, infinity), total, wide)
    total = b.select(b.cmp("gt", wide, zero), total, b.const("f64", 0x7FF8000000000000))
    total = b.select(b.cmp("eq", wide, zero), b.const("f64", 0xFFF0000000000000), total)
    return b.convert("fptrunc", total, "f32")


# ---------------------------------------------------------------- classes
CLASSES = {"finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x3, "normal": 0x168, "subnormal": 0x90}


@inline
def float_class(b: Any, x: W, kind: str) -> W:
    """testp; zero counts as normal."""
    name = f"llvm.is.fpclass.v{LANES}{x.type}"
    return W(b.call(name, VECTOR["pred"], x, ("i32", str(CLASSES[kind]))), "pred")


@inline
def lane_word(b: Any, p: W) -> W:
    """A mask as a word in every lane."""
    return b.splat(b.raw(f"bitcast {b.text(p)} to i32"), "u32")
