"""Moves, packing and address conversion (PTX ISA 9.7.9.3, 9.7.9.4, 9.7.9.19, 9.7.9.20)."""

from __future__ import annotations

from typing import Any

from emulator.builders.algebra import Unsupported
from emulator.isa.operands import arity, natural, write
from emulator.isa.table import Modifiers, op
from emulator.memory.spaces import SHARED_WINDOW
from emulator.ptx.module import Imm, Instruction, Operand, Reg, Vector
from emulator.ptx.types import TYPES


# ---------------------------------------------------------------- mov
@op("mov.pred", section="9.7.9.3")
def move_predicate(b: Any, i: Instruction, m: Modifiers) -> None:
    """A predicate; a literal is true unless zero."""
    arity(i, 2)
    source = i.operands[1]
    value = b.const("pred", int(source.bits != 0)) if isinstance(source, Imm) else b.source(source, "pred")
    write(b, i.operands[0], value)


@op("mov.type:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64", section="9.7.9.3")
def move(b: Any, i: Instruction, m: Modifiers) -> None:
    """A register, literal, special register or address; or a vector packed into, or unpacked from, a scalar."""
    arity(i, 2)
    target, source = i.operands
    width = TYPES[m["type"]].bits
    if isinstance(target, Vector):
        _must_have(source, width)
        _unpack(b, target, natural(b, source, f"u{width}"), width)
    elif isinstance(source, Vector):
        _must_have(target, width)
        write(b, target, b.pack(_elements(b, source, width)))
    elif isinstance(source, Imm) and m["type"] in ("f32", "f64"):
        write(b, target, b.source(source, m["type"]))
    else:
        write(b, target, natural(b, source, f"u{width}"), m["type"])


def _element_width(vector: Vector, width: int) -> int:
    if len(vector.items) not in (2, 4) or width < 8 * len(vector.items):
        raise Unsupported(f"{len(vector.items)} elements in {width} bits")
    return width // len(vector.items)


def _must_have(operand: Operand, width: int) -> None:
    if isinstance(operand, Reg) and TYPES[operand.type].bits != width:
        raise Unsupported(f"register {operand.name} of type {operand.type} must have {width} bits here")


def _elements(b: Any, vector: Vector, width: int) -> list[Any]:
    each = _element_width(vector, width)
    for item in vector.items:
        _must_have(item, each)
    return [natural(b, item, f"u{each}") for item in vector.items]


def _unpack(b: Any, target: Vector, value: Any, width: int) -> None:
    each = _element_width(target, width)
    for item in target.items:
        _must_have(item, each)
    for item, part in zip(target.items, b.unpack(value, len(target.items)), strict=True):
        write(b, item, part)


@op("mov.b128", section="9.7.9.4")
def move128(b: Any, i: Instruction, m: Modifiers) -> None:
    """A 128-bit register, whole, packed from or unpacked into two 64-bit or four 32-bit elements."""
    arity(i, 2)
    target, source = i.operands
    low, high = _halves(b, source)
    if isinstance(target, Vector):
        each = _element_width(target, 128)
        for item in target.items:
            _must_have(item, each)
        words = [low, high] if each == 64 else [*b.unpack(low, 2), *b.unpack(high, 2)]
        for item, word in zip(target.items, words, strict=True):
            write(b, item, word)
    elif isinstance(target, Reg):
        b.write128(target, low, high)
    else:
        raise Unsupported(f"{target} cannot be a destination of 128 bits")


def _halves(b: Any, source: Operand) -> tuple[Any, Any]:
    if isinstance(source, Vector):
        parts = _elements(b, source, 128)
        if len(parts) == 4:
            return b.pack(parts[:2]), b.pack(parts[2:])
        return b.bits(parts[0], "u64"), b.bits(parts[1], "u64")
    if isinstance(source, Reg) and source.type == "b128":
        low, high = b.read128(source)
        return low, high
    raise Unsupported(f"{source} is not a 128-bit source")


# ---------------------------------------------------------------- generic addresses
_SHARED = "shared|shared::cta|shared::cluster"


@op("cvta[.to].space:const|global|local|param|param::entry.u64", section="9.7.9.20")
def convert_address(b: Any, i: Instruction, m: Modifiers) -> None:
    """Global, constant, local and parameter addresses are their own generic addresses."""
    arity(i, 2)
    write(b, i.operands[0], b.operand(i, 1, "u64"))


@op(f"cvta[.to].space:{_SHARED}.u64", section="9.7.9.20")
def convert_shared_address(b: Any, i: Instruction, m: Modifiers) -> None:
    """Shared addresses lie in a window of the generic addresses."""
    arity(i, 2)
    a, window = b.operand(i, 1, "u64"), b.const("u64", SHARED_WINDOW)
    write(b, i.operands[0], b.sub(a, window) if m["to"] else b.add(a, window))


@op(f"isspacep.space:{_SHARED}", section="9.7.9.19")
def is_shared_address(b: Any, i: Instruction, m: Modifiers) -> None:
    """Whether a generic address lies in the shared memory of the cluster, or of this CTA."""
    arity(i, 2)
    a, window = b.operand(i, 1, "u64"), b.const("u64", SHARED_WINDOW)
    found = b.cmp("ge", a, window)
    if m["space"] != "shared::cluster":
        rank = b.shr(b.sub(a, window), b.const("u32", 24))
        found = b.and_(found, b.cmp("eq", rank, b.resize(b.special("cluster_ctarank"), "u64")))
    write(b, i.operands[0], found)
