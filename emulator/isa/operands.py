"""Reading and writing operands: what most semantic functions share.

Value types of the algebra stand for PTX types as follows: integers for themselves, bit types for unsigned integers of
their width, f32 and f64 for themselves; half and packed types are bit patterns (u16, u32, u64).
"""

from __future__ import annotations

from typing import Any

from emulator.builders.algebra import Unsupported
from emulator.ptx.module import Imm, Instruction, Operand, Pair, Reg, Sink
from emulator.ptx.types import TYPES

VALUE_TYPES = {name: name for name in ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64", "pred")}
VALUE_TYPES |= {f"b{width}": f"u{width}" for width in (8, 16, 32, 64)}
VALUE_TYPES |= {"f16": "u16", "bf16": "u16", "f16x2": "u32", "bf16x2": "u32", "f32x2": "u64"}
VALUE_TYPES |= {"u16x2": "u32", "s16x2": "u32"}


def write(b: Any, operand: Operand, value: Any, type: str | None = None) -> None:
    """Write `value` to a destination. `_` swallows it; a wider register gets it extended by the signedness of `type`
    (default: the value's own type); a narrower register is refused."""
    if isinstance(operand, Sink):
        return
    if not isinstance(operand, Reg):
        raise Unsupported(f"{operand} cannot be a destination")
    if value.type != "pred" and operand.type != "pred":
        width, want = TYPES[value.type].bits, TYPES[operand.type].bits
        if want > 64 or want < width:
            raise Unsupported(f"a {width}-bit result does not fit register {operand.name} of type {operand.type}")
        if want > width:
            sign = (type or value.type)[0]
            value = b.resize(b.bits(value, f"{'s' if sign == 's' else 'u'}{width}"), f"u{want}")
    b.write(operand, value)


def read(b: Any, i: Instruction, index: int, type: str) -> Any:
    """Operand `index` as the value type that stands for the PTX type `type`."""
    return b.operand(i, index, VALUE_TYPES[type])


def natural(b: Any, operand: Operand, type: str) -> Any:
    """A source for an instruction that only moves bits: a register of the right width keeps the type it was written as,
    so that a float need not be reinterpreted on the way; anything else is read as the unsigned type `type`."""
    if isinstance(operand, Reg) and operand.type != "pred" and TYPES[operand.type].bits == TYPES[type].bits:
        return b.read(operand)
    return b.source(operand, type)


def alike(b: Any, x: Operand, y: Operand, type: str) -> tuple[Any, Any]:
    """Two natural sources in one common type, for instructions that pick one of them."""
    first, second = natural(b, x, type), natural(b, y, type)
    if isinstance(x, Reg):
        return first, b.bits(second, first.type)
    return b.bits(first, second.type), second


def both(operand: Operand) -> tuple[Operand, Operand]:
    """`d|p` as two destinations; a single destination leaves the second to `_`."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def arity(i: Instruction, *allowed: int) -> int:
    """The number of operands, if it is one of the allowed numbers."""
    count = len(i.operands)
    if count not in allowed:
        raise Unsupported(f"{count} operands; this form takes {' or '.join(map(str, allowed))}")
    return count


def immediate(operand: Operand) -> int | None:
    """The value of an integer literal, None for anything else."""
    return operand.bits if isinstance(operand, Imm) and operand.width == 0 else None
