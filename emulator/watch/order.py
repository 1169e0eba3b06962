"""Happens-before of a launch: turns records into accesses with the clock of whoever makes them.

`Order.take` reads one record and answers with the accesses that it makes certain. Checkers that look at the same launch
share one `Order` (`Order.of`), and a record is read once however many ask. Edges (PTX ISA 8.8 to 8.10, 9.7.13.15,
9.7.16.6): program order, lanes that meet, named barriers, mbarrier arrivals and waits, the cluster barrier, commit
groups, tcgen05.commit, tcgen05.wait, and the memory fences with strong reads and writes. Where PTX leaves room, an edge
is assumed: what is reported is not ordered by any reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from emulator.events import (
    Access,
    AsyncBegin,
    AsyncEnd,
    ClusterEnd,
    LaunchBegin,
    LaunchEnd,
    Synchronise,
    TensorAllocation,
    WarpId,
)
from emulator.watch.agents import WHOLE, Barrier, ClusterState, Operation, Touch, WarpState
from emulator.watch.clocks import AFTER, ALL, ASYNC, BEFORE, ORDER, Knowledge, Unit
from emulator.watch.flags import Flags
from emulator.watch.sites import Code, Sites

RECORDS = (Access, AsyncBegin, AsyncEnd, ClusterEnd, LaunchBegin, LaunchEnd, Synchronise, TensorAllocation)
"""What an `Order` has to read; listeners that use one subscribe to these."""

_INIT_FENCES = ("fence.mbarrier_init", "fence.proxy.async", "fence.acq_rel", "fence.sc", "fence.release", "membar.")
"""Fences that make an mbarrier.init visible to other CTAs and to the async proxy."""


class Order:
    """The state of one launch."""

    _known: WeakKeyDictionary[Any, Order] = WeakKeyDictionary()

    @classmethod
    def of(cls, begin: LaunchBegin) -> Order:
        """The `Order` that belongs to a launch, the same for everybody who asks."""
        if begin.state is None:
            return cls(begin)
        found = cls._known.get(begin.state)
        if found is None:
            found = cls._known[begin.state] = cls(begin)
        return found

    def __init__(self, begin: LaunchBegin) -> None:
        self.begin = begin
        self.code = Code(begin.state)
        self.sites = Sites(self.code)
        self.clusters: dict[tuple[int, int, int], ClusterState] = {}
        self._warps: dict[int, WarpState] = {}
        self.operations: dict[int, Operation] = {}
        self.flags = Flags()
        self.started = 0
        self.first: tuple[Barrier, bool] | None = None
        self._last: Any = None
        self._touches: tuple[Touch, ...] = ()
        self._handlers: dict[type, Callable[[Any], tuple[Touch, ...]]] = {
            Access: self._access,
            AsyncBegin: self._begin,
            AsyncEnd: self._end,
            Synchronise: self._synchronise,
            ClusterEnd: self._cluster_end,
        }

    def take(self, record: Any) -> tuple[Touch, ...]:
        """Read a record; what it makes certain to have been touched, and by whom. `first` is then the mbarrier that
        somebody uses for the first time, and whether its init was ordered before that; else None."""
        if record is not self._last:
            self.first = None
            handler = self._handlers.get(type(record))
            self._touches = () if handler is None else handler(record)
            self._last = record
        return self._touches

    # ---------------------------------------------------------------- who
    def warp(self, who: WarpId) -> WarpState:
        """The state of a warp, made when it is first seen."""
        found = self._warps.get(id(who))
        if found is not None:
            return found
        shape = self.begin.cluster
        origin = (
            who.cta[0] // shape[0] * shape[0],
            who.cta[1] // shape[1] * shape[1],
            who.cta[2] // shape[2] * shape[2],
        )
        cluster = self.clusters.get(origin)
        if cluster is None:
            cluster = self.clusters[origin] = ClusterState(self.started, origin, self.code)
            self.started += 1
        block = self.begin.block
        left = block[0] * block[1] * block[2] - 32 * who.warp
        found = WarpState(cluster, who, ALL if left >= 32 else (1 << max(left, 1)) - 1)
        # A warp has one identity object for its whole life; hashing it by value would cost more than the rest.
        self._warps[id(who)] = cluster.warps[id(who)] = found
        return found

    def _cluster_end(self, record: ClusterEnd) -> tuple[Touch, ...]:
        cluster = self.clusters.pop(record.cluster, None)
        for key in cluster.warps if cluster is not None else ():
            del self._warps[key]
        return ()

    # ---------------------------------------------------------------- accesses
    def _access(self, record: Access) -> tuple[Touch, ...]:
        if record.operation >= 0:
            return self._by_operation(record)
        warp = self.warp(record.who)
        clock = warp.clock
        if record.space == "tensor":
            unit = warp.unit("load" if record.kind == "read" else "store")
            clock.access(ALL)
            epoch = unit.issue(ALL, clock.time)
            know = clock.groups[0].know
            return (Touch(record, warp, unit.agent, epoch, record.at, know, WHOLE),)
        word, lanes = _word(record)
        strength = self.code.strength(record.at)
        if strength is not None:
            self.flags.access(warp, record, word, strength)
        clock.access(word)
        groups = [g for g in clock.groups if g.lanes & word]
        if len(groups) == 1 or isinstance(lanes, int):
            return (Touch(record, warp, clock.agent, clock.time, record.at, groups[0].know, lanes),)
        touches = []
        for group in groups:
            inside = (group.lanes >> lanes & 1).astype(np.bool_)
            touches.append(Touch(record, warp, clock.agent, clock.time, record.at, group.know, lanes[inside], inside))
        return tuple(touches)

    # ---------------------------------------------------------------- operations
    def _begin(self, record: AsyncBegin) -> tuple[Touch, ...]:
        warp = self.warp(record.who)
        clock = warp.clock
        know = clock.release(record.lanes)
        # Taken behind the release, so that the operations of one instruction, lane by lane, have the same.
        time = clock.time
        unit, epoch = None, 0
        if record.unit == "tensor":
            unit = warp.pipe(record.lanes)
            know.fit(warp.cluster.size)
            know.learn(unit.agent, unit.issued)
            if record.what == "tcgen05.commit":
                know.mark(BEFORE)
                epoch = unit.issued
            else:
                epoch = unit.issue(record.lanes, time)
        elif record.group:
            unit = warp.unit(record.group)
            if record.group == "bulk":
                warp.unit("read").issue(record.lanes, time)
                warp.unit("read").last = record.at
            know.fit(warp.cluster.size)
            if record.group == "wgmma":
                know.learn(unit.agent, unit.issued)
            epoch = unit.issue(record.lanes, time)
        elif record.what == "cp.async.mbarrier.arrive":
            unit = warp.unit("copy")
            know.fit(warp.cluster.size)
            clock._lanes_know(know, unit.agent, unit.issued, unit.unsettled & ~record.lanes, 0)
        self.operations[record.operation] = Operation(warp, record.at, record.lanes, record.what, know, unit, epoch)
        return ()

    def _by_operation(self, record: Access) -> tuple[Touch, ...]:
        operation = self.operations.get(record.operation)
        if operation is None:
            return ()
        if operation.unit is None:
            operation.waiting.append(record)
            return ()
        agent = operation.unit.agent
        if record.space == "shared" and record.kind == "read" and "read" in operation.who.clock.units:
            reads = operation.who.clock.units["read"]
            if operation.unit is operation.who.clock.units.get("bulk"):
                agent = reads.agent
        return (self._touch(operation, record, agent, operation.epoch),)

    @staticmethod
    def _touch(operation: Operation, record: Access, agent: int, epoch: int) -> Touch:
        lanes: Any = WHOLE
        if record.lanes is not None:
            lanes = record.lanes
        elif operation.lanes & (operation.lanes - 1) == 0:
            lanes = operation.lanes.bit_length() - 1
        return Touch(record, operation.who, agent, epoch, operation.at, operation.know, lanes, None, operation.what)

    def _end(self, record: AsyncEnd) -> tuple[Touch, ...]:
        operation = self.operations.pop(record.operation, None)
        if operation is None or not operation.waiting:
            return ()
        # It signalled nothing: nobody will ever know that it has completed.
        agent = operation.who.cluster.agent("barrier", None, (-1, -1))
        return tuple(self._touch(operation, r, agent, 1) for r in operation.waiting)

    def _signal(self, record: Synchronise) -> tuple[Touch, ...]:
        """An operation signals an mbarrier: what it did until now belongs to the phase at hand."""
        operation = self.operations.get(record.operation)
        if operation is None:
            return ()
        barrier = self._barrier(operation.who.cluster, record.key)
        self._meet(
            barrier, id(operation.who) + (record.what == "mbarrier.complete_tx"), operation.who, [operation.know]
        )
        done, operation.waiting = operation.waiting, []
        touches = tuple(self._touch(operation, r, barrier.agent, record.phase + 1) for r in done)
        barrier.gathered.join(operation.know)
        if operation.who.id.rank != record.key[0]:
            unit = operation.unit
            agent, epoch = (barrier.agent, record.phase + 1) if unit is None else (unit.agent, operation.epoch)
            barrier.visits[agent] = (epoch, operation.who, operation.at)
        if record.ended:
            barrier.end(record.phase)
        return touches

    # ---------------------------------------------------------------- steps
    def _synchronise(self, record: Synchronise) -> tuple[Touch, ...]:
        if record.operation >= 0:
            return self._signal(record)
        warp = self.warp(record.who)
        clock, what, lanes = warp.clock, record.what, record.lanes
        if what == "warp.sync":
            clock.meet(lanes, record.detail[0] == ALL)
        elif what.startswith("mbarrier."):
            self._mbarrier(warp, record)
        elif what == "bar.arrive":
            self._arrive_named(warp, record)
        elif what == "bar.sync":
            told = warp.cluster.named.get((*record.key, record.detail[0]))
            if told is not None:
                clock.acquire(lanes, told)
            if lanes & clock.lanes == clock.lanes:
                clock.meet(ALL, True)
        elif what.startswith("barrier.cluster"):
            self._cluster_barrier(warp, record)
        elif what == "commit_group":
            self._unit(warp, record).commit()
        elif what.startswith("wait_group"):
            self._wait_group(warp, record)
        elif what == "tcgen05.wait::ld":
            warp.unit("load").waited = warp.unit("load").issued
        elif what == "tcgen05.wait::st":
            warp.unit("store").waited = warp.unit("store").issued
        else:
            self._fence(warp, what, lanes)
        return ()

    @staticmethod
    def _fence(warp: WarpState, what: str, lanes: int) -> None:
        clock = warp.clock
        if what.startswith(_INIT_FENCES):
            for barrier in warp.makes:
                barrier.fenced |= bool(barrier.lanes & lanes)
        if what == "tcgen05.fence::before_thread_sync":
            clock.fence(lanes, BEFORE)
        elif what == "tcgen05.fence::after_thread_sync":
            clock.fence(lanes, AFTER)
        elif what.startswith(("fence.proxy.async", "tensormap.cp_fenceproxy", "fence.proxy.tensormap")):
            clock.fence(lanes, ASYNC)
        if what.startswith(("fence.", "membar.", "tensormap.cp_fenceproxy")):
            clock.publish(lanes)

    @staticmethod
    def _unit(warp: WarpState, record: Synchronise) -> Unit:
        return warp.unit(("copy", "bulk", "wgmma")[record.detail[0]])

    def _wait_group(self, warp: WarpState, record: Synchronise) -> None:
        kind, allowed = record.detail
        unit = self._unit(warp, record)
        reads = warp.unit("read") if kind == 1 else None
        if not unit.owners & record.lanes:
            return
        if record.what == "wait_group.read" and reads is not None:
            if len(unit.groups) > allowed:
                reads.waited = max(reads.waited, unit.groups[-1 - allowed])
            return
        unit.wait(allowed)
        if kind == 2:
            self._whole_group(warp, unit.waited)
        if reads is not None:
            reads.waited = max(reads.waited, unit.waited)

    @staticmethod
    def _whole_group(warp: WarpState, waited: int) -> None:
        """A product belongs to the four warps of its warpgroup: when it is complete for one, it is for all."""
        for other in warp.cluster.warps.values():
            mate = other.id.cta == warp.id.cta and other.id.warp // 4 == warp.id.warp // 4 and other is not warp
            if mate and "wgmma" in other.clock.units:
                for group in warp.clock.groups:
                    group.know.fit(warp.cluster.size)
                    group.know.learn(other.clock.units["wgmma"].agent, waited)

    @staticmethod
    def _barrier(cluster: ClusterState, key: tuple[int, int]) -> Barrier:
        found = cluster.barriers.get(key)
        if found is None:
            found = cluster.barriers[key] = Barrier(cluster.agent("barrier", None, key), cluster.size)
        return found

    def _mbarrier(self, warp: WarpState, record: Synchronise) -> None:
        cluster, clock, what = warp.cluster, warp.clock, record.what
        if what in ("mbarrier.init", "mbarrier.inval"):
            cluster.barriers.pop(record.key, None)
            if what == "mbarrier.init":
                barrier = self._barrier(cluster, record.key)
                clock.access(record.lanes)
                barrier.maker, barrier.made, barrier.made_at = warp, clock.time, record.at
                barrier.lanes = record.lanes
                warp.makes.append(barrier)
            return
        barrier = self._barrier(cluster, record.key)
        self._meet(barrier, id(warp), warp, [g.know for g in clock.parts(record.lanes)])
        if what == "mbarrier.wait":
            if barrier.done is not None:
                clock.acquire(record.lanes, barrier.done)
            return
        if warp.id.rank != record.key[0]:
            clock.access(record.lanes)
            barrier.visits[clock.agent] = (clock.time, warp, record.at)
        barrier.gathered.join(clock.release(record.lanes))
        if record.ended:
            barrier.end(record.phase)

    def _meet(self, barrier: Barrier, identity: int, warp: WarpState, know: list[Knowledge]) -> None:
        """Somebody uses an mbarrier; the first time counts."""
        maker = barrier.maker
        if identity in barrier.met or maker is None:
            return
        barrier.met.add(identity)
        lane, agent = barrier.lanes.bit_length() - 1, maker.clock.agent
        ordered = warp is maker or all(k.known_lane(ORDER, agent, lane) >= barrier.made for k in know)
        self.first = barrier, ordered

    @staticmethod
    def _arrive_named(warp: WarpState, record: Synchronise) -> None:
        generation = record.detail[1]
        named = warp.cluster.named
        told = warp.clock.release(record.lanes)
        key = (*record.key, generation)
        if key in named:
            named[key].join(told)
        else:
            named[key] = told
            named.pop((*record.key, generation - 8), None)

    @staticmethod
    def _cluster_barrier(warp: WarpState, record: Synchronise) -> None:
        phases, number = warp.cluster.phases, record.detail[0]
        if record.what.endswith(".wait"):
            if number in phases:
                warp.clock.acquire(record.lanes, phases[number])
            return
        told = warp.clock.fenced if record.what.endswith(".relaxed") else warp.clock.release(record.lanes)
        if told is not None:
            if number in phases:
                phases[number].join(told)
            else:
                phases[number] = told.copy()


def _word(record: Access) -> tuple[int, Any]:
    """The lanes of an access as a word, and as numbers (or `WHOLE`)."""
    if record.lanes is not None:
        return int(np.bitwise_or.reduce(np.int64(1) << record.lanes.astype(np.int64))), record.lanes
    if record.addresses.size == 32:
        return ALL, _LANES
    return ALL, WHOLE


_LANES = np.arange(32)
