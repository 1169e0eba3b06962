"""A cluster of CTAs: what runs together, with its operations in flight and its cluster barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.errors import MemoryFault
from emulator.events import AsyncBegin, AsyncEnd
from emulator.machine.cta import Coordinates, Cta
from emulator.machine.pending import InFlight, Operation
from emulator.machine.warp import Warp

if TYPE_CHECKING:
    from emulator.machine.grid import Grid


_UNUSED = np.random.default_rng(0)


class Ctas(list[Cta]):
    """The CTAs of a cluster by rank. Ranks come out of shared::cluster addresses, which a kernel may compute
    wrongly."""

    def __getitem__(self, rank: Any) -> Any:
        """The CTA of a rank, or a slice; MemoryFault for a rank that the cluster does not have."""
        if not isinstance(rank, slice) and rank >= len(self):
            raise MemoryFault(f"shared::cluster address of rank {rank}; the cluster has {len(self)} CTA(s)")
        return super().__getitem__(rank)


class Cluster:
    """The CTAs with consecutive ranks that share distributed shared memory."""

    def __init__(self, grid: Grid, origin: Coordinates, number: int) -> None:
        self.grid = grid
        self.origin = origin
        self.number = number
        # Making a generator takes longer than a small CTA runs.
        self.random = np.random.default_rng([grid.seed, number]) if grid.policy == "random" else _UNUSED
        self.in_flight = InFlight(grid.policy, self.random, self._finished)
        cx, cy, cz = grid.cluster
        positions = [(i, j, k) for k in range(cz) for j in range(cy) for i in range(cx)]
        self.ctas = Ctas(
            Cta(self, (origin[0] + p[0], origin[1] + p[1], origin[2] + p[2]), rank, p)
            for rank, p in enumerate(positions)
        )
        for cta in self.ctas:
            if cta.native is not None:
                cta.native.join([c.native for c in self.ctas])
        self.warps = [w for c in self.ctas for w in c.warps]

    def start(
        self,
        warp: Warp,
        unit: str,
        what: str,
        complete: Callable[[int], None],
        channel: Any = None,
        signals: tuple[Any, ...] = (),
    ) -> Operation:
        """Issue an asynchronous operation. Under `in_order` it has completed when this returns."""
        at = warp.at
        number = self.grid.next_operation()
        operation = Operation(number, what, complete, lambda: warp.where(at), channel, signals)
        if self.grid.bus.on:
            self.grid.bus.publish(AsyncBegin(warp.id, number, unit, what))
        self.in_flight.add(operation)
        return operation

    def _finished(self, operation: Operation) -> None:
        self.grid.changes += 1
        if self.grid.bus.on:
            self.grid.bus.publish(AsyncEnd(operation.number))

    @property
    def done(self) -> bool:
        """All warps have ended."""
        return all(w.done for w in self.warps)

    def finish(self) -> None:
        """Complete what is left in flight and release the CTAs."""
        self.in_flight.drain()
        for cta in self.ctas:
            cta.release()

    def forget(self) -> None:
        """Let the memory of the CTAs go at once: they, their warps and the cluster refer to each other."""
        for cta in self.ctas:
            cta.warps.clear()
        self.ctas.clear()
        self.warps.clear()
