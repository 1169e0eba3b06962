"""A CTA: its warps, shared and tensor memory, barriers, and its place in the grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emulator.builders.lanes import FULL, LANE
from emulator.errors import BarrierFault, EmulatorError
from emulator.machine.warp import Warp
from emulator.memory.shared import SharedMemory
from emulator.memory.tmem import TensorMemory
from emulator.units.mbarrier import Mbarrier

if TYPE_CHECKING:
    from emulator.machine.cluster import Cluster

Coordinates = tuple[int, int, int]


class NamedBarrier:
    """One of the 16 hardware barriers: threads arrived in this generation, and what a reduction has gathered."""

    def __init__(self) -> None:
        self.arrived = 0
        self.generation = 0
        self.expected = 0
        self.votes: dict[int, tuple[int, int]] = {}


class Cta:
    """State of one CTA."""

    def __init__(self, cluster: Cluster, coordinates: Coordinates, rank: int, position: Coordinates) -> None:
        grid = cluster.grid
        self.cluster = cluster
        self.coordinates = coordinates
        self.rank = rank
        self.position = position
        self.threads = grid.block[0] * grid.block[1] * grid.block[2]
        self.shared = SharedMemory(grid.shared_extent, f"CTA {coordinates} shared memory")
        self._tensor: TensorMemory | None = None
        self._scalars: dict[str, int] | None = None
        self.mbarriers: dict[int, Mbarrier] = {}
        self.barriers: dict[int, NamedBarrier] = {}
        self.counts = grid.counts
        self._local = None
        self.local_base = 0
        warps = -(-self.threads // 32)
        if grid.program.layout.local_bytes:
            nbytes = warps * 32 * grid.program.layout.local_bytes
            self._local = grid.memory.allocate(nbytes, f"local memory of CTA {coordinates}")
            self.local_base = self._local.address
        self.native = None if grid.context is None else grid.context.cta(self)
        kind = Warp if grid.context is None else grid.context.warp_type
        self.warps = [kind(self, w, self._lanes(w)) for w in range(warps)]

    def _lanes(self, warp: int) -> np.ndarray:
        left = self.threads - 32 * warp
        return FULL if left >= 32 else LANE < left

    @property
    def tensor(self) -> TensorMemory:
        """Tensor memory, made when first touched (sm_90 kernels never do)."""
        if self._tensor is None:
            self._tensor = TensorMemory(f"CTA {self.coordinates} tensor memory")
            if self.native is not None:
                self.native.add_tensor(self._tensor)
        return self._tensor

    def mbarrier(self, offset: int) -> Mbarrier:
        """The mbarrier at a shared offset. Raises BarrierFault if none was initialised there."""
        barrier = self.mbarriers.get(offset)
        if barrier is None:
            known = ", ".join(f"{o:#x}" for o in sorted(self.mbarriers)) or "none"
            raise BarrierFault(
                f"no mbarrier was initialised at shared offset {offset:#x} of CTA {self.coordinates}; known: {known}"
            )
        return barrier

    def barrier(self, number: int) -> NamedBarrier:
        """Named barrier 0..15."""
        if not 0 <= number < 16:
            raise BarrierFault(f"named barrier {number}: allowed 0..15")
        return self.barriers.setdefault(number, NamedBarrier())

    def release(self) -> None:
        """Give local memory back; report tensor memory that was never deallocated."""
        if self._local is not None:
            self.cluster.grid.memory.unregister(self._local)
            self._local = None
        if self._tensor is not None and self._tensor.allocations:
            left = ", ".join(f"{n} columns at {c}" for c, n in self._tensor.allocations.items())
            raise EmulatorError(f"CTA {self.coordinates} ended without tcgen05.dealloc of {left}")

    def special(self, name: str, warp: int) -> np.ndarray:
        """A special register of one of this CTA's warps, u32[32]."""
        if name in _PER_LANE:
            return _PER_LANE[name](LANE + np.uint32(32 * warp), self.cluster.grid.block)
        return np.full(32, self.scalar(name, warp), np.uint32)

    def scalar(self, name: str, warp: int) -> int:
        """A special register that is the same in all lanes of a warp."""
        if name == "warpid":
            return warp
        if self._scalars is None:
            self._scalars = self._make_scalars()
        if name not in self._scalars:
            raise EmulatorError(f"special register %{name} is not implemented")
        return self._scalars[name]

    def _make_scalars(self) -> dict[str, int]:
        grid = self.cluster.grid
        size = grid.cluster[0] * grid.cluster[1] * grid.cluster[2]
        table = {
            "nwarpid": -(-self.threads // 32),
            "smid": self.cluster.number % grid.multiprocessors,
            "nsmid": grid.multiprocessors,
            "gridid": 0,
            "cluster_ctarank": self.rank,
            "cluster_nctarank": size,
            "dynamic_smem_size": grid.dynamic_shared,
            "total_smem_size": grid.shared_extent,
            "aggr_smem_size": grid.shared_extent,
            "is_explicit_cluster": int(size > 1),
        }
        for k, axis in enumerate("xyz"):
            table |= {
                f"ntid.{axis}": grid.block[k],
                f"ctaid.{axis}": self.coordinates[k],
                f"nctaid.{axis}": grid.grid[k],
                f"cluster_ctaid.{axis}": self.position[k],
                f"cluster_nctaid.{axis}": grid.cluster[k],
                f"clusterid.{axis}": self.coordinates[k] // grid.cluster[k],
                f"nclusterid.{axis}": grid.grid[k] // grid.cluster[k],
            }
        return table


_BIT = np.uint32(1) << LANE
_BELOW = _BIT - np.uint32(1)
_PER_LANE: dict[str, Callable[[np.ndarray, Coordinates], np.ndarray]] = {
    "tid.x": lambda thread, block: thread % np.uint32(block[0]),
    "tid.y": lambda thread, block: thread // np.uint32(block[0]) % np.uint32(block[1]),
    "tid.z": lambda thread, block: thread // np.uint32(block[0] * block[1]),
    "laneid": lambda thread, block: LANE.copy(),
    "lanemask_eq": lambda thread, block: _BIT.copy(),
    "lanemask_lt": lambda thread, block: _BELOW.copy(),
    "lanemask_le": lambda thread, block: _BELOW | _BIT,
    "lanemask_ge": lambda thread, block: ~_BELOW,
    "lanemask_gt": lambda thread, block: ~(_BELOW | _BIT),
}
"""Special registers that differ between lanes: functions of the thread's index and the block."""
