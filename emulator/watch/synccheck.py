"""synccheck: how barriers and collectives are used. What the machine refuses outright (a barrier that was never
initialised, too many arrivals, a deadlock) comes in through `failed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.events import ClusterEnd, LaunchBegin, LaunchEnd, Synchronise, WarpId
from emulator.watch.agents import Barrier
from emulator.watch.faults import Translator
from emulator.watch.finding import Finding
from emulator.watch.naming import role
from emulator.watch.order import RECORDS, Order
from emulator.watch.report import Findings, lanes_text, shared_text, where

KEPT_GENERATIONS = 8


class Synccheck(Translator):
    """The listener. One per backend: it may see any number of launches, one after another."""

    tool = "synccheck"
    records = RECORDS

    def __init__(self) -> None:
        super().__init__()
        self._launch: _Launch | None = None

    def __call__(self, record: Any) -> None:
        """Take one record."""
        kind = type(record)
        if kind is LaunchBegin:
            self._launch = _Launch(record, self._found)
        elif self._launch is not None:
            self._launch.take(record)
            if kind is LaunchEnd:
                self._launch = None


class _Launch:
    """One launch."""

    def __init__(self, begin: LaunchBegin, found: Findings) -> None:
        self.begin = begin
        self.found = found
        self.order = Order.of(begin)
        self.barriers: dict[tuple[int, int, int], tuple[WarpId, int]] = {}
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.arrived: dict[tuple[int, int, int, int], list[Synchronise]] = {}
        self.sets: dict[tuple[int, int, int], dict[int, Synchronise]] = {}
        self.waits: dict[int, int] = {}
        self._steps: dict[str, Callable[[Synchronise], None]] = {
            "mbarrier.init": self._init,
            "mbarrier.inval": self._inval,
            "warp.sync": self._meeting,
            "bar.arrive": self._named,
            "barrier.cluster.arrive.release": self._cluster_arrive,
            "barrier.cluster.arrive.relaxed": self._cluster_arrive,
            "barrier.cluster.wait": self._cluster_wait,
        }

    def take(self, record: Any) -> None:
        """Any record; the order of events first, as a step may depend on what is known before it."""
        self.order.take(record)
        if type(record) is Synchronise:
            step = self._steps.get(record.what)
            if step is not None:
                step(record)
            elif self.order.first is not None:
                self._first_use(record, *self.order.first)
        elif type(record) is ClusterEnd:
            self._ended(record)

    def _report(
        self, kind: str, who: WarpId, at: int, memory: str, missing: str, other: tuple[WarpId, int] | None = None
    ) -> None:
        here = where(self.begin, who, at)
        there = where(self.begin, *other) if other is not None else None
        roles = role(here), role(there) if there else ""
        key = (kind, at, other[1] if other else -1)
        self.found.add(key, Finding("synccheck", kind, here, memory, missing, there, *roles))

    def _name(self, key: tuple[int, int]) -> str:
        return "mbarrier at " + shared_text(self.begin, *key)

    # ---------------------------------------------------------------- mbarriers
    def _init(self, record: Synchronise) -> None:
        warp = self.order.warp(record.who)
        key = (warp.cluster.number, *record.key)
        known = self.barriers.get(key)
        # All lanes of a warp that execute one init make one barrier.
        if known is not None and known != (record.who, record.at):
            self._report(
                "mbarrier initialised again",
                record.who,
                record.at,
                self._name(record.key),
                "there is a barrier already: mbarrier.inval is missing before another mbarrier.init",
                known,
            )
        self.barriers[key] = (record.who, record.at)
        self.numbers[warp.cluster.origin] = warp.cluster.number

    def _inval(self, record: Synchronise) -> None:
        warp = self.order.warp(record.who)
        self.barriers.pop((warp.cluster.number, *record.key), None)

    def _first_use(self, record: Synchronise, barrier: Barrier, ordered: bool) -> None:
        maker = barrier.maker
        if maker is None:
            return
        by_copy, at = record.operation >= 0 and record.what == "mbarrier.complete_tx", record.at
        if record.operation >= 0:
            operation = self.order.operations.get(record.operation)
            at = barrier.made_at if operation is None else operation.at
        other = (maker.id, barrier.made_at)
        if not ordered:
            missing = (
                f"nothing orders mbarrier.init by warp {maker.id.warp} before this use: a barrier is missing between"
            )
            self._report("mbarrier used before its init", record.who, at, self._name(record.key), missing, other)
        elif not barrier.fenced and (by_copy or record.who.rank != maker.id.rank):
            seen = "the async proxy" if by_copy else "another CTA"
            missing = f"fence.mbarrier_init is missing between mbarrier.init and the barrier: {seen} need not see it"
            self._report("mbarrier.init without fence", record.who, at, self._name(record.key), missing, other)

    def _ended(self, record: ClusterEnd) -> None:
        """Bytes that have come and that nobody expected. A phase that still expects some is pending, which is fine if
        nobody waits for it: pipelines arm their last stages for nothing."""
        for cta in record.ctas:
            for offset, state in cta.mbarriers.items():
                made = self.barriers.get((self.numbers.get(record.cluster, -1), cta.rank, offset))
                if state.tx > 0 and made is not None:
                    more = f"{state.tx} bytes more than expected"
                    missing = f"the CTA ends with {more} in a phase: expect_tx must equal the bytes of the copies"
                    self._report("byte count left over", *made, self._name((cta.rank, offset)), missing)
        for warp in (warp for cta in record.ctas for warp in cta.warps):
            self.waits.pop(id(warp.id), None)
        gone = self.numbers.pop(record.cluster, -1)
        tables: tuple[dict[Any, Any], ...] = (self.barriers, self.arrived, self.sets)
        for table in tables:
            for key in [k for k in table if k[0] == gone]:
                del table[key]

    # ---------------------------------------------------------------- collectives
    def _meeting(self, record: Synchronise) -> None:
        members = record.detail[0]
        exist = self.order.warp(record.who).clock.lanes
        missing, strangers = members & exist & ~record.lanes, record.lanes & ~members
        if missing:
            self._report(
                "missing lanes",
                record.who,
                record.at,
                f"{lanes_text(missing)} of warp {record.who.warp}",
                "the member mask names lanes that do not come: they have ended, or take another path",
            )
        elif strangers:
            self._report(
                "lane outside its mask",
                record.who,
                record.at,
                f"{lanes_text(strangers)} of warp {record.who.warp}",
                "the lanes that execute a collective must be in their own member mask",
            )

    # ---------------------------------------------------------------- named barriers
    def _named(self, record: Synchronise) -> None:
        warp = self.order.warp(record.who)
        threads, generation = record.detail
        key = (warp.cluster.number, *record.key, generation)
        before = self.arrived.setdefault(key, [])
        name = f"barrier {record.key[1]} of CTA {record.who.cta}"
        for other in before:
            if other.who is not record.who:
                continue
            if other.lanes & record.lanes and self._only_arrives(record) and self._only_arrives(other):
                missing = "the same threads arrive twice in one phase: the others that it counts on are missing"
                self._report("arrives twice", record.who, record.at, name, missing, (other.who, other.at))
            elif not other.lanes & record.lanes and self._aligned(record.at):
                missing = "the lanes of the warp arrive separately at an aligned barrier: they must arrive together"
                self._report("diverged at a barrier", record.who, record.at, name, missing, (other.who, other.at))
        before.append(record)
        self.arrived.pop((*key[:3], generation - KEPT_GENERATIONS), None)
        if sum(r.lanes.bit_count() for r in before) >= threads:
            self._complete(key[:3], before, name)

    def _only_arrives(self, record: Synchronise) -> bool:
        """Not a wait: a warp may open a barrier for itself with an arrive before it waits there."""
        return ".arrive" in self.order.code.instructions[record.at].opcode

    def _aligned(self, at: int) -> bool:
        opcode = self.order.code.instructions[at].opcode
        return opcode.startswith("bar.") or ".aligned" in opcode

    def _complete(self, barrier: tuple[int, int, int], arrivals: list[Synchronise], name: str) -> None:
        """A phase is complete: two sets of warps that use the same barrier at once show as a warp that meets now these,
        now those."""
        now = frozenset(r.who.warp for r in arrivals)
        seen = self.sets.setdefault(barrier, {})
        for word, other in list(seen.items()):
            met = frozenset(w for w in range(64) if word >> w & 1)
            if met & now and met != now and len(met) == len(now) and self._same_instruction(other, arrivals):
                missing = (
                    f"warps {sorted(now)} meet here, and warps {sorted(met)} before: two sets of warps use one barrier "
                    "at once, each needs a number of its own"
                )
                last = arrivals[-1]
                self._report("barrier shared by two sets", last.who, last.at, name, missing, (other.who, other.at))
        seen[sum(1 << w for w in now)] = arrivals[-1]

    @staticmethod
    def _same_instruction(other: Synchronise, arrivals: list[Synchronise]) -> bool:
        return any(r.at == other.at for r in arrivals)

    # ---------------------------------------------------------------- cluster barrier
    def _cluster_arrive(self, record: Synchronise) -> None:
        number, done = record.detail[0], self.waits.get(id(record.who), 0)
        if number > done + 1:
            missing = (
                f"arrival {number} with {done} wait(s) before it: barrier.cluster.wait is missing between two arrivals"
            )
            self._report("cluster barrier arrives twice", record.who, record.at, "the cluster barrier", missing)

    def _cluster_wait(self, record: Synchronise) -> None:
        self.waits[id(record.who)] = record.detail[0]
