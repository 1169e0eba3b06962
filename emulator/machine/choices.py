"""Who runs next, for how long, and when an operation in flight completes: the policies, one object a cluster.

`in_order` completes operations at issue and lets warps run by index until they block. `latest` completes an operation
only when no warp can step. `random` draws everything: the order of warps in a round, how many blocks each may run or
whether it rests for some rounds, and when operations complete. `replay` does what a schedule says. Decisions are named
by what the kernel does (the n-th operation of a warp, the n-th round), so both engines take the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random as Generator
from typing import Any

from emulator.machine.cta import Coordinates
from emulator.machine.operation import Operation
from emulator.machine.schedule import Decision, First, Hold, Schedule, Slice

SLICE = 2000
"""Blocks that a warp may run before the next one gets its turn."""

Turn = tuple[int, int]
"""A warp of the cluster, and how many blocks it may run; 0: it rests."""

_LONGEST_REST = 8
_SHORT_SLICES = 7
_SLOW = 0.5
"""Of the warps of a cluster: only these are stopped, so that the others get far ahead of them."""
_STOPPED = 0.5
"""Of the turns of a slow warp; half of these are rests, half are slices of 1, 2, 4, … blocks."""
_AT_ONCE = (0.0, 0.25, 0.75)
_DRIFT = (0.5, 0.9)
"""Of operations that complete at issue, and of rounds at whose beginning one completes; a cluster draws one of each, so
that some see copies that are nearly always late and others copies that are nearly always early."""


class InOrder:
    """Nothing is decided."""

    def __init__(self) -> None:
        self.round = 0
        self._turns: list[Turn] = []

    def held(self, operation: Operation) -> bool:
        """Whether an operation that is issued now stays in flight."""
        return False

    def due(self, queue: list[Operation]) -> Operation | None:
        """A round begins: an operation that completes now. Asked again until the answer is None."""
        return None

    def forced(self, queue: list[Operation], useful: list[Operation]) -> Operation:
        """No warp can step: the operation that completes. `useful` signal a barrier that somebody waits for."""
        return (useful or queue)[0]

    def begin(self) -> None:
        """A round begins."""

    def turns(self, warps: Sequence[Any], quiet: bool) -> Sequence[Turn]:
        """The turns of a round. quiet: nothing changed in the last one, so every warp must get the chance to step."""
        if len(self._turns) != len(warps):
            self._turns = [(n, SLICE) for n in range(len(warps))]
        return self._turns


class Latest(InOrder):
    """Holds everything back; `decisions` is where all clusters of the launch note theirs."""

    def __init__(self, cluster: Coordinates, decisions: list[Decision]) -> None:
        super().__init__()
        self.cluster = cluster
        self.decisions = decisions
        self._at: dict[tuple[int, int], int] = {}
        self._forced = 0

    def begin(self) -> None:
        """A round begins."""
        self.round += 1

    def held(self, operation: Operation) -> bool:
        """It is, until somebody needs it."""
        self._at[operation.key] = len(self.decisions)
        self.decisions.append(Hold(self.cluster, *operation.key))
        return True

    def forced(self, queue: list[Operation], useful: list[Operation]) -> Operation:
        """The oldest that helps somebody."""
        return self._chosen(self._pick(useful or queue))

    def _pick(self, operations: list[Operation]) -> Operation:
        return operations[0]

    def _chosen(self, operation: Operation) -> Operation:
        self._forced += 1
        return self._until(operation, "stuck", self._forced)

    def _until(self, operation: Operation, until: Any, at: int) -> Operation:
        place = self._at.pop(operation.key)
        held = self.decisions[place]
        assert isinstance(held, Hold)
        self.decisions[place] = replace(held, until=until, at=at)
        return operation


class Random(Latest):
    """Draws from a seed; the cluster's number makes clusters differ."""

    def __init__(self, cluster: Coordinates, decisions: list[Decision], seed: int, number: int) -> None:
        super().__init__(cluster, decisions)
        self._draw = Generator(f"{seed}/{number}")
        self._at_once = self._draw.choice(_AT_ONCE)
        self._drift = self._draw.choice(_DRIFT)
        self._slow: dict[int, bool] = {}
        self._rests: dict[int, int] = {}
        self._asked = 0

    def held(self, operation: Operation) -> bool:
        """Mostly."""
        return self._draw.random() >= self._at_once and super().held(operation)

    def due(self, queue: list[Operation]) -> Operation | None:
        """Some operation, in some rounds; at most one in a round."""
        if self._asked == self.round or not queue:
            return None
        self._asked = self.round
        if self._draw.random() >= self._drift:
            return None
        return self._until(self._pick(queue), "round", self.round)

    def _pick(self, operations: list[Operation]) -> Operation:
        return self._draw.choice(operations)

    def turns(self, warps: Sequence[Any], quiet: bool) -> Sequence[Turn]:
        """The warps that have not ended in some order, some of them only for a short time or not at all."""
        order = [n for n, warp in enumerate(warps) if not warp.done]
        self._draw.shuffle(order)
        settled = len(order)
        while settled and order[settled - 1 :] == sorted(order[settled - 1 :]):
            settled -= 1
        self.decisions += [First(self.cluster, self.round, n) for n in order[:settled]]
        if quiet:
            return [(n, SLICE) for n in order]
        turns = [(n, self._blocks(n)) for n in order]
        self.decisions += [Slice(self.cluster, self.round, n, blocks) for n, blocks in turns if blocks != SLICE]
        return turns

    def _blocks(self, warp: int) -> int:
        left = self._rests.get(warp, 0)
        if left:
            self._rests[warp] = left - 1
            return 0
        if warp not in self._slow:
            self._slow[warp] = self._draw.random() < _SLOW
        if not self._slow[warp] or self._draw.random() >= _STOPPED:
            return SLICE
        # Who is stopped shows most when others can do much before it goes on.
        self._rests[warp] = self._draw.randrange(_LONGEST_REST)
        return 0 if self._draw.random() < 0.5 else 1 << self._draw.randrange(_SHORT_SLICES)


