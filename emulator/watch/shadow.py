"""Shadow memory: for every cell who wrote it last and who has read it since, and which of that a new access clashes
with. Everything works on whole address arrays; only what is suspicious is looked at cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.watch.agents import WHOLE, Touch
from emulator.watch.clocks import ASYNC, ORDER, Knowledge
from emulator.watch.sites import EPOCH_SHIFT, LANE_MASK, SITE_MASK, SITE_SHIFT, Site, Sites

I64 = NDArray[np.int64]
Cells = Any
"""Index of a shadow array: a slice, or int64 array of any shape."""

SEVERAL = 32


@dataclass(frozen=True)
class Clash:
    """A pair of accesses without an edge between them. `rule` is race, or proxy when only the proxy fence is missing;
    `cell` the first cell of the new access, `count` how many clash."""

    rule: str
    touch: Touch
    other: Site
    other_cluster: int
    other_agent: int
    other_epoch: int
    other_lane: int
    cell: int
    count: int


Report = Callable[[Clash], None]


class Shadow:
    """Tags of `size` cells. `written` holds the last writer; `read[agent]` the last read of each agent, for spaces
    whose readers are few."""

    def __init__(self, size: int, sites: Sites) -> None:
        self.sites = sites
        self.size = size
        self.written: I64 = np.zeros(size, np.int64)
        self.read: dict[int, I64] = {}

    def access(self, touch: Touch, cells: Cells, lanes: Any, report: Report) -> None:
        """Check an access against what is recorded, then record it. `lanes`: a lane code, or an array that fits the
        cells."""
        kind = touch.access.kind
        check(touch, self.written[cells], self.sites, cells, lanes, report, proxies=True)
        site = self.sites.site(touch)
        tag = touch.epoch << EPOCH_SHIFT | site << SITE_SHIFT
        if kind == "read":
            self._note_read(touch, tag, cells, lanes)
            return
        for plane in self.read.values():
            check(touch, plane[cells], self.sites, cells, lanes, report, proxies=False)
        self.written[cells] = tag | lanes

    def _note_read(self, touch: Touch, tag: int, cells: Cells, lanes: Any) -> None:
        plane = self.read.get(touch.agent)
        if plane is None:
            plane = self.read[touch.agent] = np.zeros(self.size, np.int64)
        if isinstance(lanes, int):
            plane[cells] = tag | lanes
        else:
            note_lanes(plane, tag, cells, lanes)


def note_lanes(plane: I64, tag: int, cells: Cells, lanes: I64) -> None:
    """Record reads lane by lane; a cell that two lanes read in one epoch is marked as read by several."""
    old = plane[cells]
    same = old >> EPOCH_SHIFT == tag >> EPOCH_SHIFT
    codes = np.broadcast_to(lanes, old.shape)
    if same.any():
        codes = np.where(same & (old & LANE_MASK != codes), SEVERAL, codes)
    plane[cells] = tag | codes
    lost = plane[cells] & LANE_MASK != codes
    if lost.any():
        plane[cells[lost]] = tag | SEVERAL


def check(touch: Touch, tags: I64, sites: Sites, cells: Cells, lanes: Any, report: Report, proxies: bool) -> None:
    """Report every pair of a recorded access (`tags`, 0: none) and the new one that nothing orders; with `proxies` also
    where only the fence between the proxies is missing."""
    newest = int(tags.max(initial=0))
    if not newest:
        return
    touch.know.fit(touch.who.cluster.size)
    if int(tags.min()) == newest and not _suspicious_one(touch, newest, sites, lanes, proxies):
        return
    bad, rule = _suspicious(touch, tags, sites, lanes, proxies)
    if bad is not None:
        _report(touch, tags, sites, cells, bad, rule, report)


def _suspicious_one(touch: Touch, tag: int, sites: Sites, lanes: Any, proxies: bool) -> bool:
    """Whether one tag that all cells bear needs a closer look."""
    site = tag >> SITE_SHIFT & SITE_MASK
    if sites.cluster[site] != touch.who.cluster.number:
        return True
    agent, epoch, rows = int(sites.agent[site]), tag >> EPOCH_SHIFT, touch.know.rows
    if rows[ORDER, agent] < epoch:
        if touch.operation:
            return not (agent == touch.agent and epoch == touch.epoch and _alone(touch))
        return agent != touch.agent or not isinstance(lanes, int) or tag & LANE_MASK != lanes
    return proxies and bool(sites.generic[site]) and touch.access.proxy != "generic" and rows[ASYNC, agent] < epoch


def _suspicious(
    touch: Touch, tags: I64, sites: Sites, lanes: Any, proxies: bool
) -> tuple[NDArray[np.bool_] | None, str]:
    """Which pairs clash, and by which rule."""
    site = tags >> SITE_SHIFT & SITE_MASK
    epoch, agent = tags >> EPOCH_SHIFT, sites.agent[site]
    local = sites.cluster[site] == touch.who.cluster.number
    # Agents of other clusters have numbers of their own; agent 0 stands in for them here.
    mine, rows = np.where(local, agent, 0), touch.know.rows
    recorded = tags != 0
    unordered = ((rows[ORDER][mine] < epoch) | ~local) & recorded
    if unordered.any():
        fine = _known_otherwise(touch, tags & LANE_MASK, site, epoch, sites, ORDER)
        own = sites.site(touch)
        if not touch.operation:
            fine |= local & _own(touch, agent, epoch, tags & LANE_MASK, lanes)
        elif _alone(touch):
            fine |= local & (agent == touch.agent) & ((epoch == touch.epoch) | (site == own) & _together(touch, epoch))
        if sites.strong[own]:
            fine |= sites.strong[site]
        unordered &= ~fine
        if unordered.any():
            return unordered, "race"
    if proxies and touch.access.proxy != "generic":
        unfenced = (rows[ASYNC][mine] < epoch) & local & sites.generic[site] & recorded
        if unfenced.any():
            unfenced &= ~_known_otherwise(touch, tags & LANE_MASK, site, epoch, sites, ASYNC)
            if unfenced.any():
                return unfenced, "proxy"
    return None, ""


def _alone(touch: Touch) -> bool:
    """Whether the epoch of an operation's access is its own. Operations that signal one phase of an mbarrier share it,
    and complete in any order."""
    return touch.who.cluster.agents[touch.agent].kind != "barrier"


def _together(touch: Touch, epoch: I64) -> NDArray[np.bool_]:
    """Which operations were issued when this one was: where all lanes execute a copy that one should, they all write
    the same."""
    for unit in touch.who.clock.units.values():
        if unit.agent == touch.agent:
            times = np.array(unit.times)
            return times[np.minimum(epoch, times.size - 1)] == times[touch.epoch]
    return np.zeros(epoch.shape, np.bool_)


def _known_otherwise(touch: Touch, lane: I64, site: I64, epoch: I64, sites: Sites, row: int) -> NDArray[np.bool_]:
    """Acts of lanes that the observer knows better than their warp, and of agents of other clusters."""
    agent, cluster = sites.agent[site], sites.cluster[site]
    here = cluster == touch.who.cluster.number
    fine = np.zeros(lane.shape, np.bool_)
    _known_lanes(touch.know, row, here, agent, lane, epoch, fine)
    for number, known in touch.know.others.items():
        theirs = (cluster == number) & (agent < known.rows.shape[1])
        fine |= theirs & (known.rows[row][np.where(theirs, agent, 0)] >= epoch)
        _known_lanes(known, row, theirs, agent, lane, epoch, fine)
    return fine


def _known_lanes(
    know: Knowledge, row: int, inside: NDArray[np.bool_], agent: I64, lane: I64, epoch: I64, fine: NDArray[np.bool_]
) -> None:
    """Add acts of single lanes that are known."""
    for (r, a), known in know.partial.items():
        if r == row:
            fine |= inside & (agent == a) & (lane < 32) & (known[np.minimum(lane, 31)] >= epoch)


def _own(touch: Touch, agent: I64, epoch: I64, lane: I64, lanes: Any) -> NDArray[np.bool_]:
    """Acts of the lane itself: its accesses, its operations that it has waited for, and (in program order at least)
    its warp's loads and stores of tensor memory."""
    clock = touch.who.clock
    own = agent == clock.agent
    for unit in clock.units.values():
        own |= (agent == unit.agent) & (epoch <= unit.waited)
    own &= (lane == lanes) | (lane == WHOLE) | (isinstance(lanes, int) and lanes == WHOLE)
    for kind in ("load", "store"):
        if kind in clock.units:
            own |= agent == clock.units[kind].agent
    return own


def _report(
    touch: Touch,
    tags: I64,
    sites: Sites,
    cells: Cells,
    bad: NDArray[np.bool_],
    rule: str,
    report: Report,
) -> None:
    numbers = np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells
    found, where = tags[bad], np.broadcast_to(numbers, tags.shape)[bad]
    site = found >> SITE_SHIFT & SITE_MASK
    for s in np.unique(site).tolist():
        pick = np.flatnonzero(site == s)
        tag = int(found[pick[0]])
        report(
            Clash(
                rule,
                touch,
                sites.rows[s],
                int(sites.cluster[s]),
                int(sites.agent[s]),
                tag >> EPOCH_SHIFT,
                tag & LANE_MASK,
                int(where[pick[0]]),
                pick.size,
            )
        )
