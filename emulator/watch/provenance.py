"""From which tensor or variable the addresses of an instruction are computed, found in the text of a kernel.

A register may hold addresses into whatever its definitions are computed from: kernel parameters by their offset, shared
variables by name, or memory (a loaded pointer, which may point anywhere). Only where one single source is left can an
access be held against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from emulator.ptx.module import Address, Instruction, Symbol
from emulator.watch.definedness import DependenceBuilder, slots_of, traced

Source = tuple[str, Any]
"""`("parameter", offset)`, `("variable", name)`, or `("memory", None)`."""

ANYWHERE: Source = ("memory", None)
_ADDRESSES = ("address", "source", "destination", "response")
_ELSEWHERE = {"global": "destination", "shared": "source"}
_LOADS = ("memory._load", "atomics._update", "matrix._load", "tcgen05._load", "warp._exchanged", "warp._shuffle")


class Provenance:
    """The sources of one program's addresses."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._of_slot: dict[int, set[Source]] = {}
        self._addresses: dict[int, dict[str, tuple[set[int], set[Source]]]] = {}
        self._follow(list(self._edges()))

    def sources(self, index: int, space: str = "global") -> frozenset[Source]:
        """What the addresses of static instruction `index` in a space may be computed from. Of two addresses (cp.async)
        the destination is shared memory, the source global."""
        found = self._addresses.get(index, {})
        names = [name for name in found if len(found) < 2 or name != _ELSEWHERE[space]]
        roots = {source for name in names for source in found[name][1]}
        return frozenset(roots).union(*(self._of_slot.get(s, ()) for name in names for s in found[name][0]))

    def _edges(self) -> Iterable[tuple[int, set[int], set[Source]]]:
        """(register written, registers that it depends on, sources that enter here), instruction by instruction."""
        builder = DependenceBuilder()
        for block in range(len(self._program.starts)):
            self._program.build_block(builder, block, [])
        for index, i in enumerate(self._program.function.instructions):
            trace = builder.traces[index]
            symbols: set[Source] = {("variable", name) for name in trace.symbols}
            for effect in trace.effects:
                for name in _ADDRESSES:
                    values = traced(effect.arguments.get(name))
                    slots = {slot for value in values for slot in slots_of(value.whole)}
                    if values:
                        known = self._addresses.setdefault(index, {}).setdefault(name, (set(), set()))
                        known[0].update(slots)
                        known[1].update(symbols)
            loaded = self._loaded(i, [e.handler for e in trace.effects])
            for write in trace.writes:
                cell = frozenset().union(*write.cells)
                new = loaded if any(atom < 0 for atom in cell) else symbols
                yield write.slot, set(slots_of(cell)), new

    @staticmethod
    def _loaded(i: Instruction, handlers: list[str]) -> set[Source]:
        """The sources of what a handler gives: a parameter at a known place, or anything."""
        place = i.operands[-1] if i.operands else None
        if i.opcode.startswith("ld.param") and isinstance(place, Address) and isinstance(place.base, Symbol):
            return {("parameter", (place.base.name, place.offset))}
        return {ANYWHERE} if any(handler in _LOADS for handler in handlers) else set()

    def _follow(self, edges: list[tuple[int, set[int], set[Source]]]) -> None:
        """Pass sources on until nothing changes."""
        readers: dict[int, list[int]] = {}
        for slot, depends, new in edges:
            self._of_slot.setdefault(slot, set()).update(new)
            for other in depends:
                readers.setdefault(other, []).append(slot)
        todo = [slot for slot, found in self._of_slot.items() if found]
        while todo:
            slot = todo.pop()
            for reader in readers.get(slot, ()):
                known = self._of_slot.setdefault(reader, set())
                if not self._of_slot[slot] <= known:
                    known |= self._of_slot[slot]
                    todo.append(reader)
