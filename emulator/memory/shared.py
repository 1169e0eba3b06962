"""Shared memory of one CTA, and the shared::cluster address: `cta_rank << 24 | offset`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import MemoryFault
from emulator.memory.globals import describe_lanes

Array = NDArray[Any]

POISON = 0xFF
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


def split_address(address: int) -> tuple[int, int]:
    """(CTA rank in the cluster, byte offset) of a shared::cluster address."""
    return (address >> RANK_SHIFT) & 0xFF, address & OFFSET_MASK


def cluster_address(rank: int, offset: int) -> int:
    """The shared::cluster address of `offset` in the CTA of `rank` (what `mapa` computes)."""
    return rank << RANK_SHIFT | offset


class SharedMemory:
    """`nbytes` bytes (rounded up to 16), every byte 0xFF until written. `u8` .. `u64` view them as elements of 1 to 8
    bytes, `u128` as complex128, which moves 16 bytes at a time without changing them.

    The methods take byte offsets (int arrays [n], the rank already removed), check bounds and alignment, and raise
    `MemoryFault`. Where several lanes store to one offset the last lane wins.
    """

    def __init__(self, nbytes: int, name: str = "shared memory") -> None:
        if nbytes < 0 or nbytes > OFFSET_MASK:
            raise ValueError(f"SharedMemory(nbytes={nbytes}): between 0 and {OFFSET_MASK}")
        self.nbytes = nbytes
        self.name = name
        padded = -(-nbytes // 16) * 16
        # NumPy aligns to 16 bytes only by accident: carve an aligned start out of a larger buffer.
        buffer = np.full(padded + 64, POISON, np.uint8)
        start = -buffer.__array_interface__["data"][0] % 64
        self.u8: NDArray[np.uint8] = buffer[start : start + padded]
        self.u16: NDArray[np.uint16] = self.u8.view(np.uint16)
        self.u32: NDArray[np.uint32] = self.u8.view(np.uint32)
        self.u64: NDArray[np.uint64] = self.u8.view(np.uint64)
        self.u128: NDArray[np.complex128] = self.u8.view(np.complex128)
        self.views: dict[int, Array] = {1: self.u8, 2: self.u16, 4: self.u32, 8: self.u64, 16: self.u128}

    def load(self, offsets: Array, nbytes: int, lanes: Array | None = None) -> Array:
        """Raw elements [n] of 1, 2, 4 or 8 bytes (16: complex128)."""
        return self.views[nbytes].take(self._indices(offsets, nbytes, nbytes, lanes, "read"))

    def store(self, offsets: Array, values: Array, lanes: Array | None = None) -> None:
        """Write raw elements [n]; their width is that of `values`' dtype."""
        nbytes = values.dtype.itemsize
        view = self.views[nbytes]
        view[self._indices(offsets, nbytes, nbytes, lanes, "write")] = values.view(view.dtype)

    def load_vector(self, offsets: Array, nbytes: int, count: int, lanes: Array | None = None) -> Array:
        """`count` consecutive elements a lane: raw [count, n]; aligned to the whole vector."""
        first = self._indices(offsets, nbytes, nbytes * count, lanes, "read")
        return self.views[nbytes].take(first + np.arange(count)[:, None])

    def store_vector(self, offsets: Array, values: Array, lanes: Array | None = None) -> None:
        """Write `values` [count, n]: element j of a lane goes j elements behind its offset."""
        count, nbytes = values.shape[0], values.dtype.itemsize
        first = self._indices(offsets, nbytes, nbytes * count, lanes, "write")
        view = self.views[nbytes]
        view[first + np.arange(count)[:, None]] = values.view(view.dtype)

    def bytes(self, offset: int, nbytes: int, what: str = "access") -> NDArray[np.uint8]:
        """The bytes [offset, offset + nbytes) in place."""
        self.check_range(offset, nbytes, what)
        return self.u8[offset : offset + nbytes]

    def check_range(self, offset: int, nbytes: int, what: str = "access") -> None:
        """Raise MemoryFault unless [offset, offset + nbytes) lies inside."""
        if offset < 0 or offset + nbytes > self.nbytes:
            place = f"{self.name} offset {offset:#x}"
            raise MemoryFault(f"{what} of {nbytes} bytes at {place} is outside its {self.nbytes} bytes")

    def _indices(self, offsets: Array, nbytes: int, extent: int, lanes: Array | None, kind: str) -> Array:
        """Element indices of `nbytes`-wide elements after checking `extent` bytes at each offset."""
        where = offsets if offsets.dtype == np.int64 else offsets.astype(np.int64)
        if where.size:
            low = int(np.bitwise_or.reduce(where))
            # A negative offset makes the OR negative, a misaligned one leaves a low bit.
            if low < 0 or low & (extent - 1) or int(np.maximum.reduce(where)) + extent > self.nbytes:
                raise self._fault(where, extent, lanes, kind)
        return where >> _SHIFTS[nbytes]

    def _fault(self, offsets: Array, extent: int, lanes: Array | None, kind: str) -> MemoryFault:
        listed = offsets.tolist()
        misaligned = [i for i, at in enumerate(listed) if at % extent]
        outside = [i for i, at in enumerate(listed) if at < 0 or at + extent > self.nbytes]
        bad = misaligned or outside
        numbers = [i if lanes is None else int(lanes[i]) for i in bad]
        head = f"{kind} of {extent} bytes at {self.name} offset {listed[bad[0]]:#x} by {describe_lanes(numbers)}"
        if misaligned:
            return MemoryFault(f"{head} is misaligned: the offset must be a multiple of {extent}")
        return MemoryFault(f"{head} is outside its {self.nbytes} bytes")
