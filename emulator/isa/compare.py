"""Comparison and selection (PTX ISA 9.7.6, 9.7.7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.events import Choice
from emulator.isa.operands import VALUE_TYPES, alike, arity, both, read, write
from emulator.isa.table import Modifiers, op
from emulator.isa.warplike import WarpLike
from emulator.ptx.module import Instruction

_EQUAL = "rel:eq|ne"
_SIGNED = "rel:eq|ne|lt|le|gt|ge"
_UNSIGNED = "rel:eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
_FLOAT = "rel:eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
_BOOL = "[.bool:and|or|xor]"
_SOURCES = (
    f".{_EQUAL}{_BOOL}{{0}}.type:b16|b32|b64",
    f".{_SIGNED}{_BOOL}{{0}}.type:s16|s32|s64",
    f".{_UNSIGNED}{_BOOL}{{0}}.type:u16|u32|u64",
    f".{_FLOAT}{_BOOL}[.ftz]{{0}}.type:f32|f16",
    f".{_FLOAT}{_BOOL}{{0}}.type:f64|bf16",
)
_PAIRS = (f".{_FLOAT}{_BOOL}[.ftz]{{0}}.type:f16x2", f".{_FLOAT}{_BOOL}{{0}}.type:bf16x2")
_FLOATS = ("f16", "bf16", "f32", "f64")


# ---------------------------------------------------------------- relations
def _operands(b: Any, i: Instruction, m: Modifiers) -> list[tuple[Any, Any]]:
    """The pairs of values to compare: two for packed types, else one."""
    type, ftz = m["type"], bool(m.get("ftz"))
    if type.endswith("x2"):
        kind = type[:-2]
        halves = [b.unpack(read(b, i, k, type), 2) for k in (1, 2)]
        wide = [[b.pure("widen_half", "f32", h, kind, ftz) for h in operand] for operand in halves]
        return list(zip(wide[0], wide[1], strict=True))
    values = [read(b, i, k, type) for k in (1, 2)]
    if type in ("f16", "bf16"):
        values = [b.pure("widen_half", "f32", v, type, ftz) for v in values]
    elif ftz:
        values = [b.ftz(v) for v in values]
    return [(values[0], values[1])]


def _float_relation(b: Any, relation: str, x: Any, y: Any) -> Any:
    """IEEE quiet comparisons; a name ending in u is also true when an operand is NaN."""
    if relation in ("num", "nan"):
        unordered = b.isnan(x) if x is y else b.or_(b.isnan(x), b.isnan(y))
        return unordered if relation == "nan" else b.not_(unordered)
    if relation == "neu":
        return b.cmp("ne", x, y)
    if relation in ("ne", "equ"):
        ordered_ne = b.or_(b.cmp("lt", x, y), b.cmp("gt", x, y))
        return ordered_ne if relation == "ne" else b.not_(ordered_ne)
    if relation.endswith("u"):
        return b.not_(b.cmp({"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}[relation], x, y))
    return b.cmp(relation, x, y)


def _relation(b: Any, m: Modifiers, x: Any, y: Any) -> Any:
    if m["type"].removesuffix("x2") in _FLOATS:
        return _float_relation(b, m["rel"], x, y)
    return b.cmp({"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(m["rel"], m["rel"]), x, y)


def _combine(b: Any, i: Instruction, m: Modifiers, p: Any) -> Any:
    """The relation joined with the third source predicate."""
    if m["bool"] is None:
        return p
    return {"and": b.and_, "or": b.or_, "xor": b.xor}[m["bool"]](p, b.operand(i, 3, "pred"))


# ---------------------------------------------------------------- setp and set
@op(*("setp" + form.format("") for form in _SOURCES), section="9.7.6.2")
def compare(b: Any, i: Instruction, m: Modifiers) -> None:
    """A relation into p; with `p|q`, its complement (joined with the same predicate) into q."""
    arity(i, 4 if m["bool"] else 3)
    p, q = both(i.operands[0])
    ((x, y),) = _operands(b, i, m)
    truth = _relation(b, m, x, y)
    first, second = _combine(b, i, m, truth), _combine(b, i, m, b.not_(truth)) if p is not i.operands[0] else None
    write(b, p, first)
    if second is not None:
        write(b, q, second)


@op(*("setp" + form.format("") for form in _PAIRS), section="9.7.7.2")
def compare_pair(b: Any, i: Instruction, m: Modifiers) -> None:
    """The relation of the low halves into p and of the high halves into q."""
    arity(i, 4 if m["bool"] else 3)
    truths = [_combine(b, i, m, _relation(b, m, x, y)) for x, y in _operands(b, i, m)]
    for target, truth in zip(both(i.operands[0]), truths, strict=True):
        write(b, target, truth)


_TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _number(b: Any, type: str, truth: Any) -> Any:
    """A predicate as 1.0 or 0.0 of a float type, or as all ones or zero."""
    raw = VALUE_TYPES[type] if type != "f32" else "u32"
    return b.select(truth, b.const(raw, _TRUE.get(type, -1)), b.const(raw, 0))


@op(*("set" + form.format(".dtype:u32|s32|f32|f16|bf16") for form in _SOURCES), section="9.7.6.1")
@op(*("set" + form.format(".dtype:u16|s16") for form in _SOURCES[3:]), section="9.7.7.1")
def compare_number(b: Any, i: Instruction, m: Modifiers) -> None:
    """A relation as a number."""
    if m["dtype"] in ("u16", "s16") and m["type"] not in ("f16", "bf16"):
        raise Unsupported(f"set to {m['dtype']} needs a half source, not {m['type']}")
    if m["dtype"] == "bf16" and m.get("ftz"):
        raise Unsupported("set to bf16 has no .ftz")
    arity(i, 4 if m["bool"] else 3)
    ((x, y),) = _operands(b, i, m)
    write(b, i.operands[0], _number(b, m["dtype"], _combine(b, i, m, _relation(b, m, x, y))))


@op(
    "set" + _PAIRS[0].format(".dtype:f16x2|u32|s32"),
    "set" + _PAIRS[1].format(".dtype:bf16x2|u32|s32"),
    section="9.7.7.1",
)
def compare_number_pair(b: Any, i: Instruction, m: Modifiers) -> None:
    """Both relations as numbers in the halves of one word (integers: 0xFFFF or 0)."""
    arity(i, 4 if m["bool"] else 3)
    half = m["dtype"][:-2] if m["dtype"].endswith("x2") else "u16"
    parts = [_number(b, half, _combine(b, i, m, _relation(b, m, x, y))) for x, y in _operands(b, i, m)]
    write(b, i.operands[0], b.pack(parts))


# ---------------------------------------------------------------- selection
_ANY = "type:b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64"


@op(f"selp.{_ANY}", section="9.7.6.3")
def choose(b: Any, i: Instruction, m: Modifiers) -> None:
    """a where the predicate is true, else b; bits only."""
    arity(i, 4)
    a, other = alike(b, i.operands[1], i.operands[2], _raw(m["type"]))
    p = b.operand(i, 3, "pred")
    if b.watched:
        b.effect(_chosen, p)
    write(b, i.operands[0], b.select(p, a, other))


def _chosen(warp: WarpLike, mask: np.ndarray, p: np.ndarray) -> None:
    warp.bus.publish(Choice(warp.id, p))


@op(f"slct.{_ANY}.by:s32", f"slct[.ftz].{_ANY}.by:f32", section="9.7.6.4")
def choose_by_sign(b: Any, i: Instruction, m: Modifiers) -> None:
    """a where c >= 0 (negative zero included, NaN excluded), else b; bits only."""
    arity(i, 4)
    a, other = alike(b, i.operands[1], i.operands[2], _raw(m["type"]))
    c = b.operand(i, 3, m["by"])
    c = b.ftz(c) if m.get("ftz") else c
    write(b, i.operands[0], b.select(b.cmp("ge", c, b.const(m["by"], 0)), a, other))


def _raw(type: str) -> str:
    return "u" + type[1:]
