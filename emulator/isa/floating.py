"""Floating point arithmetic (PTX ISA 9.7.3 to 9.7.5).

Half types are bit patterns and their arithmetic is one lane function for scalars and pairs; f32x2 is two f32. Flushing
is by tininess before rounding, so an operation with `.ftz` is one function and never an operation followed by a flush.
"""

from __future__ import annotations

from typing import Any

from emulator.isa.operands import VALUE_TYPES, arity, read, write
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction

_RND = "rnd:rn|rz|rm|rp"


# ---------------------------------------------------------------- shared pieces
def kind_of(type: str) -> str:
    """f16 or bf16 of a scalar or packed half type."""
    return type.removesuffix("x2")


def half_call(b: Any, i: Instruction, function: str, type: str, sources: int, *settings: Any) -> None:
    """A lane function over bit patterns of a half type, from the `sources` operands behind the destination."""
    values = [read(b, i, k, type) for k in range(1, sources + 1)]
    write(b, i.operands[0], b.pure(function, VALUE_TYPES[type], *values, *settings))


def plain(b: Any, name: str, values: list[Any], rnd: str) -> Any:
    """add, sub, mul or fma of f32 or f64 values in the algebra."""
    return {"add": b.fadd, "sub": b.fsub, "mul": b.fmul, "fma": b.ffma}[name](*values, rnd)


def single(b: Any, name: str, values: list[Any], m: Modifiers) -> Any:
    """add, sub, mul or fma of f32 values with `.rnd`, `.ftz` and `.sat`."""
    rnd = m.get("rnd") or "rn"
    result = b.pure(f"{name}_f32", "f32", *values, rnd, True) if m.get("ftz") else plain(b, name, values, rnd)
    return b.pure("saturate", "f32", result) if m.get("sat") else result


def pair(b: Any, i: Instruction, name: str, sources: int, m: Modifiers) -> None:
    """The same on both halves of f32x2 operands."""
    split = [b.unpack(read(b, i, k, "f32x2"), 2) for k in range(1, sources + 1)]
    parts = [single(b, name, [b.bits(s[half], "f32") for s in split], m) for half in (0, 1)]
    write(b, i.operands[0], b.pack(parts))


# ---------------------------------------------------------------- sums and products
_SUMS = (f"[.{_RND}][.ftz][.sat].type:f32", f"[.{_RND}][.ftz].type:f32x2", f"[.{_RND}].type:f64")
_HALF_SUMS = ("[.rnd:rn][.ftz][.sat].type:f16|f16x2", "[.rnd:rn].type:bf16|bf16x2")


@op(*(f"{name}{form}" for name in ("add", "sub", "mul") for form in _SUMS + _HALF_SUMS), section="9.7.3.3")
def arithmetic(b: Any, i: Instruction, m: Modifiers) -> None:
    """add, sub, mul."""
    arity(i, 3)
    name, type = i.opcode.split(".")[0], m["type"]
    if type == "f32x2":
        pair(b, i, name, 2, m)
    elif type in ("f32", "f64"):
        values = [read(b, i, 1, type), read(b, i, 2, type)]
        result = single(b, name, values, m) if type == "f32" else plain(b, name, values, m["rnd"] or "rn")
        write(b, i.operands[0], result)
    else:
        half_call(b, i, f"half_{name}", type, 2, kind_of(type), bool(m.get("ftz")), bool(m.get("sat")))


@op(*(f"{name}[.{_RND}][.sat].f32.half:f16|bf16" for name in ("add", "sub")), section="9.7.5.1")
def arithmetic_mixed(b: Any, i: Instruction, m: Modifiers) -> None:
    """add, sub of a half (first) and an f32 (second) operand."""
    arity(i, 3)
    a = b.pure("widen_half", "f32", read(b, i, 1, m["half"]), m["half"])
    write(b, i.operands[0], single(b, i.opcode[:3], [a, read(b, i, 2, "f32")], m))


@op(
    f"fma.{_RND}[.ftz][.sat].type:f32",
    f"fma.{_RND}[.ftz].type:f32x2",
    f"fma.{_RND}.type:f64",
    f"mad.{_RND}[.ftz][.sat].type:f32",
    f"mad.{_RND}.type:f64",
    "fma.rnd:rn[.ftz][.sat].type:f16|f16x2",
    "fma.rnd:rn[.ftz].relu:relu.type:f16|f16x2",
    "fma.rnd:rn[.relu].type:bf16|bf16x2",
    section="9.7.3.6",
)
def fused(b: Any, i: Instruction, m: Modifiers) -> None:
    """fma, mad: a * b + c in one rounding."""
    arity(i, 4)
    type = m["type"]
    if type == "f32x2":
        pair(b, i, "fma", 3, m)
    elif type in ("f32", "f64"):
        values = [read(b, i, k, type) for k in (1, 2, 3)]
        result = single(b, "fma", values, m) if type == "f32" else plain(b, "fma", values, m["rnd"])
        write(b, i.operands[0], result)
    else:
        flags = [bool(m.get(name)) for name in ("ftz", "sat", "relu")]
        half_call(b, i, "half_fma", type, 3, kind_of(type), *flags)


