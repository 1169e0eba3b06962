"""What rope may be. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

VALUES = 8
"""Values of a thread: 16 bytes."""
THREADS = 128
WIDTHS = (16, 32, 64, 128)
MAX_HEADS = 1024
MANY_HEADS = 1 << 15
"""Heads of all tokens from which on a thread has four: it converts their angles once."""


@dataclass(frozen=True)
class RopeConfig:
    """One compiled kernel; the number of tokens, the width of a head and strides are arguments.

    heads    of a token
    width    values of a head that are rotated, its last ones
    inverse  by minus the angles
    each     heads of a thread
    """

    heads: int
    width: int = 64
    inverse: bool = False
    each: int = 1

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
        if self.each not in (1, 2, 4) or self.heads % self.each:
            found.append(f"each={self.each}; allowed: 1, 2, 4, a divisor of heads={self.heads}")
        if not isinstance(self.inverse, bool):
            found.append(f"inverse={self.inverse!r}; allowed: True, False")
        return found


def rope_config(heads: int, tokens: int, width: int, inverse: bool) -> RopeConfig:
    """The kernel for a number of tokens."""
    each = next(e for e in (4, 2, 1) if heads % e == 0) if tokens * heads >= MANY_HEADS else 1
    return RopeConfig(heads, width, inverse, each)
