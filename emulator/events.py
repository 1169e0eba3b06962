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
    """A warp issues the static instruction `index` for the lanes of `mask` (bool[32]); `active` (bool[32]) are
    the lanes that have come here, those included that the instruction's own predicate excludes."""

    who: WarpId
    index: int
    mask: np.ndarray
    active: np.ndarray


@dataclass(frozen=True)
class Choice:
    """Which operands count at the instruction that was issued last, per lane: `selp` takes its first where `lanes`
    (bool[32]) is true, a shuffle reads from lane `lanes` (int[32]), a wgmma adds to D where true."""

    who: WarpId
    lanes: np.ndarray


@dataclass(frozen=True)
class Access:
    """A read or write of memory. `space` is global, shared or tensor; `kind` is read, write or atomic; `proxy` is
    generic, async (bulk copies) or tensor (tcgen05, wgmma). `addresses` are byte addresses (for tensor memory:
    lane<<16 | column), each `nbytes` wide; `rank` names the CTA of the cluster that owns shared or tensor memory.
    `operation` is the asynchronous operation whose completion this is, -1 for an access of the warp itself; `at` the
    static instruction (of an operation: -1, see its `AsyncBegin`). `lanes` are the lanes that gave the addresses, one
    each (int [n]); None: one instruction of the whole warp, or address k from lane k if there are 32."""

    who: WarpId
    space: str
    kind: str
    proxy: str
    addresses: np.ndarray
    nbytes: int
    rank: int = 0
    operation: int = -1
    at: int = -1
    lanes: np.ndarray | None = None


@dataclass(frozen=True)
class Synchronise:
    """A synchronising step, published when it has succeeded. `key` identifies the barrier, (rank, address) or (rank,
    number), or the warp, (rank, warp). `lanes` is the word of the lanes that take it, `at` the static instruction.
    `operation`: the asynchronous operation that does it, or -1.

    what and `detail`:
    - `bar.arrive` (threads, generation), also of bar.sync and bar.red; `bar.sync` (generation) when the warp goes on
    - `mbarrier.init` (count); `.inval`; `.arrive`, `.arrive_drop` (arrivals), with `.expect_tx` (bytes), `.expect_tx`,
      `.complete_tx` (bytes); `.wait` (parity). `phase` is the number of phases completed before the step (of a wait:
      now), `ended` tells whether the step has ended a phase
    - `barrier.cluster.arrive.release`, `….relaxed`, `barrier.cluster.wait` (how many by these lanes, this one
      included)
    - `warp.sync`: the lanes have met in a `.sync` instruction (members: the word of lanes that it names)
    - `commit_group`, `wait_group`, `wait_group.read` (groups allowed): key (rank, warp), `detail` begins with the kind
      of group (0 cp.async, 1 bulk, 2 wgmma)
    - `cp.async.mbarrier.arrive` (1 with .noinc), before its `mbarrier.arrive` by an operation
    - fences by their opcode; `tcgen05.wait::ld`, `tcgen05.wait::st`, `tcgen05.fence::…`, `wgmma.fence`
    """

    who: WarpId
    what: str
    key: tuple[int, int]
    detail: tuple[int, ...] = ()
    lanes: int = 0xFFFFFFFF
    operation: int = -1
    at: int = -1
    phase: int = -1
    ended: bool = False


GROUPS = {"copy": 0, "bulk": 1, "wgmma": 2}
"""Numbers of the kinds of commit groups in `Synchronise.detail`."""


@dataclass(frozen=True)
class AsyncBegin:
    """An asynchronous operation is issued by the lanes of the word `lanes` at static instruction `at`: `operation` is
    its number in the launch, `unit` is tma, tensor, wgmma or bulk. `group` is the kind of the commit group that it
    belongs to (copy, bulk, wgmma), or empty."""

    who: WarpId
    operation: int
    unit: str
    what: str
    lanes: int = 0xFFFFFFFF
    at: int = -1
    group: str = ""


@dataclass(frozen=True)
class AsyncEnd:
    """An asynchronous operation has completed: its effects are in memory, its barrier has been signalled."""

    operation: int


@dataclass(frozen=True)
class Turns:
    """A round of a cluster begins: which warps, counted over the cluster, run in which order, and how many blocks each
    may. `cluster` are the coordinates of its first CTA; rounds count from 1. Not published under `in_order`."""

    cluster: tuple[int, int, int]
    round: int
    turns: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TensorAllocation:
    """Tensor memory columns [column, column + columns) of a CTA are allocated (or released)."""

    who: WarpId
    rank: int
    column: int
    columns: int
    release: bool
    at: int = -1


@dataclass(frozen=True)
class ClusterEnd:
    """All warps of a cluster have ended and nothing of it is in flight any more. `cluster` are the coordinates of its
    first CTA; `ctas` are its CTAs (`machine.cta.Cta`), to look at."""

    cluster: tuple[int, int, int]
    ctas: tuple[Any, ...] = ()


Listener = Callable[[Any], None]


class Bus:
    """Fans records out to listeners, in the order of subscription. A listener with an attribute `records` (a collection
    of record types, looked at when a launch begins) gets records of these types only; `issues` tells whether anybody
    wants `Issue`."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = tuple(listeners)
        self.on = bool(self.listeners)
        self._of: dict[type, tuple[Listener, ...]] = {}
        self.issues = bool(self._wanting(Issue))

    def publish(self, record: Any) -> None:
        """Hand one record to every listener that wants its type."""
        kind = type(record)
        chosen = self._of.get(kind)
        for listener in self._wanting(kind) if chosen is None else chosen:
            listener(record)
        if kind is LaunchBegin:
            # What a listener wants may depend on the kernel.
            self._of.clear()
            self.issues = bool(self._wanting(Issue))

    def _wanting(self, kind: type) -> tuple[Listener, ...]:
        wanted = [getattr(listener, "records", None) for listener in self.listeners]
        chosen = tuple(x for x, r in zip(self.listeners, wanted, strict=True) if r is None or kind in r)
        self._of[kind] = chosen
        return chosen