@op(f"fma.{_RND}[.sat].f32.half:f16|bf16", section="9.7.5.3")
def fused_mixed(b: Any, i: Instruction, m: Modifiers) -> None:
    """fma of two half operands and an f32 addend."""
    arity(i, 4)
    x, y = (b.pure("widen_half", "f32", read(b, i, k, m["half"]), m["half"]) for k in (1, 2))
    write(b, i.operands[0], single(b, "fma", [x, y, read(b, i, 3, "f32")], m))


# ---------------------------------------------------------------- quotients and roots
@op(f"div.{_RND}[.ftz].type:f32", f"div.{_RND}.type:f64", section="9.7.3.8")
def divide(b: Any, i: Instruction, m: Modifiers) -> None:
    """Quotient with IEEE rounding."""
    arity(i, 3)
    _rounded(b, i, "div", 2, m)


@op(
    *(f"{name}.{_RND}{form}" for name in ("rcp", "sqrt") for form in ("[.ftz].type:f32", ".type:f64")),
    section="9.7.3.13",
)
def root(b: Any, i: Instruction, m: Modifiers) -> None:
    """rcp, sqrt with IEEE rounding."""
    arity(i, 2)
    _rounded(b, i, i.opcode.split(".")[0], 1, m)


def _rounded(b: Any, i: Instruction, name: str, sources: int, m: Modifiers) -> None:
    type = m["type"]
    settings = (m["rnd"], m["ftz"]) if type == "f32" else (m["rnd"],)
    values = [read(b, i, k, type) for k in range(1, sources + 1)]
    write(b, i.operands[0], b.pure(f"{name}_{type}", type, *values, *settings))


@op("div.mode:approx|full[.ftz].f32", section="9.7.3.8")
def divide_approximate(b: Any, i: Instruction, m: Modifiers) -> None:
    """Quotient within 2 ulp; `approx` loses divisors above 2^126."""
    arity(i, 3)
    values = read(b, i, 1, "f32"), read(b, i, 2, "f32")
    write(b, i.operands[0], b.pure("div_approx_f32", "f32", *values, m["ftz"], m["mode"] == "full"))


_APPROXIMATE = {
    "ex2": "ex2_f32", "lg2": "lg2_f32", "rcp": "rcp_approx_f32", "rsqrt": "rsqrt_f32", "sqrt": "sqrt_approx_f32",
}  # fmt: skip


@op(*(f"{name}.approx[.ftz].f32" for name in _APPROXIMATE), section="9.7.3.13")
def approximate(b: Any, i: Instruction, m: Modifiers) -> None:
    """ex2, lg2, rcp, rsqrt, sqrt within their documented errors."""
    arity(i, 2)
    function = _APPROXIMATE[i.opcode.split(".")[0]]
    write(b, i.operands[0], b.pure(function, "f32", read(b, i, 1, "f32"), m["ftz"]))


@op("sin.approx[.ftz].f32", "cos.approx[.ftz].f32", "tanh.approx.f32", section="9.7.3.18")
def transcendental(b: Any, i: Instruction, m: Modifiers) -> None:
    """sin, cos (which flush subnormals with and without `.ftz`) and tanh."""
    arity(i, 2)
    write(b, i.operands[0], b.pure(f"{i.opcode.split('.')[0]}_f32", "f32", read(b, i, 1, "f32")))


@op("rcp.approx.ftz.f64", "rsqrt.approx[.ftz].f64", section="9.7.3.14")
def approximate_double(b: Any, i: Instruction, m: Modifiers) -> None:
    """The 20-bit f64 reciprocal and reciprocal root, and the full-width reciprocal root."""
    arity(i, 2)
    a = read(b, i, 1, "f64")
    if i.opcode.startswith("rcp"):
        write(b, i.operands[0], b.pure("rcp_approx_f64", "f64", a))
    else:
        write(b, i.operands[0], b.pure("rsqrt_f64", "f64", a, m["ftz"]))


