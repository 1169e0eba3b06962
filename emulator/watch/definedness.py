"""Which registers an instruction's results depend on, byte by byte, found by running its semantics.

`DependenceBuilder` is one more builder of the lane algebra: it evaluates nothing and remembers where every byte comes
from. So the checker of uninitialised values has no table of opcodes; what `isa/` says is what it knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from emulator.builders.sources import WIDTH, Sources
from emulator.ptx.module import Reg
from emulator.ptx.types import TYPES

Cell = frozenset[int]
"""What one byte depends on: `16 * slot + byte` of registers, `-1 - (16 * k + byte)` of the k-th result of an effect."""

NOTHING: Cell = frozenset()


@dataclass(eq=False)
class Traced:
    """A value: its type, what each of its bytes depends on, the number it is if that is known, and for a choice
    (predicate, if true, if false)."""

    type: str
    cells: tuple[Cell, ...]
    number: int | None = None
    choice: tuple[Traced, Traced, Traced] | None = None

    @property
    def whole(self) -> Cell:
        """What any byte depends on."""
        return NOTHING.union(*self.cells)


@dataclass(frozen=True, eq=False)
class Write:
    """A register that is written: one cell a byte."""

    slot: int
    cells: tuple[Cell, ...]
    choice: tuple[Traced, Traced, Traced] | None = None


@dataclass(frozen=True, eq=False)
class Effect:
    """A call of the machine: the handler as `module.name`, its arguments by name (values are `Traced`), and the number
    of the first of its results."""

    handler: str
    arguments: dict[str, Any]
    first: int = 0


@dataclass(eq=False)
class Trace:
    """One instruction: registers written, calls of the machine, what decides where it goes, variables named."""

    writes: list[Write] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    decisions: list[Traced] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)


@lru_cache(1024)
def _names(handler: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a handler's parameters behind warp and mask."""
    return tuple(inspect.signature(handler).parameters)[2:]


def slots_of(cell: Cell) -> list[int]:
    """The registers among what a byte depends on."""
    return sorted({atom >> 4 for atom in cell if atom >= 0})


def traced(argument: Any) -> list[Traced]:
    """The values in an argument of a handler."""
    if isinstance(argument, Traced):
        return [argument]
    if isinstance(argument, (list, tuple)):
        return [value for item in argument for value in traced(item)]
    return []


