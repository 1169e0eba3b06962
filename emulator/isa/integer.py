"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2)."""

from __future__ import annotations

from typing import Any

from emulator.isa.operands import arity, read, write
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction

_ALL = "u16|u32|u64|s16|s32|s64"
_WORDS = "u32|u64|s32|s64"


def _double(type: str) -> str:
    return f"{type[0]}{2 * int(type[1:])}"


def _saturated(b: Any, wide: Any) -> Any:
    """An s64 value clamped to s32."""
    low, high = b.const("s64", -(1 << 31)), b.const("s64", (1 << 31) - 1)
    return b.resize(b.min(b.max(wide, low), high), "s32")


def _halves(b: Any, i: Instruction, index: int, type: str) -> list[Any]:
    """The two u16 or s16 of a packed operand."""
    return [b.bits(half, type[:-2]) for half in b.unpack(b.operand(i, index, "u32"), 2)]


# ---------------------------------------------------------------- sums
@op(f"add.type:{_ALL}", f"sub.type:{_ALL}", section="9.7.1.1")
def sums(b: Any, i: Instruction, m: Modifiers) -> None:
    """add, sub; wrapping."""
    arity(i, 3)
    a, c = read(b, i, 1, m["type"]), read(b, i, 2, m["type"])
    write(b, i.operands[0], b.add(a, c) if i.opcode.startswith("add") else b.sub(a, c))


@op("add.sat.s32", "sub.sat.s32", section="9.7.1.1")
def sums_saturated(b: Any, i: Instruction, m: Modifiers) -> None:
    """add, sub; clamped to s32."""
    arity(i, 3)
    a, c = (b.resize(b.operand(i, k, "s32"), "s64") for k in (1, 2))
    write(b, i.operands[0], _saturated(b, b.add(a, c) if i.opcode.startswith("add") else b.sub(a, c)))


