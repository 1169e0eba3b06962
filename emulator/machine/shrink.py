"""A short schedule that still shows something: delta debugging over its decisions (Zeller and Hildebrandt, 2002).

Decisions stand by themselves, so any part of a schedule can be tried; what is left out happens as `in_order` has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emulator.machine.schedule import Decision, Hold, Schedule

Item = tuple[int, Decision]
"""A decision of a launch."""

MOST_ROUNDS = 50
"""Rounds in which a decision is tried alone."""


@dataclass(frozen=True)
class Shrunk:
    """Schedules of the same launches with fewer decisions; `runs` were tried. `minimal`: no single decision can be left
    out, else time or runs had been used up."""

    schedules: tuple[Schedule, ...]
    runs: int
    minimal: bool

    @property
    def count(self) -> int:
        """Decisions that are left."""
        return sum(len(s.decisions) for s in self.schedules)


def shrink(
    schedules: Sequence[Schedule],
    shows: Callable[[tuple[Schedule, ...]], bool],
    *,
    runs: int = 400,
    seconds: float = 60.0,
) -> Shrunk:
    """Leave out what `shows` does not need: it runs schedules and says whether the thing still happens.

    It must happen with the given ones. Stops early after `runs` calls of `shows` or `seconds`.
    """
    search = _Search(schedules, shows, runs, seconds)
    items = [(n, d) for n, schedule in enumerate(schedules) for d in schedule.decisions]
    try:
        items = search.smallest(items)
    except _UsedUp:
        return Shrunk(search.made(search.best), search.runs, False)
    return Shrunk(search.made(items), search.runs, True)


class _UsedUp(Exception):
    """No more runs, or no more time."""


class _Search:
    def __init__(
        self,
        schedules: Sequence[Schedule],
        shows: Callable[[tuple[Schedule, ...]], bool],
        most: int,
        seconds: float,
    ) -> None:
        self.schedules = schedules
        self.shows = shows
        self.most = most
        self.until = time.monotonic() + seconds
        self.runs = 0
        self.best: list[Item] = [(n, d) for n, s in enumerate(schedules) for d in s.decisions]

    def made(self, items: Sequence[Item]) -> tuple[Schedule, ...]:
        """Schedules of these decisions."""
        parts: list[list[Decision]] = [[] for _ in self.schedules]
        for launch, decision in items:
            parts[launch].append(decision)
        return tuple(replace(s, decisions=tuple(p)) for s, p in zip(self.schedules, parts, strict=True))

    def still(self, items: list[Item]) -> bool:
        """Whether these decisions show it."""
        if self.runs >= self.most or time.monotonic() > self.until:
            raise _UsedUp
        self.runs += 1
        if not self.shows(self.made(items)):
            return False
        self.best = items
        return True

    def smallest(self, items: list[Item]) -> list[Item]:
        """No decision of the answer can be left out."""
        for kind in (True, False):
            part = [item for item in items if isinstance(item[1], Hold) is kind]
            if len(part) < len(items) and self.still(part):
                items = part
        items = self._beginning(items)
        items = self._minimal(items)
        items = self._minimal(self._simpler(items))
        return self._alone(items) if len(items) > 1 else items

    def _beginning(self, items: list[Item]) -> list[Item]:
        """A short beginning: decisions are in the order in which they were taken."""
        low, high = 0, len(items)
        while low < high:
            middle = (low + high) // 2
            if self.still(items[:middle]):
                high = middle
            else:
                low = middle + 1
        return items[:high]

    def _minimal(self, items: list[Item]) -> list[Item]:
        parts = 2
        while items:
            size = -(-len(items) // parts)
            for start in range(0, len(items), size):
                rest = items[:start] + items[start + size :]
                if self.still(rest):
                    items, parts = rest, max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(2 * parts, len(items))
        return items

    def _alone(self, items: list[Item]) -> list[Item]:
        """Several decisions may only serve to bring about the moment of one: that one alone, in an earlier round."""
        turns = [(launch, d) for launch, d in items if not isinstance(d, Hold)]
        for launch, decision in turns:
            for number in range(min(decision.round, MOST_ROUNDS), 0, -1):
                tried: list[Item] = [(launch, replace(decision, round=number))]
                if self.still(tried):
                    return tried
        return items

    def _simpler(self, items: list[Item]) -> list[Item]:
        """Operations that complete as late as they can are easier to think about than such of a certain round."""
        for n, (launch, decision) in enumerate(items):
            if isinstance(decision, Hold) and decision.until != "needed":
                tried = [*items[:n], (launch, Hold(decision.cluster, decision.warp, decision.nth)), *items[n + 1 :]]
                if self.still(tried):
                    items = tried
        return items
