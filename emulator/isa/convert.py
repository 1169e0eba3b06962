"""Conversions (PTX ISA 9.7.9.21, 9.7.9.22). Stochastic rounding (`.rs`) and the s2f6 formats are not implemented."""

from __future__ import annotations

from typing import Any

from emulator.builders.algebra import Unsupported
from emulator.isa.operands import VALUE_TYPES, arity, read, write
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction
from emulator.ptx.types import TYPES

_INTEGERS = "u8|u16|u32|u64|s8|s16|s32|s64"
_IRND = "rnd:rni|rzi|rmi|rpi"
_FRND = "rnd:rn|rz|rm|rp"
_FRND2 = "rnd:rn|rz"
_SMALL = "e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2"


def _wide(b: Any, i: Instruction, index: int, type: str) -> Any:
    """A float operand as f32 (half types are widened exactly) or f64."""
    value = read(b, i, index, type)
    return b.pure("widen_half", "f32", value, type) if type in ("f16", "bf16") else value


# ---------------------------------------------------------------- integers
def _limits(type: str) -> tuple[int, int]:
    bits = TYPES[type].bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


@op(f"cvt[.sat].dtype:{_INTEGERS}.type:{_INTEGERS}", section="9.7.9.21")
def integer(b: Any, i: Instruction, m: Modifiers) -> None:
    """Integer to integer: extended, cut, or clamped."""
    arity(i, 2)
    value, (low, high), (least, most) = read(b, i, 1, m["type"]), _limits(m["dtype"]), _limits(m["type"])
    if m["sat"]:
        if low <= least and most <= high:
            raise Unsupported(f".sat: every {m['type']} is a {m['dtype']}")
        value = b.max(value, b.const(m["type"], low)) if low > least else value
        value = b.min(value, b.const(m["type"], high)) if high < most else value
    write(b, i.operands[0], b.bits(b.resize(value, f"u{TYPES[m['dtype']].bits}"), m["dtype"]))


@op(
    f"cvt.{_IRND}[.ftz][.sat].dtype:{_INTEGERS}.type:f32",
    f"cvt.{_IRND}[.sat].dtype:{_INTEGERS}.type:f16|f64",
    f"cvt.{_IRND}.dtype:{_INTEGERS}.type:bf16",
    section="9.7.9.21",
)
def float_to_integer(b: Any, i: Instruction, m: Modifiers) -> None:
    """Float to integer, rounded and always clamped."""
    arity(i, 2)
    value = _wide(b, i, 1, m["type"])
    value = b.ftz(value) if m.get("ftz") else value
    result = b.pure("float_to_int", m["dtype"], value, m["dtype"], m["rnd"], m["type"] == "f64")
    write(b, i.operands[0], result)


@op(
    f"cvt.{_FRND}[.ftz][.sat].dtype:f32.type:{_INTEGERS}",
    f"cvt.{_FRND}[.sat].dtype:f16|f64.type:{_INTEGERS}",
    f"cvt.{_FRND}.dtype:bf16.type:{_INTEGERS}",
    section="9.7.9.21",
)
def integer_to_float(b: Any, i: Instruction, m: Modifiers) -> None:
    """Integer to float; nothing to flush, and clamping to [0, 1] is exact on the integer."""
    arity(i, 2)
    value = read(b, i, 1, m["type"])
    if m.get("sat"):
        value = b.min(b.max(value, b.const(m["type"], 0)), b.const(m["type"], 1))
    write(b, i.operands[0], b.pure("int_to_float", VALUE_TYPES[m["dtype"]], value, m["dtype"], m["rnd"]))