class Replay(InOrder):
    """What a schedule says about this cluster; `in_order` where it says nothing."""

    def __init__(self, cluster: Coordinates, schedule: Schedule) -> None:
        super().__init__()
        self._holds: dict[tuple[int, int], Hold] = {}
        self._firsts: dict[int, list[int]] = {}
        self._slices: dict[int, dict[int, int]] = {}
        for decision in schedule.decisions:
            if decision.cluster != cluster:
                continue
            if isinstance(decision, Hold):
                self._holds[decision.warp, decision.nth] = decision
            elif isinstance(decision, First):
                self._firsts.setdefault(decision.round, []).append(decision.warp)
            else:
                self._slices.setdefault(decision.round, {})[decision.warp] = decision.blocks

    def begin(self) -> None:
        """A round begins."""
        self.round += 1

    def held(self, operation: Operation) -> bool:
        """If the schedule says so."""
        return operation.key in self._holds

    def due(self, queue: list[Operation]) -> Operation | None:
        """The next operation whose round has come."""
        for operation in queue:
            hold = self._holds.get(operation.key)
            if hold is not None and hold.until == "round" and hold.at <= self.round:
                return operation
        return None

    def forced(self, queue: list[Operation], useful: list[Operation]) -> Operation:
        """The one whose turn it is among those that the schedule leaves until nobody can step."""
        operations = useful or queue
        ranked = [o for o in operations if self._holds[o.key].until == "stuck"]
        return min(ranked, key=lambda o: self._holds[o.key].at) if ranked else operations[0]

    def turns(self, warps: Sequence[Any], quiet: bool) -> Sequence[Turn]:
        """Who is named first runs first; slices as given, unless nothing happened in the last round."""
        firsts = self._firsts.get(self.round)
        slices = None if quiet else self._slices.get(self.round)
        if firsts is None and slices is None:
            return super().turns(warps, quiet)
        order = dict.fromkeys([*(n for n in firsts or () if n < len(warps)), *range(len(warps))])
        return [(n, (slices or {}).get(n, SLICE)) for n in order]


def choices(policy: str, cluster: Coordinates, number: int, seed: int, schedule: Schedule | None,
            decisions: list[Decision]) -> InOrder:  # fmt: skip
    """The policy of one cluster. Its decisions are added to `decisions`."""
    if policy == "random":
        return Random(cluster, decisions, seed, number)
    if policy == "latest":
        return Latest(cluster, decisions)
    if policy == "replay" and schedule is not None:
        return Replay(cluster, schedule)
    return InOrder()
