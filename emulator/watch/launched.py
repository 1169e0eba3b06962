"""What initcheck knows of one launch: shadows of its memories, registers of its warps, and how it reports."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from emulator.errors import Where
from emulator.events import Access, LaunchBegin, WarpId
from emulator.memory.globals import Region
from emulator.watch.definedness import slots_of
from emulator.watch.finding import Finding
from emulator.watch.plans import Plans
from emulator.watch.registers import ALL, Origin, Registers, fold, planes
from emulator.watch.report import (
    Findings,
    PerProgram,
    element_text,
    function_of,
    lanes_text,
    shared_text,
    tensor_text,
    where,
)
from emulator.watch.undefined import Bytes, GlobalShadows, Words

TOOL = "initcheck"
_LOCAL = "local memory"
_MOST_TAINTS = 100_000
"""Words of memory whose undefined value is traced to the store that put it there."""

_plans = PerProgram(Plans)

Triple = tuple[int, int, int]


class Launched:
    """One launch. `globals` outlives it: what a kernel leaves in an output is defined for the next one."""

    def __init__(self, begin: LaunchBegin, found: Findings, globals: GlobalShadows) -> None:
        self.begin = begin
        self.found = found
        self.globals = globals
        self.globals.begin(begin.state.memory)
        self.plans = _plans(begin.state.program)
        self._threads = begin.block[0] * begin.block[1] * begin.block[2]
        self._warps: dict[int, Registers] = {}
        self._shared: dict[tuple[Triple, int], Bytes] = {}
        self._tensor: dict[tuple[Triple, int], Words] = {}
        self._taints: dict[tuple[Hashable, int], Origin] = {}

    # ---------------------------------------------------------------- warps and memories
    def registers(self, who: WarpId) -> Registers:
        """The registers of a warp."""
        # Every warp has one identity object for its whole life, and hashing it by value costs more than the rest.
        warp = self._warps.get(id(who))
        if warp is None:
            left = self._threads - 32 * who.warp
            live = ALL if left >= 32 else (1 << max(left, 0)) - 1
            warp = self._warps[id(who)] = Registers(who, self.begin.state.program.function, live)
        return warp

    def origin(self, who: WarpId) -> Triple:
        """The first CTA of a warp's cluster."""
        (x, y, z), (a, b, c) = who.cta, self.begin.cluster
        return x // a * a, y // b * b, z // c * c

    def forget(self, cluster: Triple) -> None:
        """A cluster has ended; nobody can see what it leaves in its own memories."""
        self._warps = {k: w for k, w in self._warps.items() if self.origin(w.who) != cluster}
        self._shared = {k: s for k, s in self._shared.items() if k[0] != cluster}
        self._tensor = {k: s for k, s in self._tensor.items() if k[0] != cluster}
        self._taints = {k: o for k, o in self._taints.items() if k[0] == "global"}

    def shared(self, who: WarpId, rank: int) -> Bytes:
        """The shadow of a CTA's shared memory, in the cluster of `who`."""
        key = self.origin(who), rank
        if key not in self._shared:
            self._shared[key] = Bytes(self.begin.state.shared_extent)
        return self._shared[key]

    def tensor(self, who: WarpId, rank: int) -> Words:
        """The shadow of a CTA's tensor memory."""
        key = self.origin(who), rank
        if key not in self._tensor:
            self._tensor[key] = Words()
        return self._tensor[key]

    def region(self, record: Access, low: int, high: int) -> tuple[Region | None, Bytes | None]:
        """The memory of an access that reaches from `low` to `high`; no shadow where all of it is defined, or where the
        machine is about to refuse the access."""
        if record.space == "shared":
            shadow = self.shared(record.who, record.rank)
            return None, shadow if 0 <= low and high <= shadow.end else None
        found = self.globals.find(low)
        if found is None:
            return None, None
        region, bytes_ = found
        return region, bytes_ if bytes_ is not None and high <= region.end else None

    @staticmethod
    def is_output(record: Access, region: Region | None) -> bool:
        """Whether an access goes to a tensor, and not to the memory of a thread."""
        return record.space == "global" and (region is None or not region.name.startswith(_LOCAL))

    # ---------------------------------------------------------------- words
    def where(self, who: WarpId, index: int) -> Where:
        """An instruction of a warp."""
        return where(self.begin, who, index)

    def register_name(self, slot: int) -> str:
        """The register of a slot as the PTX calls it."""
        name: str = self.begin.state.program.function.register_names[slot]
        return name

    def place(self, record: Access, region: Region | None, address: int) -> str:
        """A place in memory in words."""
        if record.space == "tensor":
            return tensor_text(record.rank, address)
        if record.space == "shared":
            return shared_text(self.begin, record.rank, address)
        return f"global memory {address:#x}" if region is None else element_text(region, address)

    # ---------------------------------------------------------------- where undefined values come from
    def _space(self, record: Access) -> Hashable:
        return "global" if record.space == "global" else (record.space, self.origin(record.who), record.rank)

    def taint(self, record: Access, addresses: Any, origin: Origin) -> None:
        """An undefined value is stored: remember where it comes from."""
        space, words = self._space(record), 1 if record.space == "tensor" else -(-record.nbytes // 4)
        for address in np.asarray(addresses).ravel().tolist():
            first = address if record.space == "tensor" else address >> 2
            for word in range(first, first + words):
                if len(self._taints) < _MOST_TAINTS:
                    self._taints[space, word] = origin

    def source(self, record: Access, region: Region | None, address: int, index: int) -> Origin:
        """Where the undefined value at an address comes from: from a store, or from nobody."""
        word = address if record.space == "tensor" else address >> 2
        known = self._taints.get((self._space(record), word))
        place = self.place(record, region, address)
        return known or Origin(f"{place}, which nobody has written", self.where(record.who, index))

    def tainted(self, record: Access, address: int) -> Origin | None:
        """The same, None for nobody."""
        return self._taints.get((self._space(record), address if record.space == "tensor" else address >> 2))

    # ---------------------------------------------------------------- reports
    def report(self, key: Hashable, kind: str, at: Where, memory: str, missing: str, origin: Origin | None) -> None:
        """Add a finding."""
        other = None if origin is None or origin.where == at else origin.where
        roles = function_of(at), function_of(other)
        self.found.add(key, Finding(TOOL, kind, at, memory, missing, other, *roles))

    def report_register(self, warp: Registers, slot: int, lanes: int, kind: str, what: str) -> None:
        """A register decides something; from now on it counts as defined, so that one mistake is one finding."""
        origin = warp.origins.get(slot)
        warp.undefined[slot] &= ~planes(lanes)
        key = (kind, self.begin.kernel, warp.index, slot, _line(origin))
        if self.found.count(key):
            return
        name = self.register_name(slot)
        missing = f"{what} must be defined: {name} {_cause(origin)}"
        at = self.where(warp.who, warp.index)
        self.report(key, kind, at, f"register {name} in {lanes_text(lanes)}", missing, origin)

    def report_stored(self, warp: Registers, place: str, slots: list[int]) -> None:
        """An undefined value goes to a tensor."""
        lanes = warp.lanes()
        slot = next((s for s in slots if fold(warp.undefined[s]) & lanes), None)
        origin = None if slot is None else warp.origins.get(slot)
        kind = "uninitialised output"
        key = (kind, self.begin.kernel, warp.index, slot, _line(origin))
        if self.found.count(key):
            return
        name = "a register" if slot is None else self.register_name(slot)
        missing = f"what is stored to a tensor must be defined: {name} {_cause(origin)}"
        self.report(key, kind, self.where(warp.who, warp.index), place, missing, origin)


def _line(origin: Origin | None) -> int:
    """The PTX line that an undefined value comes from, 0 without one."""
    return 0 if origin is None or origin.where is None else origin.where.line


def _cause(origin: Origin | None) -> str:
    return "has not been written" if origin is None else f"comes from {origin.text}"


def data_slots(warp: Registers, name: str) -> list[int]:
    """The registers of an argument that a handler passes on."""
    return [slot for value in warp.plan.data(name) for slot in slots_of(value.whole)]
