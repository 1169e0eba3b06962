"""What swiglu_quantize may be: the settings of every chunk pass, and the limit of gate and up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.shared.chunk_config import ChunkConfig, threads_for

__all__ = ["SwigluConfig", "threads_for"]

ORDINARY_LIMIT = 80.0
"""e^-80 is a normal fp32 number."""


@dataclass(frozen=True)
class SwigluConfig(ChunkConfig):
    """limit: gate is clamped to it from above, up from both sides; None: neither is."""

    limit: float | None = 10.0

    @property
    def words(self) -> int:
        """Those of gate and of up."""
        return 2 * super().words

    @property
    def ordinary(self) -> bool:
        """Whether limits keep the exponential from underflow and products from overflow."""
        return self.limit is not None and self.limit <= ORDINARY_LIMIT

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = super().problems()
        if self.limit is not None and not (math.isfinite(self.limit) and self.limit > 0):
            found.append(f"limit={self.limit!r}; allowed: a finite number above 0, or None")
        return found
