"""Where the accesses of each instruction of a launch may lie."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.events import LaunchBegin
from emulator.memory.globals import Region
from emulator.memory.spaces import SHARED_RESERVED
from emulator.watch.provenance import Provenance, Source
from emulator.watch.report import PerProgram

_FAR = 1 << 64
_provenance = PerProgram(Provenance)


@dataclass(frozen=True)
class Expected:
    """Addresses [low, high) that an instruction may touch, and what they belong to."""

    space: str
    low: int
    high: int
    name: str = ""
    region: Region | None = None


class Bounds:
    """The bounds of one launch's instructions."""

    def __init__(self, begin: LaunchBegin) -> None:
        self._state = begin.state
        self._provenance = _provenance(begin.state.program)
        self._version = -1
        self._starts: list[int] = []
        self._regions: list[Region] = []
        self._reach: list[int] = []
        variables = (*begin.state.program.module.variables, *begin.state.program.function.variables)
        self._sizes = {v.name: v.nbytes for v in variables}

    def region(self, address: int) -> Region | None:
        """The region that holds an address; of several the one that begins last."""
        found = self._holding(address)
        return found[0] if found else None

    def _holding(self, address: int) -> list[Region]:
        memory = self._state.memory
        if memory.version != self._version:
            self._version = memory.version
            self._regions = list(memory.regions)
            self._starts = [r.address for r in self._regions]
            self._reach = np.maximum.accumulate([r.end for r in self._regions]).tolist() if self._regions else []
        place = bisect_right(self._starts, address) - 1
        found = []
        while place >= 0 and self._reach[place] > address:
            if self._regions[place].end > address:
                found.append(self._regions[place])
            place -= 1
        return found

    def expected(self, index: int, space: str) -> Expected:
        """What static instruction `index` (-1: unknown) may touch in a space."""
        sources = self._provenance.sources(index) if index >= 0 else frozenset()
        variables = {s for s in sources if s[0] == "variable" and self._is_shared(s[1])}
        if space == "shared":
            # A parameter in an address of shared memory is a size.
            bases = [s for s in sources if s[0] != "parameter"]
            return self._variable(bases[0]) if len(bases) == 1 else Expected(space, SHARED_RESERVED, _FAR)
        others = sources - variables
        pointers = [found for found in map(self._tensors, others) if found]
        if len(pointers) != 1 or any(kind != "parameter" for kind, _ in others):
            return Expected(space, 0, _FAR)
        low, high = min(r.address for r in pointers[0]), max(r.end for r in pointers[0])
        widest = max(pointers[0], key=lambda r: r.nbytes)
        return Expected(space, low, high, str(widest), widest)

    def _is_shared(self, name: str) -> bool:
        return bool(self._state.program.layout.space_of(name) == "shared")

    def _variable(self, source: Source) -> Expected:
        kind, name = source
        if kind != "variable" or not self._is_shared(name):
            return Expected("shared", SHARED_RESERVED, _FAR)
        place = self._state.program.layout.places[name]
        size = self._sizes.get(name, 0)
        return Expected("shared", place[1], place[1] + size if size else _FAR, f"variable {name}")

    def _tensors(self, source: Source) -> list[Region]:
        """The regions that hold what a parameter points to; none if it is no address at all."""
        kind, what = source
        if kind != "parameter":
            return []
        name, offset = what
        place = self._state.program.layout.places.get(name)
        start = next((r for r in self._state.memory.regions if r.address == self._state.parameters), None)
        if place is None or place[0] != "parameter" or start is None:
            return []
        at = place[1] + offset
        raw = start.views[1][at : at + 8]
        return self._holding(int(raw.view(np.uint64)[0])) if raw.size == 8 else []

    def has_gaps(self, region: Region) -> bool:
        """Whether some bytes of a region belong to none of its elements."""
        if not region.strides:
            return False
        count = int(np.prod(region.shape, dtype=np.int64))
        return region.nbytes > count * _item(region)

    def in_gap(self, region: Region, addresses: NDArray[np.int64]) -> int | None:
        """An address that is no element of any region that holds it."""
        bad = ~_elements(region, addresses)
        for address in addresses[bad].tolist():
            if not any(_elements(r, np.array([address]))[0] for r in self._holding(address)):
                return int(address)
        return None


def _elements(region: Region, addresses: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which addresses lie in an element of a region; all of them where it has no strides."""
    inside = np.ones(addresses.size, np.bool_)
    if not region.strides:
        return inside
    left = addresses - region.address
    for stride, extent in sorted(zip(region.strides, region.shape, strict=True), reverse=True):
        index = np.minimum(left // stride, extent - 1)
        left = left - index * stride
    return left < _item(region)


def _item(region: Region) -> int:
    """Bytes of an element of a region with strides."""
    return region.nbytes - sum((n - 1) * s for n, s in zip(region.shape, region.strides, strict=True))
