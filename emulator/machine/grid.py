"""A launch in progress: everything that its clusters share."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from emulator.builders.llvm_values import LAUNCH
from emulator.errors import LaunchError, Watchdog
from emulator.events import Bus
from emulator.machine.cta import Coordinates
from emulator.machine.program import Blocks
from emulator.machine.schedule import Decision, Schedule
from emulator.memory.globals import GlobalMemory
from emulator.memory.spaces import LOCAL_CAPACITY, SHARED_CAPACITY

if TYPE_CHECKING:
    from emulator.machine.cluster import Cluster

MAX_THREADS = 1024
MAX_CLUSTER = 16


class Grid:
    """Configuration and shared state of one launch. `resident` are the clusters that run now."""

    def __init__(
        self,
        program: Blocks,
        grid: Coordinates,
        block: Coordinates,
        cluster: Coordinates,
        dynamic_shared: int,
        memory: GlobalMemory,
        bus: Bus,
        policy: str,
        seed: int,
        arithmetic: str,
        multiprocessors: int,
        context: Any,
        watchdog: int = 2_000_000_000,
        schedule: Schedule | None = None,
    ) -> None:
        self.program = program
        self.grid = grid
        self.block = block
        self.cluster = cluster
        self.dynamic_shared = dynamic_shared
        self.memory = memory
        self.bus = bus
        self.policy = policy
        self.seed = seed
        self.schedule = schedule
        self.decisions: list[Decision] = []
        self.arithmetic = arithmetic
        self.multiprocessors = multiprocessors
        self.context = context
        self.words = array("q", bytes(8 * len(LAUNCH)))
        self.counts = array("q", bytes(8 * program.exit_block))
        self.shared_extent = _extent(program, dynamic_shared)
        self.parameters = 0
        self.globals: dict[str, int] = {}
        self.changes = 0
        self.output: list[str] = []
        self.operations = 0
        self.watchdog = watchdog
        _check(self)
        self.resident: list[Cluster] = []
        self.pending = self._origins()

    def next_operation(self) -> int:
        """A fresh number for an asynchronous operation."""
        self.operations += 1
        if self.operations > self.watchdog:
            raise Watchdog(self.program.function.name, self.operations, [], "asynchronous operations")
        return self.operations

    def _origins(self) -> Iterator[Coordinates]:
        for z in range(0, self.grid[2], self.cluster[2]):
            for y in range(0, self.grid[1], self.cluster[1]):
                for x in range(0, self.grid[0], self.cluster[0]):
                    yield (x, y, z)

    def next_cluster(self) -> Coordinates | None:
        """Origin of the next cluster that has not been started or cancelled."""
        return next(self.pending, None)


def _extent(program: Blocks, dynamic: int) -> int:
    dynamic_at = [o for s, o in program.layout.places.values() if s == "shared"]
    start = max([program.layout.static_end, *dynamic_at]) if dynamic else program.layout.static_end
    return start + dynamic


def _check(grid: Grid) -> None:
    name = grid.program.function.name
    for what, value in (("grid", grid.grid), ("block", grid.block), ("cluster", grid.cluster)):
        if len(value) != 3 or min(value) < 1:
            raise LaunchError(f"{name}: {what} {value}: three numbers of at least 1")
    threads = grid.block[0] * grid.block[1] * grid.block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"{name}: block {grid.block} has {threads} threads; at most {MAX_THREADS}")
    if any(g % c for g, c in zip(grid.grid, grid.cluster, strict=True)):
        raise LaunchError(f"{name}: grid {grid.grid} is not a multiple of the cluster {grid.cluster}")
    if grid.cluster[0] * grid.cluster[1] * grid.cluster[2] > MAX_CLUSTER:
        raise LaunchError(f"{name}: cluster {grid.cluster} has more than {MAX_CLUSTER} CTAs")
    if grid.dynamic_shared < 0:
        raise LaunchError(f"{name}: {grid.dynamic_shared} bytes of dynamic shared memory; at least 0")
    local = grid.program.layout.local_bytes
    if local > LOCAL_CAPACITY:
        raise LaunchError(f"{name}: {local} bytes of local memory per thread; at most {LOCAL_CAPACITY}")
    used = grid.shared_extent - 1024
    if used > SHARED_CAPACITY:
        raise LaunchError(f"{name}: {used} bytes of shared memory; at most {SHARED_CAPACITY}")
    for what in ("reqntid", "maxntid"):
        bound = grid.program.function.directives.get(what)
        if bound:
            limit = (*bound, 1, 1)[:3]
            product = limit[0] * limit[1] * limit[2]
            if (what == "reqntid" and tuple(limit) != tuple(grid.block)) or threads > product:
                raise LaunchError(f"{name}: block {grid.block} contradicts .{what} {bound}")
