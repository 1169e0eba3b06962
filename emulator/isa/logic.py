"""Logic, shifts and byte permutation (PTX ISA 9.7.8, 9.7.9.7)."""

from __future__ import annotations

from functools import cache
from typing import Any

from emulator.builders.algebra import Unsupported
from emulator.isa.operands import VALUE_TYPES, arity, both, immediate, read, write
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction, Operand

_TYPES = "type:pred|b16|b32|b64"


@op(*(f"{name}.{_TYPES}" for name in ("and", "or", "xor")), section="9.7.8.1")
def bitwise(b: Any, i: Instruction, m: Modifiers) -> None:
    """and, or, xor."""
    arity(i, 3)
    function = {"and": b.and_, "or": b.or_, "xor": b.xor}[i.opcode.split(".")[0]]
    write(b, i.operands[0], function(read(b, i, 1, m["type"]), read(b, i, 2, m["type"])))


@op(f"not.{_TYPES}", section="9.7.8.4")
def complement(b: Any, i: Instruction, m: Modifiers) -> None:
    """Bitwise (or predicate) complement."""
    arity(i, 2)
    write(b, i.operands[0], b.not_(read(b, i, 1, m["type"])))


@op("cnot.type:b16|b32|b64", section="9.7.8.5")
def is_zero(b: Any, i: Instruction, m: Modifiers) -> None:
    """1 for zero, else 0."""
    arity(i, 2)
    a = read(b, i, 1, m["type"])
    zero, one = b.const(a.type, 0), b.const(a.type, 1)
    write(b, i.operands[0], b.select(b.cmp("eq", a, zero), one, zero))


# ---------------------------------------------------------------- lop3
_INPUTS = (0xF0, 0xCC, 0xAA)


@cache
def _formulas() -> dict[int, tuple[str, int, int]]:
    """For every truth table of three inputs, the last step of a shortest formula: (operation, table, table)."""
    cost = dict.fromkeys(_INPUTS, 0)
    steps: dict[int, tuple[str, int, int]] = {}
    size = 0
    while len(cost) < 254:
        size += 1
        known = list(cost.items())
        found = {x ^ 0xFF: ("not", x, x) for x, cx in known if cx == size - 1}
        for x, cx in known:
            for y, cy in known:
                if cx + cy == size - 1:
                    found |= {x & y: ("and", x, y), x | y: ("or", x, y), x ^ y: ("xor", x, y)}
        for table, step in found.items():
            if table not in cost and table not in (0, 0xFF):
                cost[table], steps[table] = size, step
    return steps


def _evaluate(b: Any, table: int, known: dict[int, Any]) -> Any:
    if table not in known:
        name, x, y = _formulas()[table]
        if name == "not":
            known[table] = b.not_(_evaluate(b, x, known))
        else:
            function = {"and": b.and_, "or": b.or_, "xor": b.xor}[name]
            known[table] = function(_evaluate(b, x, known), _evaluate(b, y, known))
    return known[table]


def _table(operand: Operand) -> int:
    table = immediate(operand)
    if table is None or not 0 <= table <= 255:
        raise Unsupported("the truth table of lop3 must be a literal from 0 to 255")
    return table


def _lop3(b: Any, i: Instruction) -> Any:
    known = {0: b.const("u32", 0), 0xFF: b.const("u32", -1)}
    known |= {table: b.operand(i, k, "u32") for k, table in enumerate(_INPUTS, 1)}
    return _evaluate(b, _table(i.operands[4]), known)


@op("lop3.b32", section="9.7.8.6")
def logic3(b: Any, i: Instruction, m: Modifiers) -> None:
    """Any function of three bits, by truth table."""
    arity(i, 5)
    write(b, i.operands[0], _lop3(b, i))


@op("lop3.bool:or|and.b32", section="9.7.8.6")
def logic3_test(b: Any, i: Instruction, m: Modifiers) -> None:
    """The same, and whether it is not zero combined with a predicate."""
    arity(i, 6)
    value, (d, p) = _lop3(b, i), both(i.operands[0])
    test, other = b.cmp("ne", value, b.const("u32", 0)), b.operand(i, 5, "pred")
    write(b, d, value)
    write(b, p, b.or_(test, other) if m["bool"] == "or" else b.and_(test, other))


