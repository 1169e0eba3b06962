"""Lamport clocks of the warps, and who arrived last at each barrier."""

from __future__ import annotations

from typing import Any

Warp = tuple[Any, int]
Arrival = tuple[int | str | None, int, int]
"""(lane, step, logical time) of the arrival that let others go on; nobody: (None, -1, 0)."""


class Clocks:
    """A warp's clock counts its instructions and moves on to the clock of what it waited for."""

    def __init__(self) -> None:
        self._now: dict[Warp, int] = {}
        self._free: dict[Any, int] = {}
        self._last: dict[tuple[Any, ...], Arrival] = {}

    def at(self, warp: Warp) -> int:
        """The clock of a warp."""
        return self._now.get(warp, 0)

    def tick(self, warp: Warp) -> int:
        """One instruction more; the new clock."""
        self._now[warp] = self._now.get(warp, 0) + 1
        return self._now[warp]

    def meet(self, warp: Warp, logical: int) -> int:
        """Go on no earlier than `logical`; the new clock."""
        self._now[warp] = max(self._now.get(warp, 0), logical)
        return self._now[warp]

    def queue(self, unit: Any, begin: int) -> int:
        """When a unit that works in order can start what is issued at `begin`; it takes one step."""
        start = max(begin, self._free.get(unit, 0))
        self._free[unit] = start + 1
        return start

    def arrive_at(self, barrier: tuple[Any, ...], logical: int, lane: int | str, step: int) -> None:
        """Somebody arrives at a barrier at a logical time."""
        if logical >= self._last.get(barrier, (None, -1, 0))[2]:
            self._last[barrier] = (lane, step, logical)

    def last_arrival(self, barrier: tuple[Any, ...]) -> Arrival:
        """The latest arrival at a barrier."""
        return self._last.get(barrier, (None, -1, 0))
