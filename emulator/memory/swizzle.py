"""The shared-memory swizzles of TMA, wgmma and tcgen05: an XOR on absolute byte offsets (PTX "Swizzling Modes")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]

# The longest pattern repeats every 8 lines of 128 bytes.
PERIOD = 1024


@dataclass(frozen=True)
class Swizzle:
    """`address ^= (((address >> 7) - base_offset) & mask) << shift`; a row of a box or atom spans `span` bytes."""

    name: str
    span: int
    mask: int
    shift: int

    def apply(self, offsets: Offsets, base_offset: int = 0) -> Offsets:
        """Swizzled byte offsets int64 of any shape; `base_offset` 0..7 shifts the row phase (matrix descriptors)."""
        if not self.mask:
            return offsets
        return offsets ^ ((((offsets >> 7) - base_offset) & self.mask) << self.shift)


NONE = Swizzle("none", 16, 0, 4)
B32 = Swizzle("32B", 32, 1, 4)
B64 = Swizzle("64B", 64, 3, 4)
B128 = Swizzle("128B", 128, 7, 4)
B128_ATOM32 = Swizzle("128B with 32B atomicity", 128, 3, 5)
B128_ATOM64 = Swizzle("128B with 64B atomicity", 128, 1, 6)


def tile_granules(offset: int, rows: int, row_bytes: int, pitch: int, swizzle: Swizzle) -> Offsets:
    """Indices of the 16-byte granules of a tile: int64 [rows, row_bytes / 16].

    The tile starts at byte `offset` (a multiple of 16), its rows are `pitch` bytes apart and hold `row_bytes` bytes
    (both multiples of 16). The XOR works on absolute offsets, so only `offset` modulo 1024 shapes the pattern.
    """
    pattern = _pattern(offset % PERIOD, rows, row_bytes, pitch, swizzle)
    return pattern + (offset // PERIOD * (PERIOD // 16))


@cache
def _pattern(phase: int, rows: int, row_bytes: int, pitch: int, swizzle: Swizzle) -> Offsets:
    plain = phase + np.arange(rows, dtype=np.int64)[:, None] * pitch + np.arange(0, row_bytes, 16, dtype=np.int64)
    return swizzle.apply(plain) >> 4
