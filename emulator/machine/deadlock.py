"""The report when no warp can step: who waits for what, what has arrived."""

from __future__ import annotations

from emulator.errors import Deadlock, Waiting
from emulator.machine.cluster import Cluster
from emulator.machine.warp import Warp
from emulator.units.mbarrier import Mbarrier


def deadlock(clusters: list[Cluster]) -> Deadlock:
    """Build the report from the state of the resident clusters."""
    stuck = [w for c in clusters for w in c.warps if not w.done]
    program = clusters[0].grid.program
    executed = sum(w.instructions for c in clusters for w in c.warps)
    notes = _notes(stuck)
    return Deadlock(program.function.name, executed, [_row(w) for w in stuck], notes)


def _row(warp: Warp) -> Waiting:
    program = warp.program
    block = warp.block if warp.groups is None else min(g.block for g in warp.groups)
    start = program.starts[block] if block < len(program.starts) else 0
    i = program.function.instructions[start]
    reason = warp.waiting or "nothing: it spins without changing any state"
    return Waiting(warp.cta.rank, warp.index, i.line, i.text, reason, i.loc)


def _notes(stuck: list[Warp]) -> list[str]:
    notes = []
    for warp in stuck:
        for rank, offset, barrier in _barriers(warp):
            note = f"mbarrier {offset:#x} of CTA {rank}: {describe(barrier)}"
            if note not in notes:
                notes.append(note)
    return notes


def _barriers(warp: Warp) -> list[tuple[int, int, Mbarrier]]:
    if not isinstance(warp.waits_for, Mbarrier):
        return []
    return [
        (cta.rank, offset, barrier)
        for cta in warp.cluster.ctas
        for offset, barrier in cta.mbarriers.items()
        if barrier is warp.waits_for
    ]


def describe(barrier: Mbarrier) -> str:
    """Arrivals and bytes present and missing in the current phase."""
    arrived = barrier.expected - barrier.pending
    missing_bytes = -barrier.tx
    if missing_bytes > 0:
        traffic = f"{missing_bytes} bytes still expected"
    elif missing_bytes < 0:
        traffic = f"{-missing_bytes} bytes more than expected"
    else:
        traffic = "no bytes outstanding"
    arrivals = f"{arrived} of {barrier.expected} arrivals"
    return f"phase {barrier.phase}, {arrivals}, {traffic}, {barrier.completions} phases completed"
