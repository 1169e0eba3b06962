"""Who acts in a cluster: warps, operations, mbarriers; what they do is a touch of memory with a clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from emulator.events import Access, WarpId
from emulator.watch.clocks import Knowledge, Unit, WarpClock
from emulator.watch.sites import Code, Sites

WHOLE = 33
"""Lane code of an access by a warp as a whole, which is in order with all its lanes."""

FIRST_SIZE = 64
"""Agents that a cluster begins with room for."""


@dataclass(eq=False)
class Agent:
    """Who acts: `kind` is warp, barrier, pipe, copy, read, write, wgmma, load or store; `owner` its warp, or None;
    `key` the (rank, offset) of a barrier."""

    kind: str
    owner: WarpState | None
    key: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class Operation:
    """An asynchronous operation in flight. `know` is the clock at issue, `unit` what numbers it (`epoch`)."""

    who: WarpState
    at: int
    lanes: int
    what: str
    know: Knowledge
    unit: Unit | None
    epoch: int
    waiting: list[Access] = field(default_factory=list)


@dataclass(eq=False)
class Touch:
    """One access and whoever makes it: `agent` acts at `epoch`, from static instruction `at`, knowing `know`. `lanes`
    gives the lane of each address (None: as in the record)."""

    access: Access
    who: WarpState
    agent: int
    epoch: int
    at: int
    know: Knowledge
    lanes: np.ndarray | int
    picked: np.ndarray | None = None
    operation: str = ""


class Barrier:
    """An mbarrier: what has been released to the phase at hand, and what waiters of the last completed one learn.
    `visits`: agent -> (epoch, warp, static instruction) of its last step on this barrier from another CTA. `maker`: the
    warp that initialised it in epoch `made` at instruction `made_at`, by `lanes`; `fenced`: and then executed a fence.
    `met`: who has used it, by identity."""

    def __init__(self, agent: int, size: int) -> None:
        self.agent = agent
        self.maker: WarpState | None = None
        self.made = self.made_at = 0
        self.lanes = 0
        self.fenced = False
        self.met: set[int] = set()
        self.gathered = Knowledge(size)
        self.visits: dict[int, tuple[int, WarpState, int]] = {}
        self.done: Knowledge | None = None

    def end(self, phase: int) -> None:
        """The phase of that number has completed."""
        self.gathered.fit(self.agent + 1)
        self.done = self.gathered.copy()
        self.done.rows[:, self.agent] = phase + 1


class WarpState:
    """A warp that has been seen: `number` of its cluster, its clock, and the pipe of each lane that issues tensor-core
    operations."""

    def __init__(self, cluster: ClusterState, who: WarpId, lanes: int) -> None:
        self.cluster = cluster
        self.id = who
        self.clock = WarpClock(cluster.agent("warp", self), lanes, cluster.size)
        self.pipes: dict[int, Unit] = {}
        self.makes: list[Barrier] = []

    def unit(self, kind: str) -> Unit:
        """The numbered operations of a kind."""
        found = self.clock.units.get(kind)
        if found is None:
            found = self.clock.units[kind] = Unit(self.cluster.agent(kind, self))
        return found

    def pipe(self, lanes: int) -> Unit:
        """The tensor-core pipe of the lane that issues."""
        if lanes not in self.pipes:
            self.pipes[lanes] = Unit(self.cluster.agent("pipe", self))
        return self.pipes[lanes]


class ClusterState:
    """What a cluster's warps share: agents, mbarriers, named barriers, the phases of the cluster barrier."""

    def __init__(self, number: int, origin: tuple[int, int, int], code: Code) -> None:
        self.number = number
        self.sites = Sites(code)
        self.origin = origin
        self.agents: list[Agent] = []
        self.size = FIRST_SIZE
        self.warps: dict[int, WarpState] = {}
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.named: dict[tuple[int, int, int], Knowledge] = {}
        self.phases: dict[int, Knowledge] = {}

    def agent(self, kind: str, owner: WarpState | None, key: tuple[int, int] = (0, 0)) -> int:
        """Number a new agent."""
        self.agents.append(Agent(kind, owner, key))
        if len(self.agents) > self.size:
            self.size *= 2
            for warp in self.warps.values():
                for group in warp.clock.groups:
                    group.know.fit(self.size)
        return len(self.agents) - 1
