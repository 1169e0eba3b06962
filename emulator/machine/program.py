"""A translated kernel: basic blocks whose Python is printed by the builder and compiled when first reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported as UnsupportedForm
from emulator.builders.numpy_builder import NumpyBuilder, base_namespace
from emulator.errors import LaunchError, UnknownInstruction, Unsupported
from emulator.isa import lookup
from emulator.isa.table import Modifiers, Op
from emulator.machine.inline import inline_calls
from emulator.machine.layout import Layout, lay_out
from emulator.machine.products import mark_serial
from emulator.ptx.module import (
    Function,
    Instruction,
    Label,
    LabelList,
    Module,
    Operand,
    Reg,
)
from emulator.ptx.registers import registers_of
from emulator.ptx.types import TYPES

Block = Callable[[Any, list[Any], Any], int]


class BlockLayout:
    """What a builder may ask about its surroundings."""

    def __init__(self, layout: Layout, following: int, exit_block: int) -> None:
        self.space_of = layout.space_of
        self.following = following
        self.exit_block = exit_block


class Blocks:
    """One entry of a module, cut into basic blocks: at `starts` if these are known, else decoded and cut here."""

    def __init__(self, module: Module, entry: str, starts: Sequence[int] = ()) -> None:
        if entry not in module.functions:
            raise LaunchError(f"no entry `{entry}` in the module; it has: {', '.join(module.functions) or 'none'}")
        self.module = module
        self.function: Function = mark_serial(inline_calls(module, module.functions[entry]))
        self.layout = lay_out(module, self.function)
        self.decoded = [] if starts else self._decode()
        self.starts = list(starts) or self._cut()
        self.block_of = {start: b for b, start in enumerate(self.starts)}
        self.exit_block = len(self.starts)
        self.initial_registers: list[np.ndarray] = []
        self.bounds = self._ranges()
        self.lengths = [end - start for start, end in self.bounds]

    @contextmanager
    def context(self) -> Iterator[Any]:
        """What an engine needs for the time of a launch, or None: `warp_type` makes the warps."""
        yield None

    # ---------------------------------------------------------------- decoding
    def _decode(self) -> list[tuple[Op, Modifiers]]:
        found: list[Unsupported] = []
        decoded: list[tuple[Op, Modifiers]] = []
        for i in self.function.instructions:
            result = lookup(i.opcode)
            if isinstance(result, str):
                found.append(Unsupported(i.line, i.text, result))
            else:
                decoded.append(result)
        if found:
            raise UnknownInstruction(self.function.name, found)
        return decoded

    def _cut(self) -> list[int]:
        instructions = self.function.instructions
        starts = {0}
        for n, (i, (form, _)) in enumerate(zip(instructions, self.decoded, strict=True)):
            starts.update(label.index for label in _labels(i))
            if form.starts_block:
                starts.add(n)
            if form.ends_block:
                starts.add(n + 1)
        return sorted(s for s in starts if s < len(instructions))

    def _ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, [*self.starts[1:], len(self.function.instructions)], strict=True))

    def target(self, label: Label) -> int:
        """The block that a label names; one past the last block is the exit."""
        return self.block_of.get(label.index, self.exit_block)

    # ---------------------------------------------------------------- building
    def build_block(self, builder: Any, block: int, found: list[Unsupported]) -> None:
        """Print a block with a builder; forms that it refuses are added to `found`."""
        start, end = self.bounds[block]
        for n in range(start, end):
            i = self.function.instructions[n]
            form, modifiers = self.decoded[n]
            builder.begin(n, i.guard, i.guard_negated)
            try:
                form.build(builder, self._resolve(i), modifiers)
            except UnsupportedForm as reason:
                found.append(Unsupported(i.line, i.text, str(reason)))
            except (IndexError, AttributeError, KeyError, ValueError) as wrong:
                found.append(Unsupported(i.line, i.text, f"operands do not fit this form ({wrong})"))

    def surroundings(self, block: int) -> BlockLayout:
        """What the builder of a block may ask."""
        return BlockLayout(self.layout, block + 1, self.exit_block)

    def _resolve(self, i: Instruction) -> Instruction:
        """Branch targets become block numbers, so that semantics need not know about blocks."""
        if not any(isinstance(o, (Label, LabelList)) for o in i.operands):
            return i
        return replace(i, operands=tuple(self._resolved(o) for o in i.operands))

    def _resolved(self, o: Operand) -> Operand:
        if isinstance(o, Label):
            return Label(o.name, self.target(o))
        if isinstance(o, LabelList):
            return LabelList(tuple(Label(x.name, self.target(x)) for x in o.labels))
        return o

    def own_slots(self) -> list[set[int]]:
        """Per block, the slots that no other block mentions."""
        homes: dict[int, set[int]] = {}
        for block, (start, end) in enumerate(self.bounds):
            for i in self.function.instructions[start:end]:
                for reg in _registers(i):
                    homes.setdefault(reg.slot, set()).add(block)
        own: list[set[int]] = [set() for _ in range(self.exit_block)]
        for slot, blocks in homes.items():
            if len(blocks) == 1:
                own[next(iter(blocks))].add(slot)
        return own


class Program(Blocks):
    """A kernel whose blocks are Python functions, compiled when first reached.

    Every instruction is built once at construction, so unknown opcodes, modifiers and operand forms are all reported
    (`UnknownInstruction`) before anything runs. `watched` adds issue events; `exposed` keeps the register file up to
    date at each of them.
    """

    def __init__(self, module: Module, entry: str, watched: bool = False, exposed: bool = False) -> None:
        super().__init__(module, entry)
        self.watched = watched
        self.exposed = exposed
        self.namespace = base_namespace()
        self.initial_registers = [_initial(t) for t in self.function.register_types]
        self.full: list[Block | None] = [None] * self.exit_block
        self.part: list[Block | None] = [None] * self.exit_block
        self._builders = self._build_all()
        # Slots that a block always writes before it reads, and no other block mentions, need no register file.
        own = [set() for _ in self.starts] if exposed else self.own_slots()
        self.local = [frozenset(s - b.loaded) for s, b in zip(own, self._builders, strict=True)]

    def _build_all(self) -> list[NumpyBuilder]:
        found: list[Unsupported] = []
        builders = [self._build(b, False, frozenset(), found) for b in range(self.exit_block)]
        if found:
            raise UnknownInstruction(self.function.name, found)
        return builders

    def _build(self, block: int, masked: bool, local: frozenset[int], found: list[Unsupported]) -> NumpyBuilder:
        builder = NumpyBuilder(self.namespace, self.surroundings(block), masked, local, self.watched, self.exposed)
        self.build_block(builder, block, found)
        return builder

    def source(self, block: int, masked: bool) -> str:
        """The Python of one block, for reading and debugging."""
        name = f"block_{block}_{'part' if masked else 'full'}"
        if masked:
            builder = self._build(block, True, self.local[block], [])
        else:
            builder = self._build(block, False, self.local[block], [])
        return builder.text(name, block + 1)

    def compile(self, block: int, masked: bool) -> Block:
        """Compile one block and remember it."""
        text = self.source(block, masked)
        exec(compile(text, f"<{self.function.name} block {block}>", "exec"), self.namespace)
        function: Block = self.namespace[f"block_{block}_{'part' if masked else 'full'}"]
        (self.part if masked else self.full)[block] = function
        return function


def _initial(type: str) -> np.ndarray:
    """Registers start as zero bits; what the hardware leaves there is unspecified. No code writes an array in place, so
    all warps begin with the same ones."""
    if type == "pred":
        return np.zeros(32, np.bool_)
    if type == "b128":
        return np.zeros((2, 32), np.uint64)
    return np.zeros(32, f"u{max(1, TYPES[type].bits // 8)}")


def _labels(i: Instruction) -> list[Label]:
    labels: list[Label] = []
    for o in i.operands:
        if isinstance(o, Label):
            labels.append(o)
        elif isinstance(o, LabelList):
            labels.extend(o.labels)
    return labels


def _registers(i: Instruction) -> list[Reg]:
    found = [i.guard] if i.guard is not None else []
    return found + [r for o in i.operands for r in registers_of(o)]
