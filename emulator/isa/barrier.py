"""Named barriers, the cluster barrier, warp barriers and fences (PTX ISA 9.7.13.1 to 9.7.13.3, 9.7.13.14)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.lanes import some
from emulator.errors import BarrierFault
from emulator.isa.operands import write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_step
from emulator.isa.warplike import EVERYBODY, WarpLike, ballot, first_lane
from emulator.ptx.module import Instruction


def _numbers(b: Any, i: Instruction, first: int) -> tuple[Any, Any]:
    """Barrier number and thread count (0 = all threads of the CTA) from operand `first` on."""
    count = b.operand(i, first + 1, "u32") if len(i.operands) > first + 1 else b.const("u32", 0)
    return b.operand(i, first, "u32"), count


@op("bar[.cta].sync", "barrier[.cta].sync[.aligned]", section="9.7.13.1", starts_block=True)
def bar_sync(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive and wait for the others."""
    number, count = _numbers(b, i, 0)
    b.blocking(_sync, number, count, out="pred")


@op("bar[.cta].arrive", "barrier[.cta].arrive[.aligned]", section="9.7.13.1", starts_block=True)
def bar_arrive(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive without waiting; the count is required."""
    number, count = _numbers(b, i, 0)
    b.blocking(_arrive, number, count, out="pred")


@op("bar[.cta].red.op:popc.u32", "barrier[.cta].red.op:popc[.aligned].u32", section="9.7.13.1", starts_block=True)
@op("bar[.cta].red.op:and|or.pred", "barrier[.cta].red.op:and|or[.aligned].pred", section="9.7.13.1", starts_block=True)
def bar_red(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive, wait, and reduce a predicate over all threads of the barrier."""
    count = b.operand(i, 2, "u32") if len(i.operands) == 4 else b.const("u32", 0)
    vote = b.operand(i, len(i.operands) - 1, "pred")
    type = "u32" if m["op"] == "popc" else "pred"
    write(b, i.operands[0], b.blocking(_reduce, b.operand(i, 1, "u32"), count, vote, m["op"], out=type), type)


def _here(warp: WarpLike, mask: np.ndarray, values: np.ndarray) -> int:
    return int(values[int(mask.argmax())])


def _enter(warp: WarpLike, mask: np.ndarray, number: np.ndarray, count: np.ndarray, vote: np.ndarray | None) -> Any:
    """Count this arrival once, however often the blocked warp tries; returns (barrier, generation to wait for, key)."""
    n = _here(warp, mask, number)
    barrier = warp.cta.barrier(n)
    key = ("bar", n, mask.tobytes())
    named = _here(warp, mask, count)
    if key in warp.arrived:
        # A barrier of the whole CTA doesn't wait for warps that have ended, and some may have done so since.
        if barrier.generation == warp.arrived[key] and not named and barrier.arrived >= _running(warp):
            _complete(barrier)
        return barrier, warp.arrived[key], key
    threads = named or -(-warp.cta.threads // 32) * 32
    if threads % 32:
        raise BarrierFault(f"barrier {n}: thread count {threads} is not a multiple of 32")
    if barrier.arrived and barrier.expected != threads:
        raise BarrierFault(f"barrier {n}: this warp names {threads} threads, an earlier arrival {barrier.expected}")
    barrier.expected = threads
    generation = barrier.generation
    warp.arrived[key] = generation
    # A warp arrives with all 32 lanes, unless it has diverged and its lanes come in parts.
    barrier.arrived += 32 if ballot(mask) == ballot(warp.live) else int(mask.sum())
    if vote is not None:
        trues, total = barrier.votes.get(generation, (0, 0))
        barrier.votes[generation] = (trues + int((vote & mask).sum()), total + int(mask.sum()))
    warp.progress()
    if warp.bus.on:
        tell_step(warp, "bar.arrive", (warp.cta.rank, n), threads, generation, mask=mask)
    if barrier.arrived > threads:
        raise BarrierFault(f"barrier {n}: {barrier.arrived} threads arrived, {threads} expected")
    if barrier.arrived >= (named or _running(warp)):
        _complete(barrier)
    return barrier, generation, key


def _running(warp: WarpLike) -> int:
    """Threads of the CTA's warps that have not ended."""
    return 32 * sum(not w.done for w in warp.cta.warps)


def _complete(barrier: Any) -> None:
    barrier.arrived = 0
    barrier.generation += 1


def _sync(warp: WarpLike, mask: np.ndarray, number: np.ndarray, count: np.ndarray) -> np.ndarray | None:
    barrier, generation, key = _enter(warp, mask, number, count, None)
    return _leave(warp, mask, barrier, generation, key)


def _leave(warp: WarpLike, mask: np.ndarray, barrier: Any, generation: int, key: Any) -> np.ndarray | None:
    if barrier.generation == generation:
        return warp.wait(f"barrier {key[1]}: {barrier.arrived} of {barrier.expected} threads have arrived", None)
    del warp.arrived[key]
    if warp.bus.on:
        tell_step(warp, "bar.sync", (warp.cta.rank, key[1]), generation, mask=mask)
    return mask


def _arrive(warp: WarpLike, mask: np.ndarray, number: np.ndarray, count: np.ndarray) -> np.ndarray:
    _, _, key = _enter(warp, mask, number, count, None)
    del warp.arrived[key]
    return mask


def _reduce(
    warp: WarpLike, mask: np.ndarray, number: np.ndarray, count: np.ndarray, vote: np.ndarray, name: str
) -> Any:
    barrier, generation, key = _enter(warp, mask, number, count, vote)
    if _leave(warp, mask, barrier, generation, key) is None:
        return None
    trues, total = barrier.votes[generation]
    if name == "popc":
        return np.full(32, trues, np.uint32)
    return np.full(32, trues == total if name == "and" else trues > 0)


@op("bar.warp.sync", section="9.7.13.2", starts_block=True)
def bar_warp(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait until all live lanes of the mask are here."""
    b.blocking(_warp_sync, b.operand(i, 0, "u32"), out="pred")


def _warp_sync(warp: WarpLike, mask: np.ndarray, members: np.ndarray) -> np.ndarray | None:
    return None if warp.converge(mask, members) is None else mask


@op("barrier.cluster.arrive[.sem:release|relaxed][.aligned]", section="9.7.13.4", starts_block=True)
def cluster_arrive(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive at the cluster barrier; with `.aligned` the lanes of the warp together, else each for itself."""
    b.blocking(_cluster_arrive, m["sem"] or "release", m["aligned"], out="pred")


@op("barrier.cluster.wait[.acquire][.aligned]", section="9.7.13.4", starts_block=True)
def cluster_wait(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait until every live thread of the cluster has arrived."""
    b.blocking(_cluster_wait, out="pred")


def _cluster_arrive(warp: WarpLike, mask: np.ndarray, semantics: str, aligned: bool) -> np.ndarray | None:
    if aligned and warp.converge(mask, EVERYBODY) is None:
        return None
    # Arriving twice before a wait is undefined, but flash-attn-4's two-CTA MLA kernel does it: counted by phase, as its
    # authors must have seen it work. A checker can tell by the numbers.
    warp.cluster_arrivals[mask] += 1
    warp.progress()
    if warp.bus.on:
        number = int(warp.cluster_arrivals[first_lane(mask)])
        tell_step(warp, f"barrier.cluster.arrive.{semantics}", (0, 0), number, mask=mask)
    return mask


def _cluster_wait(warp: WarpLike, mask: np.ndarray) -> np.ndarray | None:
    wanted = int(warp.cluster_waits[mask].max()) + 1
    if (warp.cluster_arrivals[mask] < wanted).any():
        raise BarrierFault("barrier.cluster.wait without an arrive before it")
    late = [w for w in warp.cluster.warps if not w.done and (w.cluster_arrivals[w.live] < wanted).any()]
    if late:
        names = ", ".join(f"CTA {w.cta.rank} warp {w.index}" for w in late[:4])
        return warp.wait(f"the cluster barrier: {len(late)} warp(s) have not arrived ({names})", None)
    warp.cluster_waits[mask] = wanted
    if warp.bus.on:
        tell_step(warp, "barrier.cluster.wait", (0, 0), wanted, mask=mask)
    return mask


@op(
    "membar.scope:cta|gl|sys|gpu",
    "fence[.sem:sc|acq_rel|acquire|release].scope:cta|cluster|gpu|sys",
    "fence.sem:acquire|release.sync_restrict::shared::cluster.cluster",
    "fence.sem:acquire|release.sync_restrict::shared::cta.cluster",
    "fence.mbarrier_init.release.cluster",
    "fence.proxy.alias",
    "fence.proxy.async[.space:global|shared::cta|shared::cluster]",
    "fence.proxy.kind:async::generic.sem:acquire|release.sync_restrict::shared::cluster.cluster",
    "fence.proxy.kind:async::generic.sem:acquire|release.sync_restrict::shared::cta.cluster",
    "fence.proxy.kind:tensormap::generic.release.scope:cta|cluster|gpu|sys",
    "fence.proxy.kind:tensormap::generic.acquire.scope:cta|cluster|gpu|sys",
    section="9.7.13.14",
    no_effect=True,
)
def fence(b: Any, i: Instruction, m: Modifiers) -> None:
    """Memory is sequentially consistent here, so a fence changes nothing; checkers hear of it."""
    if b.watched:
        b.effect(_fence, i.opcode)


def _fence(warp: WarpLike, mask: np.ndarray, what: str) -> None:
    if some(mask):
        tell_step(warp, what, (warp.cta.rank, 0), mask=mask)