@op(
    "ex2.approx.type:f16|f16x2",
    "ex2.approx.ftz.type:bf16|bf16x2",
    "tanh.approx.type:f16|f16x2|bf16|bf16x2",
    section="9.7.4.9",
)
def half_table(b: Any, i: Instruction, m: Modifiers) -> None:
    """ex2 and tanh of half types."""
    arity(i, 2)
    half_call(b, i, "half_function", m["type"], 1, f"{i.opcode.split('.')[0]}_{kind_of(m['type'])}")


# ---------------------------------------------------------------- signs and classes
@op(
    *(f"{name}{form}" for name in ("neg", "abs") for form in ("[.ftz].type:f32|f16|f16x2", ".type:f64|bf16|bf16x2")),
    section="9.7.3.9",
)
def sign(b: Any, i: Instruction, m: Modifiers) -> None:
    """neg, abs: arithmetic on NaN too, except in f64."""
    arity(i, 2)
    name, type, ftz = i.opcode.split(".")[0], m["type"], bool(m.get("ftz"))
    if type not in ("f32", "f64"):
        half_call(b, i, f"half_{name}", type, 1, kind_of(type), ftz)
        return
    a = read(b, i, 1, type)
    a = b.ftz(a) if ftz else a
    write(b, i.operands[0], b.fneg(a) if name == "neg" else b.fabs(a))


@op("copysign.type:f32|f64", section="9.7.3.2")
def copy_sign(b: Any, i: Instruction, m: Modifiers) -> None:
    """The value of b with the sign of a; bits only."""
    arity(i, 3)
    raw = "u" + m["type"][1:]
    top = b.const(raw, 1 << (int(raw[1:]) - 1))
    a, value = b.operand(i, 1, raw), b.operand(i, 2, raw)
    write(b, i.operands[0], b.or_(b.and_(a, top), b.and_(value, b.not_(top))))


@op("testp.op:finite|infinite|number|notanumber|normal|subnormal.type:f32|f64", section="9.7.3.1")
def test_property(b: Any, i: Instruction, m: Modifiers) -> None:
    """A property of a float as a predicate; zero counts as normal."""
    arity(i, 2)
    write(b, i.operands[0], b.pure("float_class", "pred", read(b, i, 1, m["type"]), m["op"]))


# ---------------------------------------------------------------- minimum and maximum
def _extreme(b: Any, name: str, nan: bool, x: Any, y: Any) -> Any:
    return (b.fmin if name == "min" else b.fmax)(x, y, nan)


@op(*(f"{name}[.ftz][.NaN][.abs].f32" for name in ("min", "max")), section="9.7.3.11")
def extreme(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max of two or (with or without `.abs`) three f32."""
    values = [read(b, i, k, "f32") for k in range(1, arity(i, 4 if m["abs"] else 3, 4))]
    values = [b.ftz(v) for v in values] if m["ftz"] else values
    values = [b.fabs(v) for v in values] if m["abs"] else values
    name = i.opcode[:3]
    result = _extreme(b, name, m["NaN"], values[0], values[1])
    for third in values[2:]:
        result = _extreme(b, name, m["NaN"], result, third)
    write(b, i.operands[0], result)


@op(*(f"{name}.f64" for name in ("min", "max")), section="9.7.3.11")
def extreme_double(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max of f64."""
    arity(i, 3)
    write(b, i.operands[0], _extreme(b, i.opcode[:3], False, read(b, i, 1, "f64"), read(b, i, 2, "f64")))


@op(*(f"{name}[.ftz][.NaN].xorsign.abs.f32" for name in ("min", "max")), section="9.7.3.11")
def extreme_xorsign(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max of magnitudes, with the sign of the product."""
    arity(i, 3)
    values = [read(b, i, k, "f32") for k in (1, 2)]
    sign = b.and_(b.xor(b.operand(i, 1, "u32"), b.operand(i, 2, "u32")), b.const("u32", 0x80000000))
    values = [b.fabs(b.ftz(v) if m["ftz"] else v) for v in values]
    result = _extreme(b, i.opcode[:3], m["NaN"], values[0], values[1])
    raw = b.bits(result, "u32")
    write(b, i.operands[0], b.select(b.isnan(result), raw, b.or_(raw, sign)))


@op(
    *(
        f"{name}{form}"
        for name in ("min", "max")
        for form in ("[.ftz][.NaN][.xorsign.abs].type:f16|f16x2", "[.NaN][.xorsign.abs].type:bf16|bf16x2")
    ),
    section="9.7.4.7",
)
def extreme_half(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max of half types."""
    arity(i, 3)
    flags = [bool(m.get(name)) for name in ("ftz", "NaN", "xorsign_abs")]
    half_call(b, i, "half_extreme", m["type"], 2, i.opcode[:3], kind_of(m["type"]), *flags)
