"""racecheck: two accesses to one place, one of them a write, that nothing orders; writes of the generic proxy that the
async proxy reads without a fence between them; registers of a wgmma that is in flight; CTAs that end while somebody is
at work on their shared memory. Shared, global and tensor memory (what only a tcgen05.wait would mend belongs to
`tmemcheck`).

Hand-overs of tensor memory between threads need a pair of `tcgen05.fence` (PTX ISA 9.7.16.6.2). It is demanded of
kernels that use these fences at all: those without any rely on what an mbarrier orders in practice, and strict=True
holds them to PTX as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from emulator.events import Access, ClusterEnd, Issue, LaunchBegin, LaunchEnd, TensorAllocation
from emulator.watch.agents import ClusterState, Touch
from emulator.watch.early import Early, early_operands, early_products, unfenced_products
from emulator.watch.edges import missing_edge
from emulator.watch.exits import exits
from emulator.watch.finding import Finding
from emulator.watch.naming import role, source
from emulator.watch.order import RECORDS, Order
from emulator.watch.pages import Pages
from emulator.watch.report import Findings, Reporter, element_text, nearest, shared_text, tensor_text, where
from emulator.watch.shadow import Clash, Shadow
from emulator.watch.sites import Code
from emulator.watch.tensor import TensorShadows

CACHED = 4096
_KINDS = {
    "race": "race",
    "proxy": "missing proxy fence",
    "before": "missing tcgen05.fence::before_thread_sync",
    "after": "missing tcgen05.fence::after_thread_sync",
}


class _RegisterRule(NamedTuple):
    """What finds an instruction that touches registers of a wgmma at the wrong time; how that is reported."""

    follow: Callable[[Any], Early]
    kind: str
    memory: str
    missing: str


_REGISTER_RULES = (
    _RegisterRule(
        early_products,
        "race",
        "accumulators of a wgmma",
        "the product may still write them: wgmma.wait_group is missing between",
    ),
    _RegisterRule(
        early_operands,
        "race",
        "registers of A of a wgmma",
        "the product may still read them: wgmma.wait_group is missing between",
    ),
    _RegisterRule(
        unfenced_products,
        "missing wgmma.fence",
        "registers of a wgmma",
        "other instructions have written them since the last wgmma.fence",
    ),
)


class Racecheck(Reporter):
    """The listener. One per backend: it may see any number of launches, one after another."""

    tool = "racecheck"

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        super().__init__()
        self._launch: _Launch | None = None

    @property
    def records(self) -> tuple[type, ...]:
        """What it wants to hear of: single instructions only if the kernel may touch registers of wgmma too early."""
        wanted = self._launch is not None and any(registers.needed for registers, _ in self._launch.registers)
        return (*RECORDS, Issue) if wanted else RECORDS

    def __call__(self, record: Any) -> None:
        """Take one record."""
        kind = type(record)
        if kind is LaunchBegin:
            self._launch = _Launch(record, self._found, self.strict)
        elif self._launch is not None:
            if kind is Issue:
                self._launch.issue(record)
                return
            if kind is ClusterEnd:
                self._launch.ended(record)
            elif kind is TensorAllocation:
                self._launch.tensor.allocation(self._launch.order, record)
            for touch in self._launch.order.take(record):
                self._launch.check(touch)
            if kind is LaunchEnd:
                self._launch = None


class _Launch:
    """One launch: shadows of its memories."""

    def __init__(self, begin: LaunchBegin, found: Findings, strict: bool) -> None:
        self.begin = begin
        self.found = found
        self.tool = Racecheck.tool
        self.order = Order.of(begin)
        self.tensor = TensorShadows.of(self.order)
        program = begin.state.program
        if strict:
            self.tensor.demand_fences()
        self.registers = [(rule.follow(program), rule) for rule in _REGISTER_RULES]
        self.shared: dict[tuple[int, int], Shadow] = {}
        self.unit = narrowest(self.order.code, "shared")
        self.extent = begin.state.shared_extent
        self.globals = Pages(self.order.sites, narrowest(self.order.code, "global"))
        self._cells: dict[int, tuple[np.ndarray, Any]] = {}

    def ended(self, record: ClusterEnd) -> None:
        """A cluster has ended: was anybody still at work on its shared memories? They are gone now."""
        ended = [warp.id for cta in record.ctas for warp in cta.warps]
        for registers, _ in self.registers:
            registers.forget(ended)
        cluster = self.order.clusters.get(record.cluster)
        if cluster is None:
            return
        for exit in exits(self.order, cluster, {k[1]: s for k, s in self.shared.items() if k[0] == cluster.number}):
            here = where(self.begin, exit.who, exit.at)
            self.found.add(
                (exit.kind, exit.at),
                Finding(self.tool, exit.kind, here, exit.memory, exit.missing, role=role(here)),
            )
        for key in [k for k in self.shared if k[0] == cluster.number]:
            del self.shared[key]

    def issue(self, record: Issue) -> None:
        """Follow the registers of wgmma."""
        for registers, rule in self.registers:
            other = registers.issue(record)
            if other is not None:
                here, there = where(self.begin, record.who, record.index), where(self.begin, record.who, other)
                finding = Finding(self.tool, rule.kind, here, rule.memory, rule.missing, there, role(here), role(there))
                self.found.add((rule.kind, record.index, other), finding)

    def check(self, touch: Touch) -> None:
        """Look at one access."""
        space = touch.access.space
        if space == "shared":
            if self._inside(touch.access):
                cells, lanes = self._shared_cells(touch)
                self._shadow(touch.who.cluster, touch.access.rank).access(touch, cells, lanes, self._report_shared)
        elif space == "global":
            self.globals.access(touch, self._report_global)
        else:
            for clash in self.tensor.clashes(touch):
                if clash.rule in _KINDS:
                    self._report(clash, tensor_text(touch.access.rank, clash.cell))

    def _inside(self, access: Access) -> bool:
        """Whether the access stays inside shared memory. The machine refuses another one next: memcheck's finding."""
        return bool(access.addresses.size) and int(access.addresses.max()) + access.nbytes <= self.extent

    def _shadow(self, cluster: ClusterState, rank: int) -> Shadow:
        key = (cluster.number, rank)
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = Shadow(-(-self.extent // self.unit) + 16, cluster.sites)
        return found

    def _shared_cells(self, touch: Touch) -> tuple[Any, Any]:
        """Cells of an access and the lanes that make it, in shapes that fit."""
        access, per = touch.access, max(touch.access.nbytes // self.unit, 1)
        addresses, lanes = access.addresses, touch.lanes
        if touch.picked is not None:
            addresses = addresses[touch.picked]
        if isinstance(lanes, int):
            cached = self._cells.get(id(addresses))
            if cached is not None and cached[0] is addresses:
                return cached[1], lanes
            cells = _compact(addresses.ravel() // self.unit, per)
            if access.operation >= 0:
                if len(self._cells) >= CACHED:
                    self._cells.clear()
                self._cells[id(addresses)] = (addresses, cells)
            return cells, lanes
        first = addresses.astype(np.int64) // self.unit
        if per == 1:
            return first, lanes
        return first[:, None] + np.arange(per), np.asarray(lanes)[:, None]

    # ---------------------------------------------------------------- reports
    def _report_shared(self, clash: Clash) -> None:
        self._report(clash, shared_text(self.begin, clash.touch.access.rank, clash.cell * self.unit))

    def _report_global(self, clash: Clash) -> None:
        region = nearest(self.begin.state.memory.regions, clash.cell)
        self._report(clash, f"global memory {element_text(region, clash.cell)}" if region else f"{clash.cell:#x}")

    def _report(self, clash: Clash, memory: str) -> None:
        touch, other = clash.touch, clash.other
        kind = _KINDS[clash.rule]
        here = where(self.begin, touch.who.id, touch.at)
        there = where(self.begin, other.warp, other.at) if other.warp is not None else None
        self.found.add(
            (kind, *sorted((source(here, touch.at), source(there, other.at)))),
            Finding(
                self.tool,
                kind,
                here,
                f"{memory}: {touch.access.kind} after {other.kind}",
                missing_edge(clash, self.order),
                there,
                role(here),
                role(there) if there else "",
            ),
        )


def _compact(first: np.ndarray, per: int) -> Any:
    """Runs of `per` cells each as a slice if they are all of one stretch, else as an index [n, per]."""
    if not first.size:
        return slice(0, 0)
    low, high = int(first.min()), int(first.max()) + per
    if high - low == first.size * per:
        return slice(low, high)
    return first[:, None] + np.arange(per)


def narrowest(code: Code, space: str) -> int:
    """Bytes of the smallest access that a program makes to a space or may make through a generic address: 1, 2 or 4."""
    least = 4
    for i in code.instructions:
        parts = i.opcode.split(".")
        if parts[0] not in ("ld", "st", "atom", "red"):
            continue
        named = [p for p in parts if p.split("::")[0] in ("shared", "global", "local", "param", "const")]
        if named and not named[0].startswith(space):
            continue
        digits = "".join(c for c in parts[-1].removesuffix("x2") if c.isdigit())
        bits = int(digits or 32) * (2 if parts[-1].endswith("x2") else 1)
        least = min(least, max(bits // 8, 1))
    return least
