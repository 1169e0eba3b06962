"""What a tensor map of im2col mode has instead of a box, in the bits that the CUDA driver wrote on an H200."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_PIXELS = 1024
MIN_RANK = 3


@dataclass(frozen=True)
class Im2col:
    """The bounding box of the pixels in each spatial dimension (1 to rank - 2), from `lower` to extent - 1 + `upper`,
    and how many `pixels` one copy takes, 1..1024."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    pixels: int

    @classmethod
    def decode(cls, corners: int, count: int, rank: int) -> Im2col:
        """From words 14 and 15 of a map of `rank` dimensions. Word 14 has the lower corner in its lower half, dimension
        1 lowest, and the upper one in the upper half, in two's complement of 16, 8 or 5 bits."""
        bits = corner_bits(rank)
        sign = 1 << bits - 1

        def corner(half: int) -> tuple[int, ...]:
            raw = [corners >> 16 * half + bits * d & (1 << bits) - 1 for d in range(max(0, rank - 2))]
            return tuple((value ^ sign) - sign for value in raw)

        return cls(corner(0), corner(1), (count & 0xFFFF) + 1)

    def words(self, rank: int) -> list[int]:
        """Words 14 and 15 of the map."""
        bits, word = corner_bits(rank), 0
        for half, corner in enumerate((self.lower, self.upper)):
            for d, value in enumerate(corner):
                word |= (value & (1 << bits) - 1) << 16 * half + bits * d
        return [word, self.pixels - 1]

    def problems(self, dims: Sequence[int]) -> list[str]:
        """Why cuTensorMapEncodeIm2col would refuse it for a tensor of these extents."""
        if len(dims) < MIN_RANK:
            return [f"im2col needs rank {MIN_RANK} or more, not {len(dims)}"]
        found = []
        if not 1 <= self.pixels <= MAX_PIXELS:
            found.append(f"{self.pixels} pixels; allowed 1..{MAX_PIXELS}")
        for d, (low, high) in enumerate(zip(self.lower, self.upper, strict=True), 1):
            if low >= dims[d] + high:
                found.append(f"the bounding box of dimension {d} is empty: from {low} to {dims[d] - 1 + high}")
        return found


def corner_bits(rank: int) -> int:
    """Bits of one coordinate of a corner, and of an offset of a copy."""
    return {3: 16, 4: 8}.get(rank, 5)