@op("cvt.pack.sat.dtype:u16|s16.s32", "cvt.pack.sat.dtype:u2|s2|u4|s4|u8|s8.s32.b32", section="9.7.9.22")
def integer_pack(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two clamped s32, a above b; below 16 bits the rest of the word comes from the low bits of c."""
    bits = int(m["dtype"][1:])
    arity(i, 3 if bits == 16 else 4)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if m["dtype"][0] == "s" else (0, (1 << bits) - 1)
    parts = []
    for k in (2, 1):
        clamped = b.min(b.max(b.operand(i, k, "s32"), b.const("s32", low)), b.const("s32", high))
        parts.append(b.and_(b.bits(clamped, "u32"), b.const("u32", (1 << bits) - 1)))
    result = b.or_(parts[0], b.shl(parts[1], b.const("u32", bits)))
    if bits < 16:
        result = b.or_(result, b.shl(b.operand(i, 3, "u32"), b.const("u32", 2 * bits)))
    write(b, i.operands[0], result)


# ---------------------------------------------------------------- float to integral float, and to a wider float
@op(
    f"cvt.{_IRND}[.ftz][.sat].type:f32.f32",
    f"cvt.{_IRND}[.sat].type:f64.f64",
    f"cvt.{_IRND}[.sat].type:f16.f16",
    f"cvt.{_IRND}.type:bf16.bf16",
    section="9.7.9.21",
)
def integral(b: Any, i: Instruction, m: Modifiers) -> None:
    """A float rounded to an integral value of its own type."""
    arity(i, 2)
    type = m["type"]
    value = _wide(b, i, 1, type)
    value = b.pure("round_integral", value.type, value, m["rnd"], bool(m.get("ftz")))
    _write_clamped(b, i, m, value)


def _write_clamped(b: Any, i: Instruction, m: Modifiers, value: Any) -> None:
    """An f32 or f64 value, clamped to [0, 1] by `.sat`, to the destination of the instruction's type."""
    if m.get("sat"):
        value = b.pure("saturate", value.type, value)
    half = m["type"] in ("f16", "bf16")
    write(b, i.operands[0], b.pure("round_half", "u16", value, m["type"]) if half else value)


@op("cvt[.ftz].sat:sat.type:f32.f32", "cvt.ftz.type:f32.f32", "cvt.sat:sat.type:f16.f16", section="9.7.9.21")
@op("cvt.sat:sat.type:f64.f64", section="9.7.9.21")
def clamp(b: Any, i: Instruction, m: Modifiers) -> None:
    """A float to its own type, clamped or flushed."""
    arity(i, 2)
    value = _wide(b, i, 1, m["type"])
    _write_clamped(b, i, m, b.ftz(value) if ".ftz" in i.opcode else value)


@op("cvt[.ftz][.sat].f32.type:f16", section="9.7.9.21")
def widen_f16(b: Any, i: Instruction, m: Modifiers) -> None:
    """f16 to f32 (no f16 is an f32 subnormal, so there is nothing to flush)."""
    arity(i, 2)
    value = _wide(b, i, 1, "f16")
    write(b, i.operands[0], b.pure("saturate", "f32", value) if m["sat"] else value)


@op("cvt[.ftz].f32.bf16", section="9.7.9.21")
def widen_bf16(b: Any, i: Instruction, m: Modifiers) -> None:
    """bf16 to f32: a shift, which keeps the payload of NaN; `.ftz` makes it arithmetic."""
    arity(i, 2)
    raw = b.shl(b.resize(read(b, i, 1, "bf16"), "u32"), b.const("u32", 16))
    write(b, i.operands[0], b.ftz(b.bits(raw, "f32")) if m["ftz"] else raw)


@op("cvt[.ftz][.sat].f64.type:f32", "cvt[.sat].f64.type:f16", "cvt.f64.type:bf16", section="9.7.9.21")
def widen_double(b: Any, i: Instruction, m: Modifiers) -> None:
    """To f64; the payload of an f32 NaN is kept."""
    arity(i, 2)
    raw = b.operand(i, 1, "u32") if m["type"] == "f32" else read(b, i, 1, m["type"])
    write(b, i.operands[0], b.pure("widen_double", "f64", raw, m["type"], bool(m.get("ftz")), bool(m.get("sat"))))


# ---------------------------------------------------------------- to a narrower float
@op(f"cvt.{_FRND}[.ftz][.sat].f32.f64", section="9.7.9.21")
def narrow_double(b: Any, i: Instruction, m: Modifiers) -> None:
    """f64 to f32; the payload of NaN is kept."""
    arity(i, 2)
    write(b, i.operands[0], b.pure("narrow_double", "u32", read(b, i, 1, "f64"), m["rnd"], m["ftz"], m["sat"]))


@op(f"cvt.{_FRND}[.sat].dtype:f16.f64", f"cvt.{_FRND}.dtype:bf16.f64", section="9.7.9.21")
def narrow_double_half(b: Any, i: Instruction, m: Modifiers) -> None:
    """f64 to f16 or bf16; the payload of NaN is kept."""
    arity(i, 2)
    value = read(b, i, 1, "f64")
    if m.get("sat"):
        value = b.pure("saturate", "f64", value)
    write(b, i.operands[0], b.pure("narrow_double_half", "u16", value, m["dtype"], m["rnd"]))


@op(
    f"cvt.{_FRND}[.ftz][.sat].dtype:f16.type:f32",
    f"cvt.{_FRND}[.ftz].dtype:bf16.type:f32",
    f"cvt.{_FRND2}.relu:relu[.satfinite].dtype:f16|bf16.type:f32",
    f"cvt.{_FRND2}.satfinite:satfinite[.relu].dtype:f16|bf16.type:f32",
    f"cvt.{_FRND}.dtype:f16.type:bf16",
    f"cvt.{_FRND}.dtype:bf16.type:f16",
    section="9.7.9.21",
)
def narrow(b: Any, i: Instruction, m: Modifiers) -> None:
    """To f16 or bf16. The hardware flushes f32 subnormals on the way to bf16 only: rounding up, cvt.rp.ftz.f16.f32 of
    the smallest f32 is the smallest f16."""
    arity(i, 2)
    value = _wide(b, i, 1, m["type"])
    value = b.ftz(value) if m.get("ftz") and m["dtype"] == "bf16" else value
    flags = [bool(m.get(name)) for name in ("sat", "relu", "satfinite")]
    write(b, i.operands[0], b.pure("narrow_half", "u16", value, m["dtype"], m["rnd"], *flags))


@op(
    f"cvt.{_FRND2}[.relu][.satfinite].dtype:f16x2|bf16x2.f32",
    f"cvt.{_FRND2}.satfinite:satfinite.relu:relu.dtype:f16x2|bf16x2.f32",
    section="9.7.9.21",
)
def narrow_pair(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two f32 to a packed pair, the first source in the upper half."""
    arity(i, 3)
    high, low, kind = read(b, i, 1, "f32"), read(b, i, 2, "f32"), m["dtype"][:-2]
    if m["rnd"] == "rn" and not m["relu"] and not m["satfinite"]:
        write(b, i.operands[0], b.pure(f"narrow_{kind}x2", "u32", high, low))
    else:
        flags = bool(m["relu"]), bool(m["satfinite"])
        write(b, i.operands[0], b.pure("narrow_pair", "u32", high, low, kind, m["rnd"], *flags))


@op(
    "cvt.rnd:rna[.satfinite].tf32.f32",
    f"cvt.{_FRND2}[.satfinite][.relu].tf32.f32",
    f"cvt.{_FRND2}.relu:relu.satfinite:satfinite.tf32.f32",
    section="9.7.9.21",
)
def narrow_tf32(b: Any, i: Instruction, m: Modifiers) -> None:
    """f32 to tf32, which is an f32 pattern with its low 13 bits clear."""
    arity(i, 2)
    flags = bool(m.get("relu")), bool(m.get("satfinite"))
    write(b, i.operands[0], b.pure("narrow_tf32", "u32", b.operand(i, 1, "u32"), m["rnd"], *flags))


# ---------------------------------------------------------------- 8, 6 and 4 bit floats
@op(
    f"cvt.rn.satfinite[.relu].dtype:{_SMALL}.type:f32|f16x2|bf16x2",
    f"cvt.rn.relu:relu.satfinite.dtype:{_SMALL}.type:f32|f16x2|bf16x2",
    section="9.7.9.21",
)
def encode(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two f32, or a packed pair, to a packed pair of a small format, the first source above."""
    kind, type, relu = m["dtype"][:-2], m["type"], bool(m["relu"])
    result = "u8" if kind == "e2m1" else "u16"
    if type == "f32":
        arity(i, 3)
        value = b.pure("encode_pair", result, read(b, i, 1, "f32"), read(b, i, 2, "f32"), kind, relu)
    else:
        arity(i, 2)
        value = b.pure("encode_halves", result, read(b, i, 1, type), kind, type[:-2], relu)
    write(b, i.operands[0], value)


@op(f"cvt.rn[.relu].f16x2.type:{_SMALL}", section="9.7.9.21")
def decode(b: Any, i: Instruction, m: Modifiers) -> None:
    """A packed pair of a small format to packed f16."""
    arity(i, 2)
    kind = m["type"][:-2]
    source = b.operand(i, 1, "u8" if kind == "e2m1" else "u16")
    write(b, i.operands[0], b.pure("decode_pair", "u32", source, kind, m["relu"]))


@op("cvt.rnd:rz|rp[.satfinite].ue8m0x2.type:f32|bf16x2", section="9.7.9.21")
def encode_scales(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two f32, or packed bf16, to packed powers of two."""
    if m["type"] == "f32":
        arity(i, 3)
        value = b.pure("encode_scales", "u16", read(b, i, 1, "f32"), read(b, i, 2, "f32"), m["rnd"], m["satfinite"])
    else:
        arity(i, 2)
        value = b.pure("encode_half_scales", "u16", read(b, i, 1, "bf16x2"), m["rnd"], m["satfinite"])
    write(b, i.operands[0], value)


@op("cvt.rn.bf16x2.ue8m0x2", section="9.7.9.21")
def decode_scales(b: Any, i: Instruction, m: Modifiers) -> None:
    """Packed powers of two to packed bf16."""
    arity(i, 2)
    write(b, i.operands[0], b.pure("decode_scales", "u32", b.operand(i, 1, "u16")))
