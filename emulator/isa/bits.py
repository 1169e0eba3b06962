"""Counting, finding and moving bits (PTX ISA 9.7.1.14 to 9.7.1.22)."""

from __future__ import annotations

from typing import Any

from emulator.isa.operands import VALUE_TYPES, arity, read, write
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction


@op("popc.type:b32|b64", "clz.type:b32|b64", section="9.7.1.14")
def count(b: Any, i: Instruction, m: Modifiers) -> None:
    """popc, clz."""
    arity(i, 2)
    a = read(b, i, 1, m["type"])
    write(b, i.operands[0], b.popc(a) if i.opcode.startswith("popc") else b.clz(a))


@op("brev.type:b32|b64", section="9.7.1.18")
def reverse(b: Any, i: Instruction, m: Modifiers) -> None:
    """Bits in reverse order."""
    arity(i, 2)
    write(b, i.operands[0], b.brev(read(b, i, 1, m["type"])))


@op("bfind[.shiftamt].type:u32|u64|s32|s64", section="9.7.1.16")
def find(b: Any, i: Instruction, m: Modifiers) -> None:
    """Position of the highest bit that differs from the sign, or the shift that brings it to the top; all ones if there
    is none."""
    arity(i, 2)
    a, width = read(b, i, 1, m["type"]), int(m["type"][1:])
    if m["type"][0] == "s":
        a = b.xor(a, b.shr(a, b.const("u32", width - 1)))
    zeros = b.clz(b.bits(a, f"u{width}"))
    if m["shiftamt"]:
        none = b.cmp("eq", zeros, b.const("u32", width))
        write(b, i.operands[0], b.select(none, b.const("u32", -1), zeros))
    else:
        write(b, i.operands[0], b.sub(b.const("u32", width - 1), zeros))


@op("fns.b32", section="9.7.1.17")
def find_nth(b: Any, i: Instruction, m: Modifiers) -> None:
    """Position of the n-th set bit from a base, upward or downward."""
    arity(i, 4)
    mask, base, offset = b.operand(i, 1, "u32"), b.operand(i, 2, "u32"), b.operand(i, 3, "s32")
    write(b, i.operands[0], b.pure("find_nth_set", "u32", mask, base, offset))


def _position(b: Any, i: Instruction, index: int, type: str) -> Any:
    """A position or length: its low byte in the 32-bit forms, as PTX says; the whole word in the 64-bit forms, as the
    hardware has it."""
    word = b.operand(i, index, "u32")
    return b.and_(word, b.const("u32", 0xFF)) if type.endswith("32") else word


@op("bfe.type:u32|u64|s32|s64", section="9.7.1.19")
def extract(b: Any, i: Instruction, m: Modifiers) -> None:
    """The field of c bits from bit b on, extended by its sign (of the whole word where it reaches beyond)."""
    arity(i, 4)
    width = b.const("u32", int(m["type"][1:]))
    field = b.shr(read(b, i, 1, m["type"]), _position(b, i, 2, m["type"]))
    unused = b.sub(width, b.min(_position(b, i, 3, m["type"]), width))
    write(b, i.operands[0], b.shr(b.shl(field, unused), unused))


@op("bfi.type:b32|b64", section="9.7.1.20")
def insert(b: Any, i: Instruction, m: Modifiers) -> None:
    """The low d bits of a put into b from bit c on."""
    arity(i, 5)
    a, base = read(b, i, 1, m["type"]), read(b, i, 2, m["type"])
    start, length = _position(b, i, 3, m["type"]), _position(b, i, 4, m["type"])
    ones = b.const(VALUE_TYPES[m["type"]], -1)
    mask = b.shl(b.not_(b.shl(ones, length)), start)
    write(b, i.operands[0], b.or_(b.and_(base, b.not_(mask)), b.and_(b.shl(a, start), mask)))


@op("szext.mode:clamp|wrap.type:u32|s32", section="9.7.1.21")
def extend(b: Any, i: Instruction, m: Modifiers) -> None:
    """The low n bits sign- or zero-extended; n of 32 or more keeps the word (clamp) or counts modulo 32 (wrap)."""
    arity(i, 3)
    a, n = read(b, i, 1, m["type"]), b.operand(i, 2, "u32")
    unused = b.sub(b.const("u32", 32), b.and_(n, b.const("u32", 31)))
    value = b.shr(b.shl(a, unused), unused)
    if m["mode"] == "clamp":
        value = b.select(b.cmp("ge", n, b.const("u32", 32)), a, value)
    write(b, i.operands[0], value)


@op("bmsk.mode:clamp|wrap.b32", section="9.7.1.22")
def mask(b: Any, i: Instruction, m: Modifiers) -> None:
    """b ones from bit a on; clamp cuts at the top of the word, wrap counts both modulo 32."""
    arity(i, 3)
    start, length = b.operand(i, 1, "u32"), b.operand(i, 2, "u32")
    if m["mode"] == "wrap":
        start, length = b.and_(start, b.const("u32", 31)), b.and_(length, b.const("u32", 31))
    ones = b.const("u32", -1)
    write(b, i.operands[0], b.shl(b.not_(b.shl(ones, length)), start))
