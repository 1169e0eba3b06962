"""What rmsnorm_quantize may be: a row is one CTA's, its values stay in registers. Pure Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernels.shared.formats import CHUNK, BlockFormat

WARP = 32
MOST_THREADS = 512
MOST_TURNS = 4
MANY_ROWS = 512
"""From here on CTAs have several rows each."""
STAGES = 2
"""Rows of a CTA that are under way at once, of many, a power of two: more CTAs hide more than more rows."""
SHARED_BYTES = 224 << 10
RESIDENT_WARPS = {"bf16": 28, "f32": 20}
"""Warps that the registers of a multiprocessor hold, of many rows: up to 72 registers a thread, or 96."""
WEIGHTS = ("bf16", "f32")


@dataclass(frozen=True)
class RowConfig:
    """One compiled kernel; the number of rows and their stride are arguments.

    k       values of a row
    weight  "bf16" or "f32"
    eps     added to the mean square
    many    a CTA has many rows: they come through a ring in shared memory, and a thread has two chunks of each if there
            are so many. Else the way through a row is as short as can be
    """

    k: int
    format: BlockFormat = field(default_factory=BlockFormat)
    weight: str = "bf16"
    eps: float = 1e-6
    many: bool = False

    @property
    def chunks(self) -> int:
        """Chunks of a row."""
        return self.k // CHUNK

    @property
    def threads(self) -> int:
        """Threads of a CTA: whole warps, one chunk each if they are enough, two of many rows."""
        turns = max(-(-self.chunks // MOST_THREADS), min(1 + self.many, self.chunks // WARP))
        turns = max(turns, 1)
        return -(-self.chunks // (turns * WARP)) * WARP

    @property
    def turns(self) -> int:
        """Chunks of a thread."""
        return -(-self.chunks // self.threads)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // WARP

    @property
    def resident(self) -> int:
        """CTAs of a multiprocessor that share many rows: what its shared memory and its registers allow for."""
        by_memory = SHARED_BYTES // (2 * self.k * STAGES + 4096)
        return max(1, min(by_memory, RESIDENT_WARPS[self.weight] // self.warps))

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = self.format.problems()
        longest = MOST_THREADS * MOST_TURNS * CHUNK
        if not found and (self.k < self.format.block or self.k % self.format.block or self.k > longest):
            found.append(f"k={self.k}; allowed: multiples of {self.format.block} from {self.format.block} to {longest}")
        if self.weight not in WEIGHTS:
            found.append(f"weight={self.weight!r}; allowed: {', '.join(WEIGHTS)}")
        if not (math.isfinite(self.eps) and self.eps >= 1e-30):
            found.append(f"eps={self.eps!r}; allowed: a finite number of at least 1e-30")
        return found
