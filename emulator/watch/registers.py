"""Definedness of one warp's registers.

A register is one Python integer: 32 bits, one a lane, for every byte of the register, byte 0 lowest; a bit is set where
the byte is undefined. Packing and unpacking are shifts then, and a register that is defined in all lanes is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from emulator.builders.lanes import FULL
from emulator.errors import Where
from emulator.events import Access, WarpId
from emulator.isa.warplike import ballot, word_of
from emulator.ptx.module import Function
from emulator.ptx.types import TYPES
from emulator.watch.definedness import Cell, Traced, Write
from emulator.watch.plans import Plan

ALL = 0xFFFFFFFF
_EVERY_BYTE = sum(1 << 32 * k for k in range(16))


@lru_cache(4096)
def planes(lanes: int) -> int:
    """A lane mask repeated for 16 bytes."""
    return lanes * _EVERY_BYTE


@lru_cache(4096)
def _ballot(mask: bytes) -> int:
    return ballot(np.frombuffer(mask, np.bool_))


def fold(undefined: int) -> int:
    """The lanes in which any byte is undefined."""
    lanes = 0
    while undefined:
        lanes |= undefined & ALL
        undefined >>= 32
    return lanes


@dataclass(frozen=True)
class Origin:
    """Where an undefined value comes from: a place in words, and the instruction that read it from there."""

    text: str
    where: Where | None


class Registers:
    """A warp: its registers, and the instruction that it is executing. `dirty`: something that matters to it is
    undefined; `loading`: where what it loads comes from; `chosen`: the latest `Choice`."""

    plan: Plan
    mask: np.ndarray

    def __init__(self, who: WarpId, function: Function, live: int) -> None:
        self.who = who
        self.undefined = [live * (_EVERY_BYTE & (1 << 32 * _bytes(t)) - 1) for t in function.register_types]
        self.origins: dict[int, Origin] = {}
        self.index = 0
        self.dirty = False
        self.loading: Origin | None = None
        self.chosen: np.ndarray | None = None

    def lanes(self) -> int:
        """The executing lanes."""
        return ALL if self.mask is FULL else _ballot(self.mask.tobytes())

    def planes(self) -> int:
        """The executing lanes in every byte of a register."""
        return planes(self.lanes())

    def loaded_lanes(self, record: Access) -> int:
        """The lanes that get what an access reads. Lanes that give the addresses of rows are others than get them."""
        if record.lanes is None or (self.plan.effect is not None and "arrange" in self.plan.effect.arguments):
            return self.lanes()
        return word_of(record.lanes.tolist())

    def lane_list(self, record: Access) -> list[int]:
        """The lanes of an access in the order of its addresses."""
        if record.lanes is not None:
            found: list[int] = record.lanes.tolist()
            return found
        return list(range(32))

    def byte(self, cell: Cell, results: dict[int, int]) -> int:
        """The lanes in which a byte is undefined that depends on `cell`; `results` are those of the handler."""
        lanes = 0
        for atom in cell:
            if atom >= 0:
                lanes |= self.undefined[atom >> 4] >> 32 * (atom & 15)
            else:
                lanes |= results.get(-1 - atom, 0)
        return lanes & ALL

    def value(self, cells: Iterable[Cell], results: dict[int, int]) -> int:
        """The same for all bytes of a value."""
        total, known = 0, {}
        for k, cell in enumerate(cells):
            if id(cell) not in known:
                known[id(cell)] = self.byte(cell, results)
            total |= known[id(cell)] << 32 * k
        return total

    def propagate(self, writes: Iterable[Write], results: dict[int, int] | None = None) -> None:
        """The executing lanes of the written registers become as undefined as what they depend on."""
        found = [(w, self.value(w.cells, results or {})) for w in writes]
        self.commit(found, self.lanes())

    def choose(self, writes: Iterable[Write], taken: int) -> None:
        """A selection: lanes of `taken` depend on the first source, the others on the second, all on the predicate."""
        found = []
        for w in writes:
            if w.choice is None:
                found.append((w, self.value(w.cells, {})))
                continue
            p, a, b = w.choice
            first, second = self.value(a.cells, {}), self.value(b.cells, {})
            picked = first & planes(taken) | second & planes(ALL & ~taken)
            unknown = self.byte(p.whole, {})
            found.append((w, picked | unknown * sum(1 << 32 * k for k in range(len(w.cells)))))
        self.commit(found, self.lanes())

    def commit(self, found: list[tuple[Write, int]], lanes: int) -> None:
        """Set registers in some lanes, and say where what is undefined comes from."""
        mask = planes(lanes)
        sources = {w.slot: self._source(w) for w, new in found if new & mask}
        for w, new in found:
            self.undefined[w.slot] = self.undefined[w.slot] & ~mask | new & mask
            origin = sources.get(w.slot)
            if origin is not None:
                self.origins[w.slot] = origin
            elif not self.undefined[w.slot]:
                self.origins.pop(w.slot, None)

    def _source(self, write: Write) -> Origin | None:
        atoms = frozenset().union(*write.cells)
        if any(atom < 0 for atom in atoms) and self.loading is not None:
            return self.loading
        for slot in sorted({atom >> 4 for atom in atoms if atom >= 0}):
            if self.undefined[slot] and slot in self.origins:
                return self.origins[slot]
        return None

    def words(self, values: list[Traced]) -> np.ndarray:
        """Definedness of values as their bytes would lie: uint8 [values, 32 lanes, bytes of a value]."""
        size = len(values[0].cells)
        out = np.zeros((len(values), 32, size), np.uint8)
        for n, value in enumerate(values):
            for k, cell in enumerate(value.cells):
                out[n, :, k] = spread(self.byte(cell, {}))
        return out


def spread(lanes: int) -> Any:
    """A lane mask as uint8 [32] of 0xFF and 0."""
    return np.unpackbits(np.array([lanes], np.uint32).view(np.uint8), bitorder="little") * np.uint8(0xFF)


def gather(undefined: np.ndarray) -> int:
    """The inverse: bool or uint8 [32] to a lane mask."""
    return ballot(undefined != 0)


def _bytes(type: str) -> int:
    return 1 if type == "pred" else max(1, TYPES[type].bits // 8)
