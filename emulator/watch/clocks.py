"""What an observer knows to have happened: vector clocks over the agents of a cluster.

An agent is whatever acts in an order of its own: a warp, its copies in flight, the pipe of its tensor-core operations,
an mbarrier whose phases complete. Its acts carry numbers that only grow (epochs); to know an agent up to an epoch is
to be ordered after everything it did until then.

The lanes of a warp are one agent. That is exact as long as they meet (`__syncwarp`, a shuffle, a barrier) between what
they tell each other; where they have not met, knowledge differs from lane to lane and is kept lane by lane
(`Knowledge.partial`), which is rare.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

ORDER, ASYNC, BEFORE, AFTER = range(4)
"""Rows of a clock: what is ordered before the observer; of that, which writes of the generic proxy a fence has shown to
the async proxy; what stood before a `tcgen05.fence::before_thread_sync` of its thread (or a commit); what stands before
a `tcgen05.fence::after_thread_sync` of the observer."""

SENT = 3
"""Rows that a message carries: an `after_thread_sync` holds for the thread that executed it."""

ALL = 0xFFFFFFFF
_LANE = np.arange(32)


def lanes_of(word: int) -> NDArray[np.bool_]:
    """The lanes of a word as bool[32]."""
    return (word >> _LANE & 1).astype(np.bool_)


class Knowledge:
    """A clock. `rows` int64 [4, agents]; `partial` (row, agent) -> epochs by lane, int64 [32], where these differ;
    `others` cluster -> what is known about the agents of another cluster."""

    __slots__ = ("rows", "partial", "others")

    def __init__(self, size: int) -> None:
        self.rows: I64 = np.zeros((4, size), np.int64)
        self.partial: dict[tuple[int, int], I64] = {}
        self.others: dict[int, Knowledge] = {}

    def copy(self) -> Knowledge:
        """An independent clock with the same contents."""
        twin = Knowledge.__new__(Knowledge)
        twin.rows = self.rows.copy()
        twin.partial = {k: v.copy() for k, v in self.partial.items()} if self.partial else {}
        twin.others = dict(self.others) if self.others else {}
        return twin

    def fit(self, size: int) -> None:
        """Make room for `size` agents."""
        have = self.rows.shape[1]
        if have < size:
            self.rows = np.concatenate([self.rows, np.zeros((4, size - have), np.int64)], axis=1)

    def learn(self, agent: int, epoch: int, row: int = ORDER) -> None:
        """Know an agent up to an epoch."""
        if self.rows[row, agent] < epoch:
            self.rows[row, agent] = epoch

    def learn_lanes(self, agent: int, epoch: int, lanes: NDArray[np.bool_], row: int = ORDER) -> None:
        """Know some lanes of an agent up to an epoch."""
        base = self.partial.get((row, agent))
        known = np.full(32, self.rows[row, agent]) if base is None else base
        known[lanes] = np.maximum(known[lanes], epoch)
        self._keep((row, agent), known)

    def _keep(self, key: tuple[int, int], known: I64) -> None:
        self.rows[key] = max(self.rows[key], known.min())
        if (known > self.rows[key]).any():
            self.partial[key] = known
        else:
            self.partial.pop(key, None)

    def join(self, other: Knowledge, rows: int = SENT) -> None:
        """Learn all that another clock knows."""
        size = other.rows.shape[1]
        self.fit(size)
        mine = self.rows[:rows, :size]
        np.maximum(mine, other.rows[:rows], out=mine)
        for key, lanes in other.partial.items():
            if key[0] < rows:
                base = self.partial.get(key)
                known = np.maximum(lanes, self.rows[key] if base is None else base)
                self._keep(key, known)
        for cluster, theirs in other.others.items():
            self.learn_cluster(cluster, theirs)

    def learn_cluster(self, cluster: int, theirs: Knowledge) -> None:
        """Learn about the agents of another cluster. What is kept is never changed in place: clocks share it."""
        known = self.others.get(cluster)
        if known is theirs:
            return
        twin = theirs.copy()
        twin.others = {}
        if known is not None:
            twin.join(known, 4)
        self.others[cluster] = twin

    def mark(self, row: int) -> None:
        """What is known in order counts in `row` too."""
        np.maximum(self.rows[row], self.rows[ORDER], out=self.rows[row])
        for (r, agent), lanes in list(self.partial.items()):
            if r == ORDER:
                base = self.partial.get((row, agent))
                self._keep((row, agent), np.maximum(lanes, self.rows[row, agent] if base is None else base))
        for cluster, theirs in self.others.items():
            marked = theirs.copy()
            marked.mark(row)
            self.others[cluster] = marked

    def known_lane(self, row: int, agent: int, lane: int) -> int:
        """Up to which epoch one lane of an agent is known; any other lane code: all lanes."""
        base = int(self.rows[row, agent])
        part = self.partial.get((row, agent))
        return base if part is None or lane >= 32 else max(base, int(part[lane]))


class Group:
    """Lanes of a warp that know the same."""

    __slots__ = ("lanes", "know")

    def __init__(self, lanes: int, know: Knowledge) -> None:
        self.lanes = lanes
        self.know = know


class Unit:
    """What a warp has in flight under one agent: operations are numbered as issued, `waited` of them are known to have
    completed to the lanes that waited. `owners`: lanes that have issued any; `unsettled`: since the lanes of the warp
    last met. `groups`: last number of each committed group. `times`: the warp's epoch at each issue.
    `last`: static instruction of the youngest, where somebody asks for it."""

    __slots__ = ("agent", "issued", "waited", "owners", "unsettled", "groups", "times", "last")

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.issued = 0
        self.waited = 0
        self.owners = 0
        self.unsettled = 0
        self.groups: list[int] = []
        self.times: list[int] = [0]
        self.last = -1

    def issue(self, word: int, time: int) -> int:
        """Number the next operation."""
        self.issued += 1
        self.owners |= word
        self.unsettled |= word
        self.times.append(time)
        return self.issued

    def commit(self) -> None:
        """Close the open group."""
        self.groups.append(self.issued)

    def wait(self, allowed: int) -> None:
        """All but the `allowed` youngest groups have completed."""
        if len(self.groups) > allowed:
            self.waited = max(self.waited, self.groups[-1 - allowed])
            del self.groups[: len(self.groups) - allowed]


class WarpClock:
    """The clocks of the lanes of a warp. `time` is the epoch of what the warp does now; `unsettled` are the lanes that
    have accessed memory since all lanes last met; `fresh` tells whether any has since the last step of time."""

    def __init__(self, agent: int, lanes: int, size: int) -> None:
        self.agent = agent
        self.lanes = lanes
        self.time = 1
        self.unsettled = 0
        self.fresh = False
        self.groups = [Group(ALL, Knowledge(size))]
        self.units: dict[str, Unit] = {}
        self.fenced: Knowledge | None = None
        self.heard: Knowledge | None = None

    # ---------------------------------------------------------------- groups of lanes
    def parts(self, word: int) -> Iterator[Group]:
        """The groups that have lanes of `word`."""
        for group in self.groups:
            if group.lanes & word:
                yield group

    def split(self, word: int) -> list[Group]:
        """Groups with lanes of `word` only, made so if need be."""
        for group in list(self.groups):
            inside = group.lanes & word
            if inside and inside != group.lanes and group.lanes & ~word & self.lanes:
                group.lanes &= ~word
                self.groups.append(Group(inside, group.know.copy()))
        return [g for g in self.groups if g.lanes & word]

    def access(self, word: int) -> None:
        """Lanes access memory now."""
        self.unsettled |= word
        self.fresh = True

    def tick(self) -> None:
        """What follows is later than what has been told."""
        if self.fresh:
            self.time += 1
            self.fresh = False

    # ---------------------------------------------------------------- edges
    def release(self, word: int) -> Knowledge:
        """A clock of everything that the lanes of `word` have done and know. Later acts are not in it."""
        parts = list(self.parts(word))
        know = parts[0].know.copy()
        for other in parts[1:]:
            know.join(other.know, 4)
        self._own(know, word, ORDER)
        self.tick()
        return know

    def _own(self, know: Knowledge, word: int, row: int) -> None:
        """Add the lanes' own acts, and the completed operations that they have waited for."""
        self._lanes_know(know, self.agent, self.time if self.fresh else self.time - 1, self.unsettled & ~word, row)
        for unit in self.units.values():
            if unit.waited:
                self._lanes_know(know, unit.agent, unit.waited, unit.unsettled & ~word, row)

    @staticmethod
    def _lanes_know(know: Knowledge, agent: int, epoch: int, missing: int, row: int) -> None:
        if not missing:
            know.learn(agent, epoch, row)
        else:
            know.learn_lanes(agent, epoch, ~lanes_of(missing), row)

    def acquire(self, word: int, told: Knowledge) -> None:
        """The lanes of `word` learn what a message says."""
        for group in self.split(word):
            group.know.join(told)

    def meet(self, word: int, everybody: bool) -> None:
        """The lanes of `word` meet: each knows what all of them have done. `everybody`: no live lane is missing."""
        if everybody or word & self.lanes == self.lanes:
            know = self.groups[0].know
            for other in self.groups[1:]:
                know.join(other.know, 4)
            self.unsettled = 0
            for unit in self.units.values():
                unit.unsettled = 0
            self._own(know, ALL, ORDER)
            self.groups = [Group(ALL, know)]
            self.tick()
            return
        together = self.release(word)
        parts = self.split(word)
        self.groups = [g for g in self.groups if g not in parts]
        self.groups.append(Group(sum(g.lanes for g in parts), together))

    # ---------------------------------------------------------------- fences
    def fence(self, word: int, row: int) -> None:
        """All that the lanes have done and know counts in `row` from now on."""
        for group in self.split(word):
            know = group.know
            know.mark(row)
            self._own(know, word, row)
        self.tick()

    def publish(self, word: int) -> None:
        """A memory fence: what stands before it is released by later relaxed writes, and what relaxed reads have heard
        counts from now on."""
        if self.heard is not None:
            self.acquire(word, self.heard)
            self.heard = None
        know = self.release(word)
        self.fenced = know

    def hear(self, told: Knowledge) -> None:
        """A relaxed read has seen a write; it orders nothing before the next fence."""
        if self.heard is None:
            self.heard = told.copy()
        else:
            self.heard.join(told)
