"""tmemcheck: tensor memory. Its allocation (twice, never freed, freed while somebody may still use it), loads and
stores that are told to others before `tcgen05.wait`, registers of a load that are read before it, and kernels that mix
cta_group::1 with cta_group::2.
"""

from __future__ import annotations

from typing import Any

from emulator.events import AsyncBegin, ClusterEnd, Issue, LaunchBegin, LaunchEnd, TensorAllocation, WarpId
from emulator.watch.early import early_loads
from emulator.watch.edges import missing_edge
from emulator.watch.faults import Translator
from emulator.watch.finding import Finding
from emulator.watch.naming import role, side, source
from emulator.watch.order import RECORDS, Order
from emulator.watch.report import Findings, tensor_text, where
from emulator.watch.shadow import Clash
from emulator.watch.tensor import TensorShadows


class Tmemcheck(Translator):
    """The listener. One per backend: it may see any number of launches, one after another.

    trust_assembler: take a tcgen05.ld to be complete when its registers are used, whether tcgen05.wait::ld stands
    between or not. PTX (9.7.16.8.1) demands the wait; quack, flash-attn and NVIDIA's examples leave it out where they
    use the registers at once, and the assembler orders that.
    """

    tool = "tmemcheck"

    def __init__(self, trust_assembler: bool = False) -> None:
        self.trust_assembler = trust_assembler
        super().__init__()
        self._launch: _Launch | None = None

    @property
    def records(self) -> tuple[type, ...]:
        """What it wants to hear of: single instructions only if the kernel may touch registers too early."""
        return (*RECORDS, Issue) if self._launch is not None and self._launch.early.needed else RECORDS

    def __call__(self, record: Any) -> None:
        """Take one record."""
        kind = type(record)
        launch = self._launch
        if kind is LaunchBegin:
            begun = _Launch(record, self._found, self.trust_assembler)
            self._launch = begun if begun.concerned else None
        elif launch is None:
            return
        elif kind is Issue:
            launch.issue(record)
        else:
            launch.take(record)
            if kind is LaunchEnd:
                self._launch = None


class _Launch:
    """One launch."""

    def __init__(self, begin: LaunchBegin, found: Findings, trusting: bool) -> None:
        self.begin = begin
        self.trusting = trusting
        self.found = found
        self.order = Order.of(begin)
        self.concerned = self.order.code.uses("tcgen05.")
        self.tensor = TensorShadows.of(self.order)
        self.groups: dict[str, tuple[WarpId, int]] = {}
        self.allocated: dict[tuple[tuple[int, int, int], int], TensorAllocation] = {}
        self.early = early_loads(begin.state.program)

    # ---------------------------------------------------------------- registers
    def issue(self, record: Issue) -> None:
        """Follow the registers of loads."""
        load = self.early.issue(record)
        if load is not None and not self.trusting:
            self._early_use(record.who, record.index, load)

    def _early_use(self, who: WarpId, at: int, load: int) -> None:
        here, there = where(self.begin, who, at), where(self.begin, who, load)
        self.found.add(
            ("missing tcgen05.wait::ld", load),
            Finding(
                "tmemcheck",
                "missing tcgen05.wait::ld",
                here,
                "registers of a tcgen05.ld",
                "the registers are touched before the load has completed: tcgen05.wait::ld is missing between",
                there,
                role(here),
                role(there),
            ),
        )

    # ---------------------------------------------------------------- memory
    def take(self, record: Any) -> None:
        """Any record of the order of events."""
        for touch in self.order.take(record):
            if touch.access.space == "tensor":
                for clash in self.tensor.clashes(touch):
                    if clash.rule in ("wait", "freed"):
                        self._clash(clash)
        if isinstance(record, TensorAllocation):
            self._allocation(record)
            self._group(record.who, record.at)
        elif isinstance(record, AsyncBegin):
            if record.unit == "tensor":
                self._group(record.who, record.at)
        elif isinstance(record, ClusterEnd):
            self._ended(record)

    def _group(self, who: WarpId, at: int) -> None:
        """All tcgen05 instructions of a kernel must name the same .cta_group (PTX ISA 9.7.16.5)."""
        opcode = self.order.code.instructions[at].opcode
        group = "cta_group::2" if "cta_group::2" in opcode else "cta_group::1"
        self.groups.setdefault(group, (who, at))
        if len(self.groups) < 2:
            return
        ((other_group, other),) = ((g, o) for g, o in self.groups.items() if g != group)
        here, there = where(self.begin, who, at), where(self.begin, *other)
        missing = f"{group} here and {other_group} there: all tcgen05 instructions of a kernel must name the same one"
        self.found.add(
            ("mixed cta_group",),
            Finding("tmemcheck", "mixed cta_group", here, "tensor memory", missing, there, role(here), role(there)),
        )

    def _clash(self, clash: Clash) -> None:
        other = clash.other
        if self.trusting and other.agent == "load":
            return
        kind = "missing tcgen05.wait::" + ("ld" if other.agent == "load" else "st")
        if clash.rule == "freed":
            missing = f"the columns are freed while this is going on: nothing orders it before {side(other)} frees them"
            self._report("early dealloc", clash, f"{clash.touch.access.kind} of freed columns", missing)
            return
        self._report(kind, clash, f"{clash.touch.access.kind} after {other.kind}", missing_edge(clash, self.order))

    def _report(self, kind: str, clash: Clash, what: str, missing: str) -> None:
        touch, other = clash.touch, clash.other
        here = where(self.begin, touch.who.id, touch.at)
        there = where(self.begin, other.warp, other.at) if other.warp is not None else None
        memory = f"{tensor_text(touch.access.rank, clash.cell)}: {what}"
        roles = role(here), role(there) if there else ""
        # A load or store without its wait is one mistake, whoever it shows with.
        places = source(here, touch.at), source(there, other.at)
        key = (kind, other.at) if "wait::" in kind else (kind, *places)
        self.found.add(key, Finding("tmemcheck", kind, here, memory, missing, there, *roles))

    # ---------------------------------------------------------------- allocation
    def _allocation(self, record: TensorAllocation) -> None:
        key = (record.who.cta, record.column)
        if not record.release:
            self.allocated[key] = record
            self.tensor.allocation(self.order, record)
            return
        self.allocated.pop(key, None)
        for clash in self.tensor.allocation(self.order, record):
            if clash.rule == "wait":
                self._clash(clash)
                continue
            self._report(
                "early dealloc",
                clash,
                f"columns {record.column}..{record.column + record.columns - 1} freed after a {clash.other.kind}",
                "the columns are freed while this may still be going on: " + missing_edge(clash, self.order),
            )

    def _ended(self, record: ClusterEnd) -> None:
        """Allocations that the CTAs of a cluster have not given back."""
        self.early.forget(warp.id for cta in record.ctas for warp in cta.warps)
        gone = {cta.coordinates for cta in record.ctas}
        for key in [k for k in self.allocated if k[0] in gone]:
            left = self.allocated.pop(key)
            here = where(self.begin, left.who, left.at)
            self.found.add(
                ("leak", left.at),
                Finding(
                    "tmemcheck",
                    "tensor memory leak",
                    here,
                    f"tensor memory columns {left.column}..{left.column + left.columns - 1}",
                    "the CTA ends without tcgen05.dealloc of this allocation",
                    role=role(here),
                ),
            )
        self.tensor.forget_ended(self.order)
