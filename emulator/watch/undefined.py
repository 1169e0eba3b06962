"""One byte for every byte of memory that may be undefined: 0xFF undefined, 0 defined.

A shadow has the layout of its memory, so the functions that move data move definedness as well. Most questions are
about a few neighbouring bytes that are all defined, which is one search in a bytearray.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.memory.globals import GlobalMemory, Region
from emulator.memory.tmem import COLUMNS, LANES

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
UNDEFINED = b"\xff"


class Bytes:
    """The shadow of `nbytes` bytes from address `start` on, all undefined at first."""

    def __init__(self, nbytes: int, start: int = 0) -> None:
        self.start = start
        self.end = start + nbytes
        self._data = bytearray(UNDEFINED) * nbytes
        self.array: U8 = np.frombuffer(self._data, np.uint8)

    def clean(self, low: int, high: int) -> bool:
        """Whether all of [low, high) is defined."""
        return self._data.find(UNDEFINED, low - self.start, high - self.start) < 0

    def first(self, low: int, high: int) -> int:
        """The first undefined address of [low, high)."""
        return self._data.find(UNDEFINED, low - self.start, high - self.start) + self.start

    def fill(self, low: int, high: int, value: int = 0) -> None:
        """Make [low, high) defined (0) or undefined (0xFF)."""
        self.array[low - self.start : high - self.start] = value

    def get(self, addresses: I64, nbytes: int) -> U8:
        """Definedness uint8 [n, nbytes] at the addresses, which lie inside."""
        return self.array[(addresses - self.start)[:, None] + np.arange(nbytes)]

    def put(self, addresses: I64, value: U8 | int, nbytes: int) -> None:
        """Set what `get` would give."""
        self.array[(addresses - self.start)[:, None] + np.arange(nbytes)] = value

    def define(self, addresses: I64, nbytes: int) -> None:
        """Make `nbytes` bytes at every address defined; addresses outside are left to the machine."""
        listed = addresses.tolist()
        low, high = min(listed), max(listed) + nbytes
        if low < self.start or high > self.end or self.clean(low, high):
            return
        if high - low == len(listed) * nbytes and listed == list(range(low, high, nbytes)):
            self.fill(low, high)
        else:
            self.put(addresses, 0, nbytes)


class Words:
    """The shadow of one CTA's tensor memory: uint8 [128 lanes, 512 columns], one byte a 32-bit word."""

    def __init__(self) -> None:
        self.array: U8 = np.full((LANES, COLUMNS), 0xFF, np.uint8)
        self._flat = self.array.reshape(-1)

    @staticmethod
    def index(addresses: NDArray[Any]) -> I64:
        """Flat indices of tensor addresses, lane << 16 | column."""
        return (addresses >> 16) * COLUMNS + (addresses & 0xFFFF)

    def get(self, addresses: NDArray[Any]) -> U8:
        """Definedness of words at tensor addresses of any shape."""
        return self._flat[self.index(addresses)]

    def put(self, addresses: NDArray[Any], value: U8 | int) -> None:
        """Set it."""
        self._flat[self.index(addresses)] = value

    def allocate(self, column: int, columns: int) -> None:
        """New columns hold nothing yet."""
        self.array[:, column : column + columns] = 0xFF


class GlobalShadows:
    """Shadows of those regions of global memory that nobody had written when the launch began.

    Regions that are `poisoned` with one number belong to one allocation: what earlier launches wrote stays defined.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Bytes | None] = {}
        self._version = -1
        self._memory: GlobalMemory | None = None
        self._starts: list[int] = []
        self._regions: list[tuple[int, Region, Bytes | None]] = []

    def begin(self, memory: GlobalMemory) -> None:
        """A launch begins on `memory`."""
        self._memory = memory
        self._read(memory)

    def find(self, address: int) -> tuple[Region, Bytes | None] | None:
        """The region that holds an address, and its shadow unless all of it is defined."""
        memory = self._memory
        if memory is None:
            return None
        if memory.version != self._version:
            self._read(memory)
        place = bisect_right(self._starts, address) - 1
        while place >= 0:
            reach, region, shadow = self._regions[place]
            if address < region.end:
                return region, shadow
            if reach <= address:
                return None
            place -= 1
        return None

    def _read(self, memory: GlobalMemory) -> None:
        self._version = memory.version
        groups: dict[int, list[Region]] = {}
        for region in memory.regions:
            if region.poisoned and region.nbytes:
                groups.setdefault(region.poisoned, []).append(region)
        self._kept = {number: self._shadow(number, regions) for number, regions in groups.items()}
        self._starts, self._regions = [], []
        reach = 0
        for region in memory.regions:
            reach = max(reach, region.end)
            self._starts.append(region.address)
            self._regions.append((reach, region, self._kept.get(region.poisoned)))

    def _shadow(self, number: int, regions: list[Region]) -> Bytes | None:
        """The shadow of one allocation, of which `regions` are parts."""
        low, high = min(r.address for r in regions), max(r.end for r in regions)
        if number in self._kept:
            known = self._kept[number]
            if known is None or (known.start <= low and high <= known.end):
                return known
        # What was written before this checker listened may be all that is read.
        fresh = all((region.views[1] == 0xFF).all() for region in regions)
        return Bytes(high - low, low) if fresh else None
