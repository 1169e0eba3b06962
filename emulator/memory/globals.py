"""Global memory: registered regions of this process's memory, and nothing else.

An emulated device address is a host address. Only bytes inside a registered region are ever touched: an address outside
all of them is a `MemoryFault` that names the nearest region, so a kernel that runs off a tensor cannot crash or
corrupt the process.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import LaunchError, MemoryFault

U8 = NDArray[np.uint8]
Array = NDArray[Any]

# Element widths that views exist for; 16 bytes are carried as complex128, which NumPy copies without touching bits.
_DTYPES: dict[int, type] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}
ALLOCATION_ALIGN = 256
POISON = 0xFF
ALLOCATIONS = count(1)
"""Numbers of allocations: no two of a process are the same."""


@dataclass(eq=False)
class Region:
    """`nbytes` bytes at `address`. `views[w]` holds its elements of w bytes, the first one at address `origins[w]`:
    the first multiple of w that is not below `address`. `poisoned` numbers the allocation if its owner filled it with
    0xFF bytes that mean nothing; 0: what it holds is meant. `strides`: bytes, one a dimension of `shape`; empty if the
    elements lie one after the other in row-major order, or if nobody knows."""

    address: int
    nbytes: int
    name: str
    writable: bool
    shape: tuple[int, ...]
    dtype: str
    views: dict[int, Array] = field(repr=False)
    origins: dict[int, int] = field(repr=False)
    owner: object = field(default=None, repr=False)
    poisoned: int = 0
    strides: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.address + self.nbytes

    def __str__(self) -> str:
        kind = f" ({self.dtype} {list(self.shape)})" if self.dtype else ""
        return f"{self.name}{kind} at {self.address:#x}..{self.end:#x} ({self.nbytes} bytes)"


class GlobalMemory:
    """The regions of one launch, sorted by address.

    Addresses are int64 or uint64 arrays [n], one a lane; `lanes` (ints [n], default 0..n-1) only serves messages.
    Ranges: loads and stores move 1, 2, 4 or 8 bytes a lane and must be aligned to that size; the vector forms move
    `count` such elements and must be aligned to the whole. An empty address array moves nothing.
    Several lanes that store to one address leave the value of the last one. Regions may overlap. `version` changes with
    the regions.
    """

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._starts: list[int] = []
        self._widest = 0
        self._last: Region | None = None
        self.version = 0

    @property
    def regions(self) -> tuple[Region, ...]:
        """All registered regions in the order of their addresses."""
        return tuple(self._regions)

    def register(
        self,
        address: int,
        nbytes: int,
        name: str,
        writable: bool = True,
        shape: tuple[int, ...] = (),
        dtype: str = "",
        poisoned: int = 0,
        strides: tuple[int, ...] = (),
    ) -> Region:
        """Make [address, address + nbytes) accessible. The caller keeps the memory alive until `unregister`.

        Raises ValueError for a negative size, or a null or negative address with bytes behind it.
        """
        if nbytes < 0 or address < 0 or (address == 0 and nbytes):
            raise ValueError(f"register({name}): address={address:#x} nbytes={nbytes}: both must be positive")
        raw: U8 = np.empty(0, np.uint8)
        if nbytes:
            raw = np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)
        views: dict[int, Array] = {}
        origins: dict[int, int] = {}
        for width, dtype_of in _DTYPES.items():
            origin = -(-address // width) * width
            count = max(0, address + nbytes - origin) // width
            first = origin - address
            views[width] = raw[first : first + count * width].view(dtype_of) if count else np.empty(0, dtype_of)
            origins[width] = origin
        region = Region(address, nbytes, name, writable, tuple(shape), dtype, views, origins, None, poisoned, strides)
        place = bisect_right(self._starts, address)
        self.version += 1
        self._regions.insert(place, region)
        self._starts.insert(place, address)
        self._widest = max(self._widest, nbytes)
        return region

    def unregister(self, region: Region) -> None:
        """Forget one region. Raises ValueError when it is not registered."""
        if region not in self._regions:
            raise ValueError(f"unregister: {region} is not registered")
        place = self._regions.index(region)
        self.version += 1
        del self._regions[place], self._starts[place]
        self._widest = max((r.nbytes for r in self._regions), default=0)
        if self._last is region:
            self._last = None

    def allocate(self, nbytes: int, name: str, fill: int = 0xFF, writable: bool = True) -> Region:
        """A region that the emulator owns: 256-byte aligned, every byte `fill`, alive while it is registered. Filled
        with 0xFF it counts as poisoned."""
        try:
            owner = np.full(nbytes + ALLOCATION_ALIGN, fill, np.uint8)
        except MemoryError:
            raise LaunchError(f"{name}: {nbytes} bytes cannot be allocated") from None
        address = -(-owner.ctypes.data // ALLOCATION_ALIGN) * ALLOCATION_ALIGN
        region = self.register(address, nbytes, name, writable, poisoned=next(ALLOCATIONS) if fill == POISON else 0)
        region.owner = owner
        return region

    def find(self, address: int, nbytes: int) -> Region | None:
        """A region that holds all of [address, address + nbytes), or None."""
        last = self._last
        if last is not None and last.address <= address and address + nbytes <= last.end:
            return last
        place = bisect_right(self._starts, address) - 1
        while place >= 0:
            region = self._regions[place]
            if address + nbytes <= region.end:
                self._last = region
                return region
            if region.address + self._widest < address:
                break
            place -= 1
        return None

    def view(self, address: int, nbytes: int, write: bool = False, what: str = "access") -> U8:
        """The bytes [address, address + nbytes) in place, uint8 [nbytes]. `what` names the access in a fault."""
        region = self.find(address, nbytes)
        if region is None:
            raise self.fault(what, address, nbytes)
        if write and not region.writable:
            raise MemoryFault(f"{what} of {nbytes} bytes at {address:#x} writes to read-only {region}")
        first = address - region.address
        return region.views[1][first : first + nbytes]

    def load(self, addresses: Array, nbytes: int, lanes: Array | None = None) -> Array:
        """Raw elements uint8/16/32/64 [n] of `nbytes` each."""
        found = self._indices(addresses, nbytes, nbytes)
        if found is not None:
            return found[0].views[nbytes].take(found[1])
        self._check(addresses, nbytes, nbytes, lanes, "read")
        out: Array = np.empty(addresses.size, _DTYPES[nbytes])
        for i, address in enumerate(addresses.tolist()):
            out[i] = self.view(address, nbytes).view(_DTYPES[nbytes])[0]
        return out

    def store(self, addresses: Array, values: Array, lanes: Array | None = None) -> None:
        """Write raw elements [n]; their width is that of `values`' dtype."""
        nbytes = values.dtype.itemsize
        raw: Array = values.view(_DTYPES[nbytes])
        found = self._indices(addresses, nbytes, nbytes)
        if found is not None and found[0].writable:
            found[0].views[nbytes][found[1]] = raw
            return
        self._check(addresses, nbytes, nbytes, lanes, "write")
        for i, address in enumerate(addresses.tolist()):
            self.view(address, nbytes).view(_DTYPES[nbytes])[0] = raw[i]

    def load_vector(self, addresses: Array, nbytes: int, count: int, lanes: Array | None = None) -> Array:
        """`count` consecutive elements a lane: raw [count, n]."""
        found = self._indices(addresses, nbytes, nbytes * count)
        if found is not None:
            return found[0].views[nbytes].take(found[1] + np.arange(count)[:, None])
        self._check(addresses, nbytes * count, nbytes * count, lanes, "read")
        first = addresses.view(np.int64)
        return np.stack([self.load(first + np.int64(nbytes * j), nbytes, lanes) for j in range(count)])

    def store_vector(self, addresses: Array, values: Array, lanes: Array | None = None) -> None:
        """Write `values` [count, n]: element j of a lane goes j elements behind its address."""
        count, nbytes = values.shape[0], values.dtype.itemsize
        found = self._indices(addresses, nbytes, nbytes * count)
        if found is not None and found[0].writable:
            found[0].views[nbytes][found[1] + np.arange(count)[:, None]] = values.view(_DTYPES[nbytes])
            return
        self._check(addresses, nbytes * count, nbytes * count, lanes, "write")
        first = addresses.view(np.int64)
        for j in range(count):
            self.store(first + np.int64(nbytes * j), values[j], lanes)

    def _indices(self, addresses: Array, nbytes: int, extent: int) -> tuple[Region, Array] | None:
        """(region, indices of `nbytes`-wide elements) when one region holds `extent` bytes at every address, aligned
        to `extent`; None asks for the slow path."""
        if not addresses.size:
            return None
        region = self._last or self.find(int(addresses[0]), nbytes)
        for _ in range(2):
            if region is None:
                return None
            delta = addresses.view(np.int64) - region.origins[nbytes]
            # As unsigned numbers, addresses below the region are huge: one maximum checks both ends.
            if int(np.maximum.reduce(delta.view(np.uint64))) + extent <= region.views[nbytes].size * nbytes:
                if extent > 1 and (int(np.bitwise_or.reduce(addresses.view(np.int64))) & (extent - 1)):
                    return None
                return region, delta >> _SHIFTS[nbytes]
            region = self.find(int(addresses.view(np.uint64)[0]), nbytes)
        return None

    def _check(self, addresses: Array, nbytes: int, align: int, lanes: Array | None, kind: str) -> None:
        """Raise the fault of the first bad lane, naming all bad ones; return when every lane is fine."""
        bad: list[int] = []
        misaligned: list[int] = []
        readonly: list[int] = []
        listed = addresses.view(np.uint64).tolist()
        for i, address in enumerate(listed):
            if address % align:
                misaligned.append(i)
                continue
            region = self.find(address, nbytes)
            if region is None:
                bad.append(i)
            elif kind == "write" and not region.writable:
                readonly.append(i)
        if not (bad or misaligned or readonly):
            return
        worst = misaligned or bad or readonly
        numbers = [i if lanes is None else int(lanes[i]) for i in worst]
        who = describe_lanes(numbers)
        address = listed[worst[0]]
        head = f"{kind} of {nbytes} bytes at {address:#x} by {who}"
        if misaligned:
            raise MemoryFault(f"{head} is misaligned: the address must be a multiple of {align}")
        if bad:
            raise self.fault(kind, address, nbytes, who)
        raise MemoryFault(f"{head} goes to read-only {self.find(address, nbytes)}")

    def fault(self, kind: str, address: int, nbytes: int, who: str = "") -> MemoryFault:
        """The fault of an access that no region holds: says which region is nearest and by how much it was missed."""
        by = f" by {who}" if who else ""
        head = f"{kind} of {nbytes} bytes at {address:#x}{by} is outside every registered tensor"
        near = [(max(r.address - address, address + nbytes - r.end), r) for r in self._regions if r.nbytes]
        if not near:
            return MemoryFault(f"{head}; none is registered")
        _, region = min(near, key=lambda pair: pair[0])
        if address + nbytes <= region.address:
            place = f"{region.address - address} bytes before the start of"
        elif address >= region.end:
            place = f"{address - region.end} bytes past the end of"
        elif address < region.address:
            place = f"its first {region.address - address} bytes are before the start of"
        else:
            place = f"its last {address + nbytes - region.end} bytes are past the end of"
        return MemoryFault(f"{head}; nearest: {place} {region}")


def describe_lanes(numbers: list[int]) -> str:
    """`lane 3`, or `lane 3 and 4 more (3, 5, 7, 9, 11)`."""
    if len(numbers) == 1:
        return f"lane {numbers[0]}"
    listed = ", ".join(map(str, numbers[:32]))
    return f"lane {numbers[0]} and {len(numbers) - 1} more ({listed})"
