"""Shadow of tensor memory, in cells of 16 lanes by one column: no instruction but a few copies and masked products
touches less, and these count where they cover a cell."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from emulator.events import Access, TensorAllocation
from emulator.memory.tmem import COLUMNS, LANES
from emulator.watch.agents import WHOLE, ClusterState, Touch
from emulator.watch.clocks import AFTER, ALL, BEFORE, ORDER
from emulator.watch.order import Order
from emulator.watch.shadow import I64, Clash, Shadow, check
from emulator.watch.sites import EPOCH_SHIFT, LANE_MASK, SITE_MASK, SITE_SHIFT

HEIGHT = 16
"""Lanes of a cell."""

CACHED = 4096
_NOTHING = np.empty(0, np.int64)
FREE = "free"
"""The kind of access that gives columns back."""


class TensorShadows:
    """Tensor memories of a launch. `clashes` answers for one access once, however many checkers ask."""

    _known: WeakKeyDictionary[Order, TensorShadows] = WeakKeyDictionary()

    @classmethod
    def of(cls, order: Order) -> TensorShadows:
        """The shadows that belong to an order of events."""
        found = cls._known.get(order)
        if found is None:
            found = cls._known[order] = cls(order)
        return found

    def __init__(self, order: Order) -> None:
        # A kernel without any of these fences relies on what mbarriers order in practice; one that has them is held to
        # them everywhere.
        self.rules = [
            (row, name)
            for row, name in ((BEFORE, "before"), (AFTER, "after"))
            if order.code.uses(f"tcgen05.fence::{name}_thread_sync")
        ]
        self._shadows: dict[tuple[int, int], Shadow] = {}
        self._cells: dict[int, tuple[np.ndarray, Any]] = {}
        self._last: Touch | None = None
        self._allocated: TensorAllocation | None = None
        self._clashes: list[Clash] = []

    def demand_fences(self) -> None:
        """Hold the kernel to both fences whether it has any or not."""
        self.rules = [(BEFORE, "before"), (AFTER, "after")]

    def forget_ended(self, order: Order) -> None:
        """The tensor memories of clusters that have ended are gone."""
        alive = {c.number for c in order.clusters.values()}
        for key in [k for k in self._shadows if k[0] not in alive]:
            del self._shadows[key]

    def allocation(self, order: Order, record: TensorAllocation) -> list[Clash]:
        """Columns change hands. What the warp that frees some cannot know to have completed clashes (rule `race`, or
        `wait`); who completes later clashes with the freeing (rule `freed`)."""
        if record is not self._allocated:
            self._allocated, self._last, self._clashes = record, None, []
            self._change(order, record)
        return self._clashes if self._last is None else []

    def _change(self, order: Order, record: TensorAllocation) -> None:
        warp = order.warp(record.who)
        shadow = self._shadow(warp.cluster, record.rank)
        columns = slice(record.column, record.column + record.columns)
        numbers = np.arange(LANES // HEIGHT * COLUMNS).reshape(-1, COLUMNS)[:, columns].ravel()
        planes = (shadow.written, *shadow.read.values())
        tag = 0
        if record.release:
            access = Access(record.who, "tensor", FREE, "tensor", _NOTHING, 4, record.rank, -1, record.at)
            clock = warp.clock
            touch = Touch(access, warp, clock.agent, clock.time, record.at, clock.groups[0].know, WHOLE)
            for plane in planes:
                check(touch, plane[numbers], shadow.sites, numbers, WHOLE, self._note, proxies=False)
            clock.access(ALL)
            tag = touch.epoch << EPOCH_SHIFT | shadow.sites.site(touch) << SITE_SHIFT | WHOLE
        for plane in planes:
            plane[numbers] = 0
        shadow.written[numbers] = tag

    def shadow(self, touch: Touch) -> Shadow:
        """The shadow of the memory that is touched."""
        return self._shadow(touch.who.cluster, touch.access.rank)

    def _shadow(self, cluster: ClusterState, rank: int) -> Shadow:
        key = (cluster.number, rank)
        if key not in self._shadows:
            self._shadows[key] = Shadow(LANES // HEIGHT * COLUMNS, cluster.sites)
        return self._shadows[key]

    def clashes(self, touch: Touch) -> list[Clash]:
        """Check and record an access. `cell` of a clash is a tensor-memory address; `rule` race, wait (the access was
        told, but not that it is complete), before or after (a fence is missing), freed."""
        if touch is not self._last:
            self._last, self._clashes = touch, []
            self._take(touch)
        return self._clashes

    def _take(self, touch: Touch) -> None:
        cells = self._covered(touch.access.addresses)
        shadow = self.shadow(touch)
        before = shadow.written[cells]
        known = [p[cells] for a, p in shadow.read.items() if a != touch.agent] if touch.access.kind != "read" else []
        shadow.access(touch, cells, WHOLE, self._note)
        if not self._clashes:
            for tags in (before, *known):
                self._fences(touch, shadow, tags, cells)

    def _covered(self, addresses: np.ndarray) -> Any:
        cached = self._cells.get(id(addresses))
        if cached is not None and cached[0] is addresses:
            return cached[1]
        lane, column = addresses.ravel() >> 16, addresses.ravel() & 0xFFFF
        numbers, counts = np.unique(lane // HEIGHT * COLUMNS + column, return_counts=True)
        cells = numbers[counts >= HEIGHT]
        if len(self._cells) >= CACHED:
            self._cells.clear()
        self._cells[id(addresses)] = (addresses, cells)
        return cells

    def _note(self, clash: Clash) -> None:
        touch = clash.touch
        rule = "freed" if clash.other.kind == FREE else "race"
        if clash.other.agent in ("load", "store"):
            owner = touch.who.cluster.agents[clash.other_agent].owner
            if owner is not None:
                unit = owner.clock.units[clash.other.agent]
                # The warp's own progress past the instruction is known, its completion is not.
                if touch.know.rows[ORDER, owner.clock.agent] >= unit.times[clash.other_epoch]:
                    rule = "wait"
        self._add(clash, rule)

    def _add(self, clash: Clash, rule: str) -> None:
        row, column = divmod(clash.cell, COLUMNS)
        at = row * HEIGHT << 16 | column
        self._clashes.append(
            Clash(
                rule,
                clash.touch,
                clash.other,
                clash.other_cluster,
                clash.other_agent,
                clash.other_epoch,
                clash.other_lane,
                at,
                clash.count,
            )
        )

    def _fences(self, touch: Touch, shadow: Shadow, tags: I64, cells: I64) -> None:
        """What is in order, but without the fences that hand-overs between threads need."""
        if not self.rules or not tags.size:
            return
        cluster = touch.who.cluster
        for tag in np.unique(tags).tolist():
            if not tag:
                continue
            site, epoch = tag >> SITE_SHIFT & SITE_MASK, tag >> EPOCH_SHIFT
            agent = int(shadow.sites.agent[site])
            if cluster.agents[agent].owner is touch.who:
                continue
            for row, name in self.rules:
                if touch.know.rows[row, agent] < epoch:
                    place, lane = int(cells[np.flatnonzero(tags == tag)[0]]), tag & LANE_MASK
                    known = shadow.sites.rows[site]
                    clash = Clash(name, touch, known, cluster.number, agent, epoch, lane, place, 1)
                    self._add(clash, name)
                    break
