"""Tensor memory of one CTA: 128 lanes x 512 columns of 32-bit words, and its column allocator (PTX tcgen05.alloc)."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction

LANES = 128
COLUMNS = 512
POISON = 0xFFFFFFFF
LEAST_COLUMNS = 32


def split_address(address: int) -> tuple[int, int]:
    """(lane, column) of a tensor-memory address: `lane << 16 | column`."""
    return (address >> 16) & 0xFFFF, address & 0xFFFF


def join_address(lane: int, column: int) -> int:
    """The tensor-memory address of a lane and a column."""
    return lane << 16 | column


class TensorMemory:
    """`words` uint32 [128 lanes, 512 columns], every word 0xFFFFFFFF until written; `floats` is the same as float32.

    Allocation is by columns, all 128 lanes at once: a power of two from 32 to 512. A request that does not fit now
    returns None: the instruction blocks until another warp frees columns. Columns are handed out first fit at a
    multiple of their own number. `held` has a bit for every 32 columns that are allocated. With `.cta_group::2` the
    machine calls both CTAs' allocators.
    """

    def __init__(self, name: str = "tensor memory") -> None:
        self.words: NDArray[np.uint32] = np.full((LANES, COLUMNS), POISON, np.uint32)
        self.floats: NDArray[np.float32] = self.words.view(np.float32)
        self.name = name
        self.held = array("q", (0,))
        self._blocks: dict[int, int] = {}
        self._mask = 0
        self._permit = True

    @property
    def allocations(self) -> dict[int, int]:
        """First column -> number of columns of what is allocated now; empty when nothing leaked."""
        return dict(self._blocks)

    def alloc(self, columns: int) -> int | None:
        """First column of a new allocation, or None when the caller must wait.

        Raises IllegalInstruction for a size that is no power of two in 32..512, and after `relinquish`.
        """
        self._check_size(columns, "tcgen05.alloc")
        if not self._permit:
            raise IllegalInstruction(f"tcgen05.alloc of {columns} columns after tcgen05.relinquish_alloc_permit")
        for first in range(0, COLUMNS, columns):
            if not self._mask & _bits(first, columns):
                self._blocks[first] = columns
                self._set(self._mask | _bits(first, columns))
                return first
        return None

    def dealloc(self, address: int, columns: int) -> None:
        """Free the allocation that starts at `address` with exactly `columns` columns; anything else is illegal."""
        self._check_size(columns, "tcgen05.dealloc")
        lane, first = split_address(address)
        if lane or self._blocks.get(first) != columns:
            raise IllegalInstruction(
                f"tcgen05.dealloc of {columns} columns at {address:#x}: not an allocation; {self._listing()}"
            )
        del self._blocks[first]
        self._set(self._mask & ~_bits(first, columns))

    def _set(self, mask: int) -> None:
        self._mask = mask
        self.held[0] = sum(1 << k for k in range(COLUMNS // LEAST_COLUMNS) if mask >> LEAST_COLUMNS * k & 1)

    def relinquish(self) -> None:
        """Give up the right to allocate; a later `alloc` of this CTA is illegal."""
        self._permit = False

    def check_columns(self, first: int, count: int, what: str = "access") -> None:
        """Raise IllegalInstruction unless [first, first + count) is allocated."""
        if first < 0 or first + count > COLUMNS:
            raise IllegalInstruction(
                f"{what} of {self.name} columns {first}..{first + count - 1}: the last column is {COLUMNS - 1}"
            )
        if _bits(first, count) & ~self._mask:
            raise IllegalInstruction(
                f"{what} of {self.name} columns {first}..{first + count - 1}: not allocated; {self._listing()}"
            )

    def _listing(self) -> str:
        if not self._blocks:
            return "nothing is allocated"
        blocks = ", ".join(f"{first}..{first + count - 1}" for first, count in sorted(self._blocks.items()))
        return f"allocated: columns {blocks}"

    def _check_size(self, columns: int, what: str) -> None:
        if columns < LEAST_COLUMNS or columns > COLUMNS or columns & (columns - 1):
            raise IllegalInstruction(f"{what}: {columns} columns; allowed: 32, 64, 128, 256, 512")


def _bits(first: int, count: int) -> int:
    """A set of columns as an integer with one bit a column."""
    return ((1 << count) - 1) << first
