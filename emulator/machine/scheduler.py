"""Runs the warps of the resident clusters cooperatively until all have ended.

One warp runs until it blocks. When no warp of a round has changed anything, the scheduler in this order completes an
asynchronous operation, lets `try_wait` time out, starts the next cluster (kernels may spin on another cluster), and
at last
reports the deadlock. "Changed" means memory, barriers or operations: executed instructions alone are no progress, or a
spin loop would hide a deadlock for ever.
"""

from __future__ import annotations

from emulator.builders.llvm_values import LAUNCH
from emulator.errors import Watchdog
from emulator.events import Turns
from emulator.machine.cluster import Cluster
from emulator.machine.deadlock import deadlock
from emulator.machine.grid import Grid

_CHANGES = LAUNCH["changes"] // 8
PATIENCE = 50
"""Rounds of running warps without any change of state before they count as spinning."""


class Scheduler:
    """One launch's loop."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.resident = grid.resident
        self.started = 0
        self.instructions = 0
        self.warp_instructions: dict[int, int] = {}

    def run(self) -> None:
        """Run every cluster to its end."""
        while self._admit() or self.resident:
            self._run_resident()

    def _admit(self) -> bool:
        if self.resident:
            return False
        return self._start_next()

    def _start_next(self) -> bool:
        origin = self.grid.next_cluster()
        if origin is None:
            return False
        self.resident.append(Cluster(self.grid, origin, self.started))
        self.started += 1
        return True

    def _run_resident(self) -> None:
        quiet = 0
        last = -1
        timeouts = 0
        while self.resident:
            ran = self._round(quiet > 0)
            self._retire()
            if not self.resident:
                return
            changes = self.grid.changes + self.grid.words[_CHANGES]
            if changes != last:
                last, quiet, timeouts = changes, 0, 0
                continue
            quiet += 1
            if ran and quiet < PATIENCE:
                continue
            if self._force():
                continue
            if timeouts < 3 and self._time_out():
                timeouts += 1
                continue
            if not self._start_next():
                raise deadlock(self.resident)
            timeouts = 0

    def _round(self, quiet: bool) -> bool:
        """One turn for every warp; whether any ran or rests. quiet: nothing changed in the last round."""
        ran = False
        for cluster in self.resident:
            cluster.in_flight.begin()
            turns = cluster.choices.turns(cluster.warps, quiet)
            if cluster.choices.round and self.grid.bus.on:
                self.grid.bus.publish(Turns(cluster.origin, cluster.choices.round, tuple(turns)))
            for n, blocks in turns:
                warp = cluster.warps[n]
                if not warp.done:
                    ran |= warp.run(blocks) if blocks else True
        self._watch()
        return ran

    def _force(self) -> bool:
        for cluster in self.resident:
            wanted = [w.waits_for for w in cluster.warps if not w.done and w.waits_for is not None]
            if cluster.in_flight.force(wanted):
                return True
        return False

    def _time_out(self) -> bool:
        """Let every suspended try_wait answer False once; True if there was one."""
        waiting = [w for c in self.resident for w in c.warps if not w.done and w.waits_for is not None]
        for warp in waiting:
            warp.give_up = True
        return bool(waiting)

    def _retire(self) -> None:
        for cluster in [c for c in self.resident if c.done]:
            cluster.finish()
            self.resident.remove(cluster)
            for warp in cluster.warps:
                self.instructions += warp.instructions
                total = self.warp_instructions.get(warp.index, 0)
                self.warp_instructions[warp.index] = total + warp.instructions
            cluster.forget()

    def _watch(self) -> None:
        total = self.instructions + sum(w.instructions for c in self.resident for w in c.warps)
        if total > self.grid.watchdog:
            raise Watchdog(self.grid.program.function.name, total, self._hottest())

    def _hottest(self) -> list[str]:
        program = self.grid.program
        counts = self.grid.counts
        busiest = sorted(range(len(counts)), key=lambda b: -counts[b])[:3]
        first = [program.function.instructions[program.starts[b]] for b in busiest]
        return [f"line {i.line}: {i.text}  ({counts[b]} times)" for b, i in zip(busiest, first, strict=True)]
