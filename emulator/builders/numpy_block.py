"""A basic block being printed: values, registers and how they are represented.

One builder prints one basic block. Inside a block registers are SSA values; only registers that another block can
see are written back to the register file at the end. Two representations keep this cheap without changing a bit:

- a 64-bit (or packed 32-bit) value may stay in *parts* until somebody needs it whole, because `mov.b64 {a, b}`
around the
  f32x2 instructions is 40 % of what CuTe DSL emits for a softmax;
- a float result may hold a non-canonical NaN until its bits can be observed (stored, packed, read as an integer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emulator.builders import lanes
from emulator.builders.algebra import Unsupported
from emulator.builders.sources import Sources
from emulator.ptx.module import Reg
from emulator.ptx.types import TYPES

NUMPY_NAMES = {
    "u8": "U8", "u16": "U16", "u32": "U32", "u64": "U64", "s8": "S8", "s16": "S16", "s32": "S32", "s64": "S64",
    "f16": "F16", "f32": "F32", "f64": "F64", "pred": "BOOL",
}  # fmt: skip
DTYPES = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "s8": np.int8, "s16": np.int16,
    "s32": np.int32, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64, "pred": np.bool_,
}  # fmt: skip
WIDTH = {name: 1 if name == "pred" else np.dtype(dtype).itemsize * 8 for name, dtype in DTYPES.items()}
BLOCKED = -2


class V:
    """A value: the name of a Python local, its type, and how it is represented (see the module docstring)."""

    __slots__ = ("name", "type", "parts", "loose_nan", "strided", "split", "views")

    def __init__(self, name: str | None, type: str, parts: list[V] | None = None) -> None:
        self.name = name
        self.type = type
        self.parts = parts
        self.loose_nan = False
        self.strided = False
        self.split: dict[int, list[V]] = {}
        self.views: dict[str, V] = {}


def base_namespace() -> dict[str, Any]:
    """What the printed code can name: dtypes, NumPy functions, the lane helpers."""
    space: dict[str, Any] = {NUMPY_NAMES[t]: dtype for t, dtype in DTYPES.items()}
    space |= {"np": np, "where": np.where, "empty": np.empty, "FULL": lanes.FULL, "LANE": lanes.LANE}
    space |= {f"L_{name}": function for name, function in vars(lanes).items() if callable(function)}
    return space


class NumpyBlock(Sources):
    """Prints one basic block. `masked` blocks run for part of the warp; `local` are the slots that no other block
    sees. `watched` blocks publish every instruction; `exposed` ones write registers back before each."""

    def __init__(
        self,
        namespace: dict[str, Any],
        layout: Any,
        masked: bool,
        local: frozenset[int],
        watched: bool,
        exposed: bool = False,
    ) -> None:
        self.namespace = namespace
        self.layout = layout
        self.masked = masked
        self.local = local
        self.watched = watched
        self.exposed = exposed
        self.lines: list[str] = []
        self.environment: dict[int, V] = {}
        self.dirty: dict[int, None] = {}
        self.loaded: set[int] = set()
        self.tail: list[str] = []
        self.count = 0
        self.guard: str | None = None
        self.carry: V | None = None
        self.index = 0

    # ---------------------------------------------------------------- the frame of a block
    def begin(self, index: int, guard: Reg | None, negated: bool) -> None:
        """Start the instruction `index`; its guard becomes the execution mask."""
        self.index, self.guard = index, None
        if guard is not None:
            p = self.read(guard)
            p = self.not_(p) if negated else p
            self.guard = self._emit(f"{p.name} & m") if self.masked else p.name
        if self.exposed:
            for slot in self.dirty:
                self._write_back(slot, self.environment[slot])
            self.dirty.clear()
        if self.watched:
            self.lines.append(f"w.issue({index}, {self._mask()}, m)")

    def text(self, name: str, following: int) -> str:
        """The source of the block; `following` is the block to go to when nothing else was decided."""
        for slot in list(self.dirty):
            if slot not in self.local:
                self._write_back(slot, self.environment[slot])
        body = self.lines + (self.tail or [f"return {following}"])
        return f"def {name}(w, R, m):\n  " + "\n  ".join(body)

    def _write_back(self, slot: int, value: V | tuple[V, V]) -> None:
        if isinstance(value, tuple):
            self.lines.append(f"R[{slot}] = np.stack(({self._name(value[0])}, {self._name(value[1])}))")
            return
        raw = value if value.type == "pred" else self.bits(value, f"u{WIDTH[value.type]}")
        self.lines.append(f"R[{slot}] = {self._name(raw)}" + (".copy()" if raw.strided else ""))

    def _emit(self, expression: str) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.lines.append(f"{name} = {expression}")
        return name

    def _value(self, expression: str, type: str, loose_nan: bool = False) -> V:
        value = V(self._emit(expression), type)
        value.loose_nan = loose_nan
        return value

    def _mask(self) -> str:
        return self.guard or "m"

    def _constant(self, array: Any) -> str:
        key = f"K_{array.dtype.str[1:]}_{array.tobytes()[: array.itemsize].hex()}"
        self.namespace.setdefault(key, array)
        return key

    def _reference(self, thing: Any) -> str:
        key = f"H_{getattr(thing, '__name__', 'object')}_{id(thing):x}"
        self.namespace.setdefault(key, thing)
        return key

    def _name(self, value: V) -> str:
        """The local that holds the whole value; joins its parts if needed."""
        if value.name is None:
            parts = value.parts or []
            width = WIDTH[value.type] // len(parts)
            raws = [self._name(self.bits(p, f"u{width}")) for p in parts]
            joined = self._emit(f"empty(32, {NUMPY_NAMES[value.type]})")
            view = self._emit(f"{joined}.view(U{width})")
            for k, raw in enumerate(raws):
                self.lines.append(f"{view}[{k}::{len(raws)}] = {raw}")
            value.name = joined
        return value.name

    # ---------------------------------------------------------------- sources and destinations
    def const(self, type: str, bits: int) -> V:
        """A uniform value given by its bit pattern (any integer; wrapped to the width)."""
        raw = np.full(32, bits & ((1 << WIDTH[type]) - 1), f"u{max(1, WIDTH[type] // 8)}")
        array = raw.astype(np.bool_) if type == "pred" else raw.view(DTYPES[type])
        return V(self._constant(array), type)

    def lane(self) -> V:
        """The lane index, u32."""
        return V("LANE", "u32")

    def special(self, name: str) -> V:
        """A special register; u64 for clock64 and globaltimer, u32 otherwise."""
        type = "u64" if name in ("clock64", "globaltimer") else "u32"
        return self._value(f"w.special({name!r})", type)

    def symbol(self, name: str, type: str) -> V:
        """The address of a variable, as u32 (shared window) or u64 (generic)."""
        kind = self.layout.space_of(name)
        if kind is None:
            raise Unsupported(f"unknown symbol `{name}`")
        return self._value(f"w.symbol({name!r}, {NUMPY_NAMES[type]})", type)

    def read(self, reg: Reg) -> V:
        """The register's current value, of whatever type it was last written as."""
        if reg.type == "b128":
            raise Unsupported(f"register {reg.name} of type b128 where one of at most 64 bits is needed")
        if reg.slot not in self.environment:
            self.loaded.add(reg.slot)
            type = "pred" if reg.type == "pred" else f"u{TYPES[reg.type].bits}"
            self.environment[reg.slot] = self._value(f"R[{reg.slot}]", type)
        return self.environment[reg.slot]

    def write(self, reg: Reg, value: V) -> None:
        """Write under the execution mask. The value must have the register's width."""
        want = 1 if reg.type == "pred" else TYPES[reg.type].bits
        if WIDTH[value.type] != want:
            raise Unsupported(f"a {value.type} value cannot be written to register {reg.name} of type {reg.type}")
        if self.guard or (self.masked and reg.slot not in self.local):
            old = self.bits(self.read(reg), value.type) if value.type != "pred" else self.read(reg)
            value = self.select(V(self._mask(), "pred"), value, old)
        self.environment[reg.slot] = value
        self.dirty[reg.slot] = None

    def read128(self, reg: Reg) -> tuple[V, V]:
        """A 128-bit register as (low, high) u64 values."""
        if reg.type != "b128":
            raise Unsupported(f"register {reg.name} of type {reg.type} where one of 128 bits is needed")
        if reg.slot not in self.environment:
            self.loaded.add(reg.slot)
            both = self._emit(f"R[{reg.slot}]")
            self.environment[reg.slot] = (self._value(f"{both}[0]", "u64"), self._value(f"{both}[1]", "u64"))  # type: ignore[assignment]
        return self.environment[reg.slot]  # type: ignore[return-value]

    def write128(self, reg: Reg, low: V, high: V) -> None:
        """Write a 128-bit register under the execution mask."""
        if reg.type != "b128":
            raise Unsupported(f"register {reg.name} of type {reg.type} cannot hold 128 bits")
        if self.guard or (self.masked and reg.slot not in self.local):
            old = self.read128(reg)
            mask = V(self._mask(), "pred")
            low, high = self.select(mask, low, old[0]), self.select(mask, high, old[1])
        self.environment[reg.slot] = (low, high)  # type: ignore[assignment]
        self.dirty[reg.slot] = None

    def read_carry(self) -> V:
        """The condition code as a predicate. It does not live from one basic block to another (PTX ISA 9.7.2)."""
        if self.carry is None:
            raise Unsupported("the condition code is read in a basic block that has not written it")
        return self.carry

    def write_carry(self, carry: V) -> None:
        """Write the condition code under the execution mask."""
        if self.guard and self.carry is not None:
            carry = self.select(V(self._mask(), "pred"), carry, self.carry)
        self.carry = carry

    def mask(self) -> V:
        """The lanes that execute, as a predicate."""
        return V(self._mask(), "pred")

    # ---------------------------------------------------------------- reinterpretation
    def bits(self, value: V, type: str) -> V:
        """The same bits as another type of the same width."""
        if value.type == type:
            return value
        if WIDTH[value.type] != WIDTH[type] or "pred" in (value.type, type):
            raise Unsupported(f"{value.type} cannot be reinterpreted as {type}")
        if value.name is None and value.parts is not None:
            return V(None, type, value.parts)
        value = self.canonical(value)
        name = self._name(value)
        if name.startswith("K_"):
            return V(self._constant(self.namespace[name].view(DTYPES[type])), type)
        if type not in value.views:
            result = self._value(f"{name}.view({NUMPY_NAMES[type]})", type)
            result.strided, result.split = value.strided, value.split
            value.views[type] = result
        return value.views[type]

    def canonical(self, value: V) -> V:
        """The value with NaN made canonical if an arithmetic result may hold another one."""
        if value.loose_nan:
            name = self._name(value)
            self.lines.append(f"if L_has_nan({name}): {name} = L_canonical_{value.type}({name})")
            value.loose_nan = False
        return value

    def resize(self, value: V, type: str) -> V:
        """An integer truncated, or extended by the signedness of its own type."""
        if value.type == type:
            return value
        if WIDTH[value.type] == WIDTH[type]:
            return self.bits(value, type)
        if value.name is None and value.parts is not None and WIDTH[value.parts[0].type] == WIDTH[type]:
            return self.bits(value.parts[0], type)
        return self._value(f"{self._name(value)}.astype({NUMPY_NAMES[type]})", type)

    def unpack(self, value: V, count: int) -> list[V]:
        """The value cut into `count` equal parts, lowest first."""
        if value.parts is not None and len(value.parts) == count:
            return value.parts
        if value.parts is not None and count % len(value.parts) == 0:
            return [
                x
                for p in value.parts
                for x in self.unpack(self.bits(p, f"u{WIDTH[p.type]}"), count // len(value.parts))
            ]
        if count not in value.split:
            whole = self.canonical(value)
            width = WIDTH[whole.type] // count
            name = self._name(whole) + (".copy()" if whole.strided else "")
            view = self._emit(f"{name}.view(U{width})")
            value.split[count] = [self._value(f"{view}[{k}::{count}]", f"u{width}") for k in range(count)]
            for part in value.split[count]:
                part.strided = True
        return value.split[count]

    def pack(self, parts: Sequence[V]) -> V:
        """Parts joined, lowest first, into one unsigned value."""
        return V(None, f"u{WIDTH[parts[0].type] * len(parts)}", list(parts))

    def select(self, p: V, a: V, b: V) -> V:
        """a where p, else b."""
        if a.parts is not None and a.name is None and WIDTH[a.type] == WIDTH[b.type]:
            others = self.unpack(b, len(a.parts))
            chosen = [self.select(p, x, self.bits(y, x.type)) for x, y in zip(a.parts, others, strict=True)]
            return V(None, a.type, chosen)
        if a.type != b.type:
            raise Unsupported(f"a choice between a {a.type} and a {b.type} value")
        if a.loose_nan != b.loose_nan:
            a, b = self.canonical(a), self.canonical(b)
        return self._value(f"L_select({self._name(p)}, {self._name(a)}, {self._name(b)})", a.type, a.loose_nan)
