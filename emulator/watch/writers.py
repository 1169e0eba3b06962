"""Which warp wrote each element of the outputs of a launch last."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.events import Access, WarpId
from emulator.memory.globals import GlobalMemory, Region

_MOST_BYTES = 1 << 28
"""Larger outputs are not followed: four bytes are kept for every two of theirs, or for each."""


@dataclass(frozen=True, eq=False)
class Clash:
    """A write, of instruction `index`, of `places` that instruction `at` of warp `who` has written; `before` is what
    they held then."""

    record: Access
    index: int
    region: Region
    places: NDArray[np.int64]
    who: WarpId
    at: int
    before: NDArray[np.uint16]

    def changed(self) -> int | None:
        """The first address whose content is another now; None if the same was written again."""
        differs = _content(self.region, self.places) != self.before
        return self.region.address + int(self.places[differs][0]) * _grain(self.region) if differs.any() else None


def _grain(region: Region) -> int:
    """Bytes of a step: one where elements are bytes, which neighbours may write, else two."""
    return 1 if math.prod(region.shape) == region.nbytes else 2


def _content(region: Region, places: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The bytes of a region at places of one or two bytes, one of which may end behind it."""
    raw, grain = region.views[1], _grain(region)
    low = raw[places * grain].astype(np.uint16)
    if grain == 1:
        return low
    high = raw[np.minimum(places * grain + 1, raw.size - 1)]
    return low | high.astype(np.uint16) << np.uint16(8)


class Writers:
    """Follows writes of outputs that nobody had written before the launch, in steps of one or two bytes."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._fresh = {id(r) for r in memory.regions if r.poisoned and 0 < r.nbytes <= _MOST_BYTES}
        self._last: dict[int, NDArray[np.int32]] = {}
        self._known: list[tuple[WarpId, int]] = []
        self._numbers: dict[tuple[WarpId, int], int] = {}
        self._warps: list[int] = [0]
        self._warp_numbers: dict[WarpId, int] = {}

    def note(self, record: Access, index: int, region: Region) -> Clash | None:
        """Note an access to an output that is about to happen. A write of what another warp has written, and nobody
        read since, is a clash."""
        if id(region) not in self._fresh:
            return None
        last, grain = self._last.get(id(region)), _grain(region)
        if last is None:
            last = self._last[id(region)] = np.zeros(-(-region.nbytes // grain), np.int32)
        starts = (record.addresses.astype(np.int64).ravel() - region.address) // grain
        places = (starts[:, None] + np.arange(-(-record.nbytes // grain))).ravel()
        if record.kind != "write":
            last[places] = 0
            return None
        number, warp = self._number(record.who, index)
        earlier = last[places]
        last[places] = number
        if not earlier.any():
            return None
        other = (earlier > 0) & (np.array(self._warps)[earlier] != warp)
        if not other.any():
            return None
        written = places[other]
        who, where = self._known[int(earlier[other][0]) - 1]
        return Clash(record, index, region, written, who, where, _content(region, written))

    def _number(self, who: WarpId, index: int) -> tuple[int, int]:
        """Numbers from 1 of a warp's instruction and of the warp."""
        warp = self._warp_numbers.setdefault(who, len(self._warp_numbers) + 1)
        key = who, index
        if key not in self._numbers:
            self._known.append(key)
            self._warps.append(warp)
            self._numbers[key] = len(self._known)
        return self._numbers[key], warp