def _size(type: str) -> int:
    return max(1, WIDTH[type] // 8)


class DependenceBuilder(Sources):
    """Traces instructions, each by itself; `traces` holds them by index. See `algebra.Builder` for what the methods
    mean."""

    watched = False
    guard = None

    def __init__(self) -> None:
        self.traces: dict[int, Trace] = {}
        self.trace = Trace()
        self._results = 0

    def begin(self, index: int, guard: Reg | None, negated: bool) -> None:
        """Start another instruction."""
        self.trace = self.traces[index] = Trace()
        self._results = 0

    # ---------------------------------------------------------------- sources and destinations
    def const(self, type: str, bits: int) -> Traced:
        return Traced(type, (NOTHING,) * _size(type), bits & ((1 << WIDTH[type]) - 1))

    def lane(self) -> Traced:
        return self._free("u32")

    def special(self, name: str) -> Traced:
        return self._free("u64" if name in ("clock64", "globaltimer") else "u32")

    def symbol(self, name: str, type: str) -> Traced:
        self.trace.symbols.append(name)
        return self._free(type)

    def mask(self) -> Traced:
        return self._free("pred")

    @staticmethod
    def _free(type: str) -> Traced:
        return Traced(type, (NOTHING,) * _size(type))

    def read(self, reg: Reg) -> Traced:
        type = "pred" if reg.type == "pred" else f"u{TYPES[reg.type].bits}"
        return Traced(type, tuple(frozenset((16 * reg.slot + k,)) for k in range(_size(type))))

    def write(self, reg: Reg, value: Traced) -> None:
        self.trace.writes.append(Write(reg.slot, value.cells, value.choice))

    def read128(self, reg: Reg) -> tuple[Traced, Traced]:
        cells = tuple(frozenset((16 * reg.slot + k,)) for k in range(16))
        return Traced("u64", cells[:8]), Traced("u64", cells[8:])

    def write128(self, reg: Reg, low: Traced, high: Traced) -> None:
        self.trace.writes.append(Write(reg.slot, low.cells + high.cells))

    def read_carry(self) -> Traced:
        # What it depends on may have been overwritten since; the sum that made it shows in its own register.
        return self._free("pred")

    def write_carry(self, carry: Traced) -> None:
        return None

    # ---------------------------------------------------------------- reinterpretation
    def bits(self, value: Traced, type: str) -> Traced:
        return Traced(type, value.cells, value.number, value.choice)

    def canonical(self, value: Traced) -> Traced:
        return value

    def resize(self, value: Traced, type: str) -> Traced:
        have, want = len(value.cells), _size(type)
        if want <= have:
            number = None if value.number is None else value.number & ((1 << WIDTH[type]) - 1)
            return Traced(type, value.cells[:want], number)
        fill = value.cells[-1] if value.type[0] == "s" else NOTHING
        return Traced(type, value.cells + (fill,) * (want - have))

    def unpack(self, value: Traced, count: int) -> list[Traced]:
        each = len(value.cells) // count
        return [Traced(f"u{8 * each}", value.cells[k * each : (k + 1) * each]) for k in range(count)]

    def pack(self, parts: Sequence[Traced]) -> Traced:
        cells = tuple(cell for part in parts for cell in part.cells)
        return Traced(f"u{8 * len(cells)}", cells)

    # ---------------------------------------------------------------- arithmetic
    def _mix(self, type: str, *values: Traced) -> Traced:
        """Every byte depends on all of the operands."""
        whole = NOTHING.union(*(value.whole for value in values))
        return Traced(type, (whole,) * _size(type))

    def _upwards(self, a: Traced, b: Traced) -> Traced:
        """Carries run upwards: a byte depends on the operands' bytes up to its own."""
        below, cells = NOTHING, []
        for x, y in zip(a.cells, b.cells, strict=True):
            below = below | x | y
            cells.append(below)
        return Traced(a.type, tuple(cells))

    add = sub = mul = _upwards

    def _both(self, a: Traced, b: Traced) -> Traced:
        return self._mix(a.type, a, b)

    mulhi = div = rem = min = max = _both

    def _masked(self, a: Traced, b: Traced, decided: int) -> Traced:
        """Bitwise: a byte where one operand is the number `decided` does not depend on the other."""
        cells = []
        for k, (x, y) in enumerate(zip(a.cells, b.cells, strict=True)):
            known = any(v.number is not None and v.number >> 8 * k & 0xFF == decided for v in (a, b))
            cells.append(NOTHING if known else x | y)
        return Traced(a.type, tuple(cells))

    def and_(self, a: Traced, b: Traced) -> Traced:
        return self._masked(a, b, 0)

    def or_(self, a: Traced, b: Traced) -> Traced:
        return self._masked(a, b, 0xFF)

    def xor(self, a: Traced, b: Traced) -> Traced:
        return self._masked(a, b, -1)

    def not_(self, a: Traced) -> Traced:
        return Traced(a.type, a.cells)

    def _shifted(self, a: Traced, amount: Traced, up: bool) -> Traced:
        if amount.number is None:
            return self._mix(a.type, a, amount)
        size, signed = len(a.cells), a.type[0] == "s"
        whole, part = divmod(amount.number, 8)
        beyond = a.cells[-1] if signed and not up else NOTHING
        cells = []
        for k in range(size):
            near, next_ = (k - whole, k - whole - 1) if up else (k + whole, k + whole + 1)
            picked = [near, next_] if part else [near]
            cells.append(NOTHING.union(*(a.cells[j] if 0 <= j < size else beyond for j in picked)))
        return Traced(a.type, tuple(cells))

    def shl(self, a: Traced, amount: Traced) -> Traced:
        return self._shifted(a, amount, True)

    def shr(self, a: Traced, amount: Traced) -> Traced:
        return self._shifted(a, amount, False)

    def _count(self, a: Traced) -> Traced:
        return self._mix("u32", a)

    popc = clz = _count

    def _alone(self, a: Traced) -> Traced:
        return self._mix(a.type, a)

    brev = fneg = fabs = ftz = _alone

    def _rounded(self, *values: Any, rnd: str = "rn") -> Traced:
        return self._mix(values[0].type, *(v for v in values if isinstance(v, Traced)))

    fadd = fsub = fmul = ffma = _rounded

    def _extreme(self, a: Traced, b: Traced, nan: bool = False) -> Traced:
        return self._mix(a.type, a, b)

    fmin = fmax = _extreme

    # ---------------------------------------------------------------- comparison and choice
    def cmp(self, relation: str, a: Traced, b: Traced) -> Traced:
        return self._mix("pred", a, b)

    def isnan(self, a: Traced) -> Traced:
        return self._mix("pred", a)

    def select(self, p: Traced, a: Traced, b: Traced) -> Traced:
        cells = tuple(x | y | p.whole for x, y in zip(a.cells, b.cells, strict=True))
        return Traced(a.type, cells, choice=(p, a, b))

    # ---------------------------------------------------------------- everything else
    def pure(self, name: str, types: str | Sequence[str], *arguments: Any) -> Any:
        values = traced(arguments)
        if isinstance(types, str):
            return self._mix(types, *values)
        return [self._mix(type, *values) for type in types]

    def effect(self, handler: Callable[..., Any], *arguments: Any, out: str | Sequence[str] = ()) -> Any:
        name = f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"
        named = dict(zip(_names(handler), arguments, strict=False))
        self.trace.effects.append(Effect(name, named, self._results))
        if not out:
            return None
        types = [out] if isinstance(out, str) else list(out)
        results = []
        for type in types:
            first = 16 * self._results
            results.append(Traced(type, tuple(frozenset((-1 - (first + k),)) for k in range(_size(type)))))
            self._results += 1
        return results[0] if isinstance(out, str) else results

    blocking = effect

    def branch(self, target: int) -> None:
        return None

    def jump(self, index: Traced, targets: tuple[int, ...]) -> None:
        self.trace.decisions.append(index)

    def exit(self) -> None:
        return None
