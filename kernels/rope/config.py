"""What rope may be. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

VALUES = 8
"""Values of a thread: 16 bytes."""
THREADS = 128
WIDTHS = (16, 32, 64, 128)
MAX_HEADS = 1024


@dataclass(frozen=True)
class RopeConfig:
    """One compiled kernel; the number of tokens, the width of a head and strides are arguments.

    heads    of a token
    width    values of a head that are rotated, its last ones
    inverse  by minus the angles
    """

    heads: int
    width: int = 64
    inverse: bool = False

    @property
    def lanes(self) -> int:
        """Threads of a head."""
        return self.width // VALUES

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = []
        if not 1 <= self.heads <= MAX_HEADS:
            found.append(f"heads={self.heads}; allowed: 1 to {MAX_HEADS}")
        if self.width not in WIDTHS:
            found.append(f"2 x the columns of cos = {self.width}; allowed: {', '.join(map(str, WIDTHS))}")
        if not isinstance(self.inverse, bool):
            found.append(f"inverse={self.inverse!r}; allowed: True, False")
        return found