# ---------------------------------------------------------------- shifts
@op("shl.type:b16|b32|b64", "shr.type:b16|b32|b64|u16|u32|u64|s16|s32|s64", section="9.7.8.8")
def shift(b: Any, i: Instruction, m: Modifiers) -> None:
    """shl, shr; amounts from the width on give 0, or the sign."""
    arity(i, 3)
    a, amount = read(b, i, 1, m["type"]), b.operand(i, 2, "u32")
    write(b, i.operands[0], b.shl(a, amount) if i.opcode.startswith("shl") else b.shr(a, amount), m["type"])


@op("shf.side:l|r.mode:clamp|wrap.b32", section="9.7.8.7")
def funnel(b: Any, i: Instruction, m: Modifiers) -> None:
    """32 bits of the 64 in {b, a}, shifted left (upper half) or right (lower half)."""
    arity(i, 4)
    low, high = b.operand(i, 1, "u32"), b.operand(i, 2, "u32")
    fixed = immediate(i.operands[3])
    if fixed is not None:
        fixed &= 0xFFFFFFFF
        n = fixed & 31 if m["mode"] == "wrap" else min(fixed, 32)
        amount, rest = b.const("u32", n), b.const("u32", 32 - n)
    else:
        amount = b.operand(i, 3, "u32")
        amount = b.and_(amount, b.const("u32", 31)) if m["mode"] == "wrap" else b.min(amount, b.const("u32", 32))
        rest = b.sub(b.const("u32", 32), amount)
    if m["side"] == "l":
        write(b, i.operands[0], b.or_(b.shl(high, amount), b.shr(low, rest)))
    else:
        write(b, i.operands[0], b.or_(b.shl(high, rest), b.shr(low, amount)))


# ---------------------------------------------------------------- prmt
@op("prmt.b32[.mode:f4e|b4e|rc8|ecl|ecr|rc16]", section="9.7.9.7")
def permute(b: Any, i: Instruction, m: Modifiers) -> None:
    """Four bytes of the eight in {b, a}."""
    arity(i, 4)
    a, c = b.operand(i, 1, "u32"), b.operand(i, 2, "u32")
    fixed = immediate(i.operands[3])
    if fixed is None or m["mode"]:
        value = b.pure("permute", VALUE_TYPES["b32"], a, c, b.operand(i, 3, "u32"), m["mode"])
    else:
        value = _fixed_permute(b, (a, c), fixed & 0xFFFF, [immediate(o) == 0 for o in i.operands[1:3]])
    write(b, i.operands[0], value)


def _fixed_permute(b: Any, words: tuple[Any, Any], control: int, zero: list[bool]) -> Any:
    """Bytes that move together become one shift and mask; a replicated sign is an arithmetic shift of its byte. A byte
    under three copies of its sign is how compilers extend an s8."""
    first = control & 7
    if control == 0x8880 | 0x1111 * first and not zero[first // 4]:
        top = b.bits(b.shl(words[first // 4], b.const("u32", 8 * (3 - first % 4))), "s32")
        return b.bits(b.shr(top, b.const("u32", 24)), "u32")
    moves: dict[tuple[int, int], int] = {}
    signs: dict[int, int] = {}
    for target in range(4):
        nibble = control >> 4 * target & 15
        source = nibble & 7
        if zero[source // 4]:
            continue
        if nibble & 8:
            signs[source] = signs.get(source, 0) | 0xFF << 8 * target
        else:
            key = (source // 4, target - source % 4)
            moves[key] = moves.get(key, 0) | 0xFF << 8 * target
    parts = [_moved(b, words[word], distance, mask) for (word, distance), mask in moves.items()]
    for source, mask in signs.items():
        byte_on_top = b.shl(words[source // 4], b.const("u32", 8 * (3 - source % 4)))
        spread = b.bits(b.shr(b.bits(byte_on_top, "s32"), b.const("u32", 31)), "u32")
        parts.append(spread if mask == 0xFFFFFFFF else b.and_(spread, b.const("u32", mask)))
    result = parts[0] if parts else b.const("u32", 0)
    for part in parts[1:]:
        result = b.or_(result, part)
    return result


def _moved(b: Any, word: Any, distance: int, mask: int) -> Any:
    kept = 0xFFFFFFFF << 8 * distance & 0xFFFFFFFF if distance >= 0 else 0xFFFFFFFF >> -8 * distance
    if distance > 0:
        word = b.shl(word, b.const("u32", 8 * distance))
    elif distance < 0:
        word = b.shr(word, b.const("u32", -8 * distance))
    return word if mask == kept else b.and_(word, b.const("u32", mask))
