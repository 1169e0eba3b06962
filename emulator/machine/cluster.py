"""A cluster of CTAs: what runs together, with its operations in flight and its cluster barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emulator.errors import MemoryFault
from emulator.events import AsyncBegin, AsyncEnd, ClusterEnd
from emulator.machine.choices import choices
from emulator.machine.cta import Coordinates, Cta
from emulator.machine.operation import Operation
from emulator.machine.pending import InFlight
from emulator.machine.warp import Warp

if TYPE_CHECKING:
    from emulator.machine.grid import Grid


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
        self.choices = choices(grid.policy, origin, number, grid.seed, grid.schedule, grid.decisions)
        self.in_flight = InFlight(self.choices, self._finished)
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
        lanes: int = 0xFFFFFFFF,
        group: str = "",
    ) -> Operation:
        """Issue an asynchronous operation of the lanes in the word `lanes`, a member of the open commit group of kind
        `group`. Under `in_order` it has completed when this returns."""
        at = warp.at
        number = self.grid.next_operation()
        operation = Operation(number, what, complete, lambda: warp.where(at), channel, signals)
        if self.grid.bus.on:
            self.grid.bus.publish(AsyncBegin(warp.id, number, unit, what, lanes, at, group))
        self.in_flight.add(operation, warp.cta.rank * len(warp.cta.warps) + warp.index)
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
        if self.grid.bus.on:
            self.grid.bus.publish(ClusterEnd(self.origin, tuple(self.ctas)))
        for cta in self.ctas:
            cta.release()

    def forget(self) -> None:
        """Let the memory of the CTAs go at once: they, their warps and the cluster refer to each other."""
        for cta in self.ctas:
            cta.warps.clear()
        self.ctas.clear()
        self.warps.clear()
