"""What qk_norm_rope may be. Pure Python."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.shared.formats import CHUNK

WARP = 32
THREADS = 128
WIDTHS = (64, 128, 256, 512)
MAX_HEADS = 1023
WEIGHTS = ("bf16", "f32")


@dataclass(frozen=True)
class QkConfig:
    """One compiled kernel; the number of tokens and strides are arguments.

    heads    of the queries
    c        values of a head, and of the latent
    width    values that are rotated, the last ones
    weight   of the latent: "bf16" or "f32"
    eps      added to the mean square
    """

    heads: int
    c: int = 512
    width: int = 64
    weight: str = "bf16"
    eps: float = 1e-6

    @property
    def lanes(self) -> int:
        """Threads of a head: a power of two, at most a warp."""
        return self.c // CHUNK

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = []
        if not 1 <= self.heads <= MAX_HEADS:
            found.append(f"heads={self.heads}; allowed: 1 to {MAX_HEADS}")
        if self.c not in WIDTHS:
            found.append(f"c={self.c}; allowed: {', '.join(map(str, WIDTHS))}")
        if not 0 < self.width <= self.c or self.width % CHUNK:
            found.append(f"2 x the columns of cos = {self.width}; allowed: multiples of {CHUNK} up to c={self.c}")
        if self.weight not in WEIGHTS:
            found.append(f"weight={self.weight!r}; allowed: {', '.join(WEIGHTS)}")
        if not (math.isfinite(self.eps) and self.eps >= 1e-30):
            found.append(f"eps={self.eps!r}; allowed: a finite number of at least 1e-30")
        return found
