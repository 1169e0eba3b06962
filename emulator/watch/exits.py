"""Shared memory lives as long as its CTA: whoever works on it must be known to have finished before the CTA ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from emulator.events import WarpId
from emulator.watch.agents import ClusterState
from emulator.watch.clocks import I64, ORDER, Knowledge
from emulator.watch.order import Order
from emulator.watch.shadow import Shadow
from emulator.watch.sites import EPOCH_SHIFT, SITE_MASK, SITE_SHIFT


@dataclass(frozen=True)
class Exit:
    """Work that a CTA's end may cut off: who does it, from which static instruction."""

    kind: str
    who: WarpId
    at: int
    memory: str
    missing: str


def exits(order: Order, cluster: ClusterState, shadows: dict[int, Shadow]) -> Iterator[Exit]:
    """What the CTAs of a cluster do not wait for before they end. shadows: of shared memory, by rank."""
    yield from _copies(cluster)
    if order.begin.cluster == (1, 1, 1):
        return
    known = _at_the_end(cluster)
    for rank, shadow in shadows.items():
        if rank in known:
            yield from _visitors(cluster, rank, shadow, known[rank])
    for key, barrier in cluster.barriers.items():
        for agent, (epoch, warp, at) in barrier.visits.items():
            if key[0] in known and known[key[0]].rows[ORDER, agent] < epoch:
                yield Exit(
                    "exit before a peer's arrival",
                    warp.id,
                    at,
                    f"mbarrier {key[1]:#x} of CTA rank {key[0]}",
                    f"nothing keeps CTA rank {key[0]} from ending before this arrives: a cluster barrier or a wait on "
                    "the mbarrier is missing at its end",
                )


def _copies(cluster: ClusterState) -> Iterator[Exit]:
    for warp in cluster.warps.values():
        reads = warp.clock.units.get("read")
        if reads is not None and reads.waited < reads.issued:
            yield Exit(
                "exit before a copy has read",
                warp.id,
                reads.last,
                f"shared memory of CTA {warp.id.cta}",
                "the CTA may end while the bulk store still reads shared memory: cp.async.bulk.wait_group is missing",
            )


def _at_the_end(cluster: ClusterState) -> dict[int, Knowledge]:
    """By rank, what the warps of a CTA together know when they end: the last of them cannot end before that."""
    known: dict[int, Knowledge] = {}
    for warp in cluster.warps.values():
        together = warp.clock.release(0xFFFFFFFF)
        together.fit(cluster.size)
        if warp.id.rank in known:
            known[warp.id.rank].join(together)
        else:
            known[warp.id.rank] = together
    return known


def _visitors(cluster: ClusterState, rank: int, shadow: Shadow, known: Knowledge) -> Iterator[Exit]:
    """Accesses by other CTAs to the memory of one."""
    planes = [shadow.written, *shadow.read.values()]
    for tag in {int(t) for plane in planes for t in _newest(plane)}:
        site, epoch = tag >> SITE_SHIFT & SITE_MASK, tag >> EPOCH_SHIFT
        row, agent = shadow.sites.rows[site], int(shadow.sites.agent[site])
        if row.warp is not None and row.warp.rank != rank and known.rows[ORDER, agent] < epoch:
            yield Exit(
                "exit before a peer's access",
                row.warp,
                row.at,
                f"shared memory of CTA rank {rank}",
                f"nothing keeps CTA rank {rank} from ending before this {row.kind}: a cluster barrier is missing at "
                "its end",
            )


def _newest(plane: I64) -> list[int]:
    """The tags of a plane, each once."""
    return [t for t in np.unique(plane).tolist() if t]
