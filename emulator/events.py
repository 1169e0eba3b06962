"""What happens while a kernel runs, as frozen records on one bus.

Checkers and views subscribe; they never touch state. With no listener `Bus.on` is False, the translated code contains
no issue events and every unit skips building records, so an unwatched run pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class WarpId:
    """A warp of a launch: CTA coordinates in the grid, its rank in the cluster and the warp index."""

    cta: tuple[int, int, int]
    rank: int
    warp: int


@dataclass(frozen=True)
class LaunchBegin:
    """A kernel starts: entry name, grid, block and cluster (all in x, y, z). `state` is the launch in progress
    (`machine.grid.Grid`), to look at: its program's instructions and layout, its memory."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    state: Any = None


@dataclass(frozen=True)
class LaunchEnd:
    """A kernel has ended after `instructions` warp-instructions."""

    kernel: str
    instructions: int


@dataclass(frozen=True)
class Issue:
    """A warp issues the static instruction `index` for the lanes of `mask` (bool[32])."""

    who: WarpId
    index: int
    mask: np.ndarray


@dataclass(frozen=True)
class Access:
    """A read or write of memory. `space` is global, shared or tensor; `kind` is read, write or atomic; `proxy` is
    generic, async (bulk copies) or tensor (tcgen05, wgmma). `addresses` are byte addresses (for tensor memory:
    lane<<16 | column), each `nbytes` wide; `rank` names the CTA of the cluster that owns shared or tensor memory."""

    who: WarpId
    space: str
    kind: str
    proxy: str
    addresses: np.ndarray
    nbytes: int
    rank: int = 0
    operation: int = -1


@dataclass(frozen=True)
class Synchronise:
    """A synchronising step. `what` names it: `bar.sync`, `bar.arrive`, `mbarrier.init`, `mbarrier.arrive`,
    `mbarrier.wait`,
    `fence.proxy.async`, `tcgen05.wait::ld`, `barrier.cluster.arrive`, …; `key` identifies the barrier (rank,
    address) or (rank, number); `detail` holds what the step adds (count, bytes, parity)."""

    who: WarpId
    what: str
    key: tuple[int, int]
    detail: tuple[int, ...] = ()


@dataclass(frozen=True)
class AsyncBegin:
    """An asynchronous operation is issued: `operation` is its number in the launch, `unit` is tma, tensor,
    wgmma or bulk."""

    who: WarpId
    operation: int
    unit: str
    what: str


@dataclass(frozen=True)
class AsyncEnd:
    """An asynchronous operation has completed: its effects are in memory, its barrier has been signalled."""

    operation: int


@dataclass(frozen=True)
class TensorAllocation:
    """Tensor memory columns [column, column + columns) of a CTA are allocated (or released)."""

    who: WarpId
    rank: int
    column: int
    columns: int
    release: bool


Listener = Callable[[Any], None]


class Bus:
    """Fans records out to listeners, in the order of subscription."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = tuple(listeners)
        self.on = bool(self.listeners)

    def publish(self, record: Any) -> None:
        """Hand one record to every listener."""
        for listener in self.listeners:
            listener(record)
