"""A basic block being printed as LLVM IR over vectors of 32 lanes: values, registers and how they are represented.

All blocks of a kernel become one function, which walks from block to block until something needs Python. Inside a block
registers are SSA values; registers that another block can see live in one buffer per warp, and their executing lanes
are written at the end of the block. As in the NumPy builder a value may stay in parts until somebody needs it
whole, and a float result may hold a NaN that is not canonical until its bits can be observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emulator.builders.algebra import Unsupported
from emulator.builders.llvm_values import (
    CANONICAL_NAN,
    IR,
    LANES,
    STATE,
    VECTOR,
    Frame,
    Kept,
    W,
    literal,
)
from emulator.builders.sources import WIDTH, Sources
from emulator.ptx.module import Reg
from emulator.ptx.types import TYPES

Values = W | tuple[W, W]


class LlvmBlock(Sources):
    """Prints one basic block into the frame; `local` are the slots that no other block mentions."""

    shr: Any
    select: Any

    def __init__(self, frame: Frame, layout: Any, block: int, local: frozenset[int], length: int) -> None:
        self.frame = frame
        self.layout = layout
        self.block = block
        self.local = local
        self.length = length
        self.watched = False
        self.environment: dict[int, Any] = {}
        self.dirty: dict[int, None] = {}
        self.loaded: set[int] = set()
        self.memo: dict[str, W] = {}
        self.guard: W | None = None
        self.carry: W | None = None
        self.index = 0
        self.ended = False

    # ---------------------------------------------------------------- text
    def emit(self, text: str) -> None:
        """One line of the function."""
        self.frame.lines.append(text)

    def raw(self, expression: str) -> str:
        """A named result of a type that is no value of the algebra."""
        frame = self.frame
        name = f"%{frame.count}"
        frame.count += 1
        frame.lines.append(f"{name} = {expression}")
        return name

    def value(self, expression: str, type: str, loose_nan: bool = False) -> W:
        """A named result."""
        result = W(self.raw(expression), type)
        result.loose_nan = loose_nan
        return result

    def open(self, label: str) -> None:
        """Begin a piece of straight code."""
        self.frame.lines.append(f"{label}:")

    def name(self, value: W) -> str:
        """The IR name of a value; joins its parts if needed."""
        if value.name is None:
            self._join(value)
        return value.name  # type: ignore[return-value]

    def text(self, value: W) -> str:
        """Type and name, as operands are written."""
        return f"{VECTOR[value.type]} {self.name(value)}"

    def _join(self, value: W) -> None:
        parts = value.parts or []
        width = WIDTH[value.type] // len(parts)
        raws = [self.bits(p, f"u{width}") for p in parts]
        while len(raws) > 1:
            raws = [self._interleaved(low, high) for low, high in zip(raws[0::2], raws[1::2], strict=True)]
        value.name = self.name(self.bits(raws[0], value.type))

    def _interleaved(self, low: W, high: W) -> W:
        if low.constant is not None and high.constant is not None:
            return self.const(f"u{2 * WIDTH[low.type]}", high.constant << WIDTH[low.type] | low.constant)
        width = WIDTH[low.type]
        both = self.call(f"llvm.vector.interleave2.v{2 * LANES}i{width}", f"<{2 * LANES} x i{width}>", low, high)
        return self.value(f"bitcast <{2 * LANES} x i{width}> {both} to <{LANES} x i{2 * width}>", f"u{2 * width}")

    def call(self, function: str, result: str, *operands: W | tuple[str, str]) -> str:
        """A call of an intrinsic or of a function of the runtime; operands are values or (type, name)."""
        typed = [(VECTOR[o.type], self.name(o)) if isinstance(o, W) else o for o in operands]
        if not function.startswith("llvm."):
            kinds = ", ".join(kind for kind, _ in typed)
            self.frame.declared[f"declare {result} @{function}({kinds})"] = None
        return self.raw(f"call {result} @{function}({', '.join(f'{kind} {name}' for kind, name in typed)})")

    # ---------------------------------------------------------------- memory of the frame
    def address(self, base: str, offset: int) -> str:
        """A pointer `offset` bytes behind another."""
        return self.raw(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, type: str, base: str, offset: int) -> W:
        """32 lanes from memory; predicates are bytes there."""
        at = self.address(base, offset)
        if type == "pred":
            octets = self.raw(f"load <{LANES} x i8>, ptr {at}, align 32")
            return self.value(f"trunc <{LANES} x i8> {octets} to <{LANES} x i1>", "pred")
        return self.value(f"load {VECTOR[type]}, ptr {at}, align 64", type)

    def store(self, value: W, base: str, offset: int) -> None:
        """32 lanes to memory."""
        text = self.text(value)
        at = self.address(base, offset)
        if value.type == "pred":
            octets = self.raw(f"zext {text} to <{LANES} x i8>")
            self.emit(f"store <{LANES} x i8> {octets}, ptr {at}, align 32")
        else:
            self.emit(f"store {text}, ptr {at}, align 64")

    def keep(self, value: W) -> Kept:
        """Store a value to the scratch area, so that Python or the runtime can read it."""
        place = self.frame.reserve(value.type)
        self.store(value, "%scratch", place.offset)
        return place

    def word(self, name: str) -> str:
        """A word of the warp's state."""
        return self.raw(f"load i64, ptr {self.address('%state', STATE[name])}")

    def note(self, name: str, value: str) -> None:
        """Set a word of the warp's state."""
        self.emit(f"store i64 {value}, ptr {self.address('%state', STATE[name])}")

    # ---------------------------------------------------------------- the frame of a block
    def begin(self, index: int, guard: Reg | None, negated: bool) -> None:
        """Start the instruction `index`; its guard becomes part of the execution mask."""
        self.index, self.guard = index, None
        if guard is not None:
            p = self.read(guard)
            p = self.not_(p) if negated else p
            self.guard = self.value(f"and <{LANES} x i1> {self.name(p)}, %lanes", "pred")

    def mask(self) -> W:
        """The lanes that execute, as a predicate."""
        return self.guard if self.guard is not None else W("%lanes", "pred")

    def mask_word(self) -> str:
        """The lanes that execute, as an i32."""
        if self.guard is None:
            return "%lanes.word"
        return self.raw(f"bitcast <{LANES} x i1> {self.name(self.guard)} to i32")

    def flush(self) -> None:
        """Write back what other blocks may read, and count the block."""
        for slot in self.dirty:
            if slot not in self.local or slot in self.loaded:
                self._write_back(slot, self.environment[slot])
        counter = self.address("%counts", 8 * self.block)
        for at, step in ((counter, 1), ("%instructions", self.length)):
            total = self.raw(f"add i64 {self.raw(f'load i64, ptr {at}')}, {step}")
            self.emit(f"store i64 {total}, ptr {at}")
        self.ended = True

    def _write_back(self, slot: int, value: Values) -> None:
        at = self.frame.register_at[slot]
        if isinstance(value, tuple):
            for half, part in enumerate(value):
                self._merge(self.bits(part, "u64"), at + 8 * LANES * half)
        elif value.type == "pred":
            word = self.raw(f"bitcast <{LANES} x i1> {self.name(value)} to i32")
            place = self.address("%registers", at)
            chosen = self.raw(f"and i32 {word}, %lanes.word")
            old = self.raw(f"and i32 {self.raw(f'load i32, ptr {place}, align 4')}, %lanes.others")
            self.emit(f"store i32 {self.raw(f'or i32 {chosen}, {old}')}, ptr {place}, align 4")
        elif slot in self.frame.paired:
            for half, part in enumerate(self.unpack(value, 2)):
                self._merge(self.bits(part, "u32"), at + 4 * LANES * half)
        else:
            self._merge(self.bits(value, f"u{WIDTH[value.type]}"), at)

    def _merge(self, value: W, at: int) -> None:
        """Store the executing lanes of a value to the register file."""
        text, width = self.text(value), WIDTH[value.type]
        place = self.address("%registers", at)
        if width < 32:  # not every processor can mask these
            kind = VECTOR[value.type]
            old = self.raw(f"load {kind}, ptr {place}, align 64")
            new = self.raw(f"select <{LANES} x i1> %lanes, {text}, {kind} {old}")
            self.emit(f"store {kind} {new}, ptr {place}, align 64")
        else:
            masked = f"@llvm.masked.store.v{LANES}i{width}.p0({text}, ptr {place}, i32 64, <{LANES} x i1> %lanes)"
            self.emit(f"call void {masked}")

    def finish(self) -> None:
        """Close a block that nothing has ended."""
        if not self.ended:
            self.guard = None
            self.flush()
            self.go(self.layout.following)

    def go(self, target: int) -> None:
        """Continue in another block, unless the budget is used up or the block belongs to Python."""
        self.frame.exits[target] = None
        if target >= self.layout.exit_block:
            self.emit(f"br label %exit{target}")
            return
        left = self.raw(f"sub i64 {self.raw('load i64, ptr %budget')}, 1")
        self.emit(f"store i64 {left}, ptr %budget")
        spent = self.raw(f"icmp sle i64 {left}, 0")
        beyond = self.raw(f"icmp ule i64 {self.raw('load i64, ptr %limit')}, {target}")
        self.emit(f"br i1 {self.raw(f'or i1 {spent}, {beyond}')}, label %exit{target}, label %b{target}")

    # ---------------------------------------------------------------- sources and destinations
    def const(self, type: str, bits: int) -> W:
        """A uniform value given by its bit pattern."""
        bits &= (1 << WIDTH[type]) - 1
        result = W(literal(type, bits), type)
        result.constant = bits
        return result

    def read(self, reg: Reg) -> Any:
        """The register's current value, of whatever type it was last written as."""
        if reg.type == "b128":
            raise Unsupported(f"register {reg.name} of type b128 where one of at most 64 bits is needed")
        found = self.environment.get(reg.slot)
        if found is None:
            self.loaded.add(reg.slot)
            at = self.frame.register_at[reg.slot]
            if reg.type == "pred":
                word = self.raw(f"load i32, ptr {self.address('%registers', at)}, align 4")
                found = self.value(f"bitcast i32 {word} to <{LANES} x i1>", "pred")
            elif reg.slot in self.frame.paired:
                halves = [self.load("u32", "%registers", at + 4 * LANES * half) for half in (0, 1)]
                found = W(None, "u64", halves)
            else:
                found = self.load(f"u{TYPES[reg.type].bits}", "%registers", at)
            self.environment[reg.slot] = found
        return found

    def write(self, reg: Reg, value: W) -> None:
        """Write under the execution mask. The value must have the register's width. Lanes that do not execute at all
        may hold anything until the end of the block, where they are not written."""
        want = 1 if reg.type == "pred" else TYPES[reg.type].bits
        if WIDTH[value.type] != want:
            raise Unsupported(f"a {value.type} value cannot be written to register {reg.name} of type {reg.type}")
        if self.guard is not None:
            old = self.read(reg)
            old = old if value.type == "pred" else self.bits(old, value.type)
            value = self.select(self.mask(), value, old)
        self.environment[reg.slot] = value
        self.dirty[reg.slot] = None

    def read128(self, reg: Reg) -> tuple[W, W]:
        """A 128-bit register as (low, high) u64 values."""
        if reg.type != "b128":
            raise Unsupported(f"register {reg.name} of type {reg.type} where one of 128 bits is needed")
        if reg.slot not in self.environment:
            self.loaded.add(reg.slot)
            at = self.frame.register_at[reg.slot]
            halves = [self.load("u64", "%registers", at + 8 * LANES * half) for half in (0, 1)]
            self.environment[reg.slot] = (halves[0], halves[1])
        low, high = self.environment[reg.slot]
        return low, high

    def write128(self, reg: Reg, low: W, high: W) -> None:
        """Write a 128-bit register under the execution mask."""
        if reg.type != "b128":
            raise Unsupported(f"register {reg.name} of type {reg.type} cannot hold 128 bits")
        if self.guard is not None:
            old = self.read128(reg)
            low, high = self.select(self.mask(), low, old[0]), self.select(self.mask(), high, old[1])
        self.environment[reg.slot] = (low, high)
        self.dirty[reg.slot] = None

    def read_carry(self) -> W:
        """The condition code as a predicate. It does not live from one basic block to another (PTX ISA 9.7.2)."""
        if self.carry is None:
            raise Unsupported("the condition code is read in a basic block that has not written it")
        return self.carry

    def write_carry(self, carry: W) -> None:
        """Write the condition code under the execution mask."""
        if self.guard is not None and self.carry is not None:
            carry = self.select(self.mask(), carry, self.carry)
        self.carry = carry

    # ---------------------------------------------------------------- reinterpretation
    def bits(self, value: W, type: str) -> W:
        """The same bits as another type of the same width."""
        if value.type == type:
            return value
        if WIDTH[value.type] != WIDTH[type] or "pred" in (value.type, type):
            raise Unsupported(f"{value.type} cannot be reinterpreted as {type}")
        if value.constant is not None:
            return self.const(type, value.constant)
        if value.name is None and value.parts is not None:
            return W(None, type, value.parts)
        value = self.canonical(value)
        if type not in value.views:
            name = self.name(value)
            if IR[value.type] == IR[type]:
                result = W(name, type)
            else:
                result = self.value(f"bitcast {VECTOR[value.type]} {name} to {VECTOR[type]}", type)
            result.parts, result.split = value.parts, value.split
            value.views[type] = result
        return value.views[type]

    def canonical(self, value: W) -> W:
        """The value with NaN made canonical if an arithmetic result may hold another one."""
        if value.loose_nan:
            text, name = self.text(value), self.name(value)
            nan = self.raw(f"fcmp uno {text}, {name}")
            fixed = literal(value.type, CANONICAL_NAN[value.type])
            value.name = self.raw(f"select <{LANES} x i1> {nan}, {VECTOR[value.type]} {fixed}, {text}")
            value.loose_nan = False
        return value

    def resize(self, value: W, type: str) -> W:
        """An integer truncated, or extended by the signedness of its own type."""
        have, want = WIDTH[value.type], WIDTH[type]
        if have == want:
            return self.bits(value, type)
        if value.constant is not None:
            signed = value.type[0] == "s" and value.constant >> (have - 1)
            return self.const(type, value.constant - (1 << have) if signed else value.constant)
        if value.name is None and value.parts is not None and WIDTH[value.parts[0].type] == want:
            return self.bits(value.parts[0], type)
        step = "trunc" if want < have else "sext" if value.type[0] == "s" else "zext"
        return self.value(f"{step} {self.text(value)} to {VECTOR[type]}", type)

    def unpack(self, value: W, count: int) -> list[W]:
        """The value cut into `count` equal parts, lowest first."""
        if value.parts is not None and len(value.parts) == count:
            return value.parts
        if value.parts is not None and count % len(value.parts) == 0:
            more = count // len(value.parts)
            return [x for p in value.parts for x in self.unpack(self.bits(p, f"u{WIDTH[p.type]}"), more)]
        width = WIDTH[value.type] // count
        if value.constant is not None:
            return [self.const(f"u{width}", value.constant >> (k * width)) for k in range(count)]
        if count not in value.split:
            whole = self.bits(value, f"u{WIDTH[value.type]}")
            value.split[count] = self._halved(whole) if count == 2 else self._shifted(whole, count)
        return value.split[count]

    def _halved(self, value: W) -> list[W]:
        width = WIDTH[value.type] // 2
        double = f"<{2 * LANES} x i{width}>"
        flat = self.raw(f"bitcast {self.text(value)} to {double}")
        pair = f"{{<{LANES} x i{width}>, <{LANES} x i{width}>}}"
        both = self.call(f"llvm.vector.deinterleave2.v{2 * LANES}i{width}", pair, (double, flat))
        return [self.value(f"extractvalue {pair} {both}, {k}", f"u{width}") for k in (0, 1)]

    def _shifted(self, value: W, count: int) -> list[W]:
        width = WIDTH[value.type] // count
        moved = [self.shr(value, self.const("u32", k * width)) if k else value for k in range(count)]
        return [self.resize(m, f"u{width}") for m in moved]

    def pack(self, parts: Sequence[W]) -> W:
        """Parts joined, lowest first, into one unsigned value."""
        return W(None, f"u{WIDTH[parts[0].type] * len(parts)}", list(parts))