@op("add.type:u16x2|s16x2", section="9.7.1.1")
def sums_packed(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two wrapping 16-bit sums."""
    arity(i, 3)
    a, c = _halves(b, i, 1, m["type"]), _halves(b, i, 2, m["type"])
    write(b, i.operands[0], b.pack([b.add(x, y) for x, y in zip(a, c, strict=True)]))


@op("abs.type:s16|s32|s64", "neg.type:s16|s32|s64", section="9.7.1.10")
def sign(b: Any, i: Instruction, m: Modifiers) -> None:
    """abs, neg; the smallest integer is its own result."""
    arity(i, 2)
    a = read(b, i, 1, m["type"])
    negative = b.sub(b.const(m["type"], 0), a)
    write(b, i.operands[0], negative if i.opcode.startswith("neg") else b.max(a, negative))


@op(f"sad.type:{_ALL}", section="9.7.1.7")
def absolute_difference(b: Any, i: Instruction, m: Modifiers) -> None:
    """|a - b| + c."""
    arity(i, 4)
    x, y, z = (read(b, i, k, m["type"]) for k in (1, 2, 3))
    write(b, i.operands[0], b.add(z, b.sub(b.max(x, y), b.min(x, y))))


@op(*(f"{name}.type:{_ALL}" for name in ("min", "max")), section="9.7.1.12")
@op(*(f"{name}.relu.type:s32" for name in ("min", "max")), section="9.7.1.12")
def extreme(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max; `.relu` raises negative results to 0."""
    arity(i, 3)
    function = b.min if i.opcode.startswith("min") else b.max
    value = function(read(b, i, 1, m["type"]), read(b, i, 2, m["type"]))
    write(b, i.operands[0], b.max(value, b.const("s32", 0)) if ".relu" in i.opcode else value)


@op(*(f"{name}{form}" for name in ("min", "max") for form in (".type:u16x2", "[.relu].type:s16x2")), section="9.7.1.12")
def extreme_packed(b: Any, i: Instruction, m: Modifiers) -> None:
    """min, max of both halves."""
    arity(i, 3)
    function = b.min if i.opcode.startswith("min") else b.max
    a, c = _halves(b, i, 1, m["type"]), _halves(b, i, 2, m["type"])
    parts = [function(x, y) for x, y in zip(a, c, strict=True)]
    parts = [b.max(part, b.const("s16", 0)) for part in parts] if m.get("relu") else parts
    write(b, i.operands[0], b.pack(parts))


# ---------------------------------------------------------------- products
def _product(b: Any, i: Instruction, type: str, mode: str) -> Any:
    x, y = read(b, i, 1, type), read(b, i, 2, type)
    if mode == "wide":
        return b.mul(b.resize(x, _double(type)), b.resize(y, _double(type)))
    return b.mul(x, y) if mode == "lo" else b.mulhi(x, y)


@op(f"mul.mode:hi|lo.type:{_ALL}", "mul.mode:wide.type:u16|u32|s16|s32", section="9.7.1.3")
def product(b: Any, i: Instruction, m: Modifiers) -> None:
    """Low half, high half or all of a product."""
    arity(i, 3)
    write(b, i.operands[0], _product(b, i, m["type"], m["mode"]))


@op(f"mad.mode:hi|lo.type:{_ALL}", "mad.mode:wide.type:u16|u32|s16|s32", section="9.7.1.4")
def product_sum(b: Any, i: Instruction, m: Modifiers) -> None:
    """Low half, high half or all of a product, plus c."""
    arity(i, 4)
    addend = read(b, i, 3, _double(m["type"]) if m["mode"] == "wide" else m["type"])
    write(b, i.operands[0], b.add(_product(b, i, m["type"], m["mode"]), addend))


@op("mad.hi.sat.s32", section="9.7.1.4")
def product_sum_saturated(b: Any, i: Instruction, m: Modifiers) -> None:
    """High half of a product plus c, clamped to s32."""
    arity(i, 4)
    high, c = b.resize(_product(b, i, "s32", "hi"), "s64"), b.resize(b.operand(i, 3, "s32"), "s64")
    write(b, i.operands[0], _saturated(b, b.add(high, c)))


def _product24(b: Any, i: Instruction, type: str, mode: str) -> Any:
    """Bits 31..0 or 47..16 of the product of the low 24 bits of each operand."""
    wide = _double(type)
    eight = b.const("u32", 8)
    x, y = (b.resize(b.shr(b.shl(read(b, i, k, type), eight), eight), wide) for k in (1, 2))
    whole = b.mul(x, y)
    return b.resize(b.shr(whole, b.const("u32", 16)) if mode == "hi" else whole, type)


@op("mul24.mode:hi|lo.type:u32|s32", section="9.7.1.5")
def product24(b: Any, i: Instruction, m: Modifiers) -> None:
    """Product of 24-bit numbers."""
    arity(i, 3)
    write(b, i.operands[0], _product24(b, i, m["type"], m["mode"]))


@op("mad24.mode:hi|lo.type:u32|s32", section="9.7.1.6")
def product24_sum(b: Any, i: Instruction, m: Modifiers) -> None:
    """Product of 24-bit numbers, plus c."""
    arity(i, 4)
    write(b, i.operands[0], b.add(_product24(b, i, m["type"], m["mode"]), read(b, i, 3, m["type"])))


@op("mad24.hi.sat.s32", section="9.7.1.6")
def product24_sum_saturated(b: Any, i: Instruction, m: Modifiers) -> None:
    """Upper part of a product of 24-bit numbers plus c, clamped to s32."""
    arity(i, 4)
    high, c = b.resize(_product24(b, i, "s32", "hi"), "s64"), b.resize(b.operand(i, 3, "s32"), "s64")
    write(b, i.operands[0], _saturated(b, b.add(high, c)))


@op(f"div.type:{_ALL}", f"rem.type:{_ALL}", section="9.7.1.8")
def quotient(b: Any, i: Instruction, m: Modifiers) -> None:
    """div, rem; a zero divisor gives all ones."""
    arity(i, 3)
    a, c = read(b, i, 1, m["type"]), read(b, i, 2, m["type"])
    write(b, i.operands[0], b.div(a, c) if i.opcode.startswith("div") else b.rem(a, c))


# ---------------------------------------------------------------- dot products of bytes
def _fields(b: Any, i: Instruction, index: int, count: int, type: str) -> list[Any]:
    """The bytes or half words of an operand, extended to 32 bits by the sign of `type`."""
    width = 32 // count
    parts = b.unpack(b.operand(i, index, "u32"), count)
    return [b.bits(b.resize(b.bits(part, f"{type[0]}{width}"), f"{type[0]}32"), "u32") for part in parts]


def _dot(b: Any, i: Instruction, x: list[Any], y: list[Any]) -> None:
    total = b.operand(i, 3, "u32")
    for p, q in zip(x, y, strict=True):
        total = b.add(total, b.mul(p, q))
    write(b, i.operands[0], total)


@op("dp4a.atype:u32|s32.btype:u32|s32", section="9.7.1.23")
def dot4(b: Any, i: Instruction, m: Modifiers) -> None:
    """Four products of bytes, plus c."""
    arity(i, 4)
    _dot(b, i, _fields(b, i, 1, 4, m["atype"]), _fields(b, i, 2, 4, m["btype"]))


@op("dp2a.mode:lo|hi.atype:u32|s32.btype:u32|s32", section="9.7.1.24")
def dot2(b: Any, i: Instruction, m: Modifiers) -> None:
    """Two products of half words of a and the lower or upper bytes of b, plus c."""
    arity(i, 4)
    octets = _fields(b, i, 2, 4, m["btype"])
    _dot(b, i, _fields(b, i, 1, 2, m["atype"]), octets[:2] if m["mode"] == "lo" else octets[2:])


# ---------------------------------------------------------------- extended precision
def _sum_with_carry(b: Any, i: Instruction, x: Any, y: Any, carry: Any, keep: bool) -> None:
    """x + y + carry to the destination; the carry out into the condition code if `keep`."""
    total = b.add(x, y)
    out = b.cmp("lt", total, x) if keep else None
    if carry is not None:
        total = b.add(total, _bit(b, x.type, carry))
        if keep:
            out = b.or_(out, b.and_(carry, b.cmp("eq", total, b.const(x.type, 0))))
    write(b, i.operands[0], total)
    if keep:
        b.write_carry(out)


def _bit(b: Any, type: str, carry: Any) -> Any:
    return b.select(carry, b.const(type, 1), b.const(type, 0))


@op(f"add.cc.type:{_WORDS}", f"addc[.cc].type:{_WORDS}", section="9.7.2.1")
def add_carry(b: Any, i: Instruction, m: Modifiers) -> None:
    """Sum with carry in and out."""
    arity(i, 3)
    raw = "u" + m["type"][1:]
    carry = b.read_carry() if i.opcode.startswith("addc") else None
    _sum_with_carry(b, i, b.operand(i, 1, raw), b.operand(i, 2, raw), carry, m.get("cc", True))


@op(f"sub.cc.type:{_WORDS}", f"subc[.cc].type:{_WORDS}", section="9.7.2.3")
def sub_borrow(b: Any, i: Instruction, m: Modifiers) -> None:
    """Difference with borrow in and out."""
    arity(i, 3)
    raw = "u" + m["type"][1:]
    x, y = b.operand(i, 1, raw), b.operand(i, 2, raw)
    result, out = b.sub(x, y), b.cmp("lt", x, y)
    if i.opcode.startswith("subc"):
        borrow = b.read_carry()
        out = b.or_(out, b.and_(borrow, b.cmp("eq", result, b.const(raw, 0))))
        result = b.sub(result, _bit(b, raw, borrow))
    write(b, i.operands[0], result)
    if m.get("cc", True):
        b.write_carry(out)


@op(f"mad.mode:hi|lo.cc.type:{_WORDS}", f"madc.mode:hi|lo[.cc].type:{_WORDS}", section="9.7.2.5")
def product_carry(b: Any, i: Instruction, m: Modifiers) -> None:
    """Half of a product plus c, with carry in and out."""
    arity(i, 4)
    raw = "u" + m["type"][1:]
    half = b.bits(_product(b, i, m["type"], m["mode"]), raw)
    carry = b.read_carry() if i.opcode.startswith("madc") else None
    _sum_with_carry(b, i, half, b.operand(i, 3, raw), carry, m.get("cc", True))
