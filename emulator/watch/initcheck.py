"""initcheck: values that nobody has written, followed until they matter.

Registers, shared, tensor and local memory and fresh outputs begin undefined. Moves, arithmetic and copies pass that
on, byte by byte and lane by lane; it is reported where it decides something: an address, a branch, an operand of a copy
or a barrier, a matrix operand or accumulator, a value stored to a tensor. So padding that is loaded and then masked off
is no finding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emulator.builders.lanes import FULL
from emulator.events import (
    Access,
    AsyncBegin,
    AsyncEnd,
    Choice,
    ClusterEnd,
    Issue,
    LaunchBegin,
    Synchronise,
    TensorAllocation,
    WarpId,
)
from emulator.isa.warplike import ballot
from emulator.watch import transfers
from emulator.watch.launched import TOOL, Launched, data_slots
from emulator.watch.operations import Operation, complete, first_undefined
from emulator.watch.plans import Plan, Use
from emulator.watch.registers import ALL, Origin, Registers, fold, planes
from emulator.watch.report import Reporter
from emulator.watch.undefined import GlobalShadows

_NOBODY = WarpId((-1, -1, -1), -1, -1)


class Initcheck(Reporter):
    """The listener; one object serves any number of launches."""

    tool = TOOL

    def __init__(self) -> None:
        super().__init__()
        self._globals = GlobalShadows()
        self._who = _NOBODY
        self._warp: Registers
        self._launched: Launched
        self._operations: dict[int, Operation] = {}
        self._steps: dict[type, Callable[[Any], None]] = {
            Issue: self._issue,
            Access: self._access,
            AsyncBegin: self._begin_operation,
            AsyncEnd: self._end_operation,
            Choice: self._choice,
            Synchronise: self._synchronise,
            TensorAllocation: self._allocation,
            LaunchBegin: self._launch,
            ClusterEnd: self._cluster_end,
        }
        self.records = frozenset(self._steps)

    def __call__(self, record: Any) -> None:
        """Take one record."""
        self._steps[type(record)](record)

    # ---------------------------------------------------------------- launches and warps
    def _launch(self, begin: LaunchBegin) -> None:
        self._launched = Launched(begin, self._found, self._globals)
        self._made = self._launched.plans.made
        self._operations.clear()
        self._who = _NOBODY

    def _enter(self, who: WarpId) -> Registers:
        """The registers of a warp, which becomes the current one."""
        if who is not self._who:
            self._who, self._warp = who, self._launched.registers(who)
        return self._warp

    def _cluster_end(self, end: ClusterEnd) -> None:
        self._launched.forget(end.cluster)
        self._who = _NOBODY

    def _allocation(self, record: TensorAllocation) -> None:
        if not record.release:
            self._launched.tensor(record.who, record.rank).allocate(record.column, record.columns)

    # ---------------------------------------------------------------- instructions
    def _issue(self, record: Issue) -> None:
        warp = self._warp if record.who is self._who else self._enter(record.who)
        plan = self._made[record.index] or self._launched.plans.make(record.index)
        warp.plan, warp.index, warp.mask = plan, record.index, record.mask
        undefined = warp.undefined
        for slot in plan.watched:
            if undefined[slot]:
                self._careful(warp, plan, record)
                return
        warp.dirty = False
        if plan.settled:
            for slot in plan.targets:
                if undefined[slot]:
                    undefined[slot] &= ~warp.planes()

    def _careful(self, warp: Registers, plan: Plan, record: Issue) -> None:
        """Some register that matters here is undefined in some lane, perhaps in one that does not execute."""
        undefined = warp.undefined
        if plan.guard is not None and undefined[plan.guard]:
            self._guard(warp, plan, plan.guard, record)
        mask = warp.planes()
        warp.dirty = any(undefined[slot] & mask for slot in plan.watched)
        if not warp.dirty:
            if plan.settled:
                for slot in plan.targets:
                    undefined[slot] &= ~mask
            return
        for use in plan.uses:
            self._use(warp, use)
        if not plan.rule:
            warp.propagate(plan.writes)

    def _guard(self, warp: Registers, plan: Plan, slot: int, record: Issue) -> None:
        active = ALL if record.active is FULL else ballot(record.active)
        lanes = fold(warp.undefined[slot]) & active
        if lanes:
            what = "the predicate of a branch" if plan.branch else "the predicate of an instruction"
            self._launched.report_register(warp, slot, lanes, "uninitialised predicate", what)

    def _use(self, warp: Registers, use: Use) -> None:
        for slot in use.slots:
            lanes = fold(warp.undefined[slot]) & warp.lanes()
            if lanes:
                self._launched.report_register(warp, slot, lanes, use.kind, use.what)

    # ---------------------------------------------------------------- what handlers decide
    def _choice(self, record: Choice) -> None:
        warp = self._enter(record.who)
        warp.chosen = record.lanes
        if warp.plan.rule == "group product":
            self._group_product(warp, bool(record.lanes.any()))
        elif warp.dirty and warp.plan.rule == "choice":
            warp.choose(warp.plan.writes, ballot(record.lanes))

    def _synchronise(self, record: Synchronise) -> None:
        if record.what == "warp.sync":
            warp = self._enter(record.who)
            if warp.dirty and warp.plan.rule in transfers.MEETING:
                transfers.across(warp)
        elif record.what == "mbarrier.inval":
            self._launched.shared(record.who, record.key[0]).define(np.array([record.key[1]]), 8)

    def _group_product(self, warp: Registers, adds: bool) -> None:
        """A wgmma is issued: A in registers and, when it adds, D must be defined; then D is."""
        effect = warp.plan.effect
        assert effect is not None
        into, a = effect.arguments["into"], effect.arguments["a"]
        named = [(slot, "uninitialised matrix operand", "operand A of a matrix product") for slot in _slots(a)]
        if adds:
            named += [(slot, "uninitialised accumulator", "the accumulator that is added to") for slot in into]
        for slot, kind, what in named:
            lanes = fold(warp.undefined[slot]) & warp.lanes()
            if lanes:
                self._launched.report_register(warp, slot, lanes, kind, what)
        for slot in into:
            warp.undefined[slot] &= ~warp.planes()

    # ---------------------------------------------------------------- memory
    def _access(self, record: Access) -> None:
        if record.operation >= 0:
            operation = self._operations.get(record.operation)
            if operation is not None:
                (operation.reads if record.kind == "read" else operation.writes).append(record)
            return
        warp = self._enter(record.who)
        rule = warp.plan.rule
        if record.space == "tensor":
            self._tensor_access(warp, record, rule)
        elif rule == "load" and record.kind == "read":
            self._load(warp, record)
        elif rule == "atomic":
            self._atomic(warp, record)
        elif record.kind == "write":
            self._store(warp, record, rule == "store" and warp.dirty)

    def _load(self, warp: Registers, record: Access) -> None:
        listed = record.addresses.tolist()
        low, high = min(listed), max(listed) + record.nbytes
        region, shadow = self._launched.region(record, low, high)
        if shadow is None or shadow.clean(low, high):
            self._loaded(warp, record)
            return
        found = shadow.get(record.addresses.astype(np.int64), record.nbytes)
        if not found.any():
            self._loaded(warp, record)
            return
        bad = int(record.addresses[int(np.flatnonzero(found.any(axis=1))[0])])
        first = shadow.first(bad, bad + record.nbytes)
        warp.loading = self._launched.source(record, region, first, warp.index)
        transfers.loaded(warp, record, found)

    @staticmethod
    def _loaded(warp: Registers, record: Access) -> None:
        """Everything that was loaded is defined."""
        for slot in warp.plan.targets:
            if warp.undefined[slot]:
                warp.undefined[slot] &= ~planes(warp.loaded_lanes(record))

    def _store(self, warp: Registers, record: Access, dirty: bool) -> None:
        listed = record.addresses.tolist()
        low, high = min(listed), max(listed) + record.nbytes
        region, shadow = self._launched.region(record, low, high)
        values = transfers.stored(warp, record) if dirty else None
        if values is not None and not values.any():
            values = None
        if values is None:
            if shadow is not None and not shadow.clean(low, high):
                shadow.define(record.addresses.astype(np.int64), record.nbytes)
            return
        addresses = record.addresses.astype(np.int64)
        if self._launched.is_output(record, region):
            place = self._launched.place(record, region, first_undefined(addresses, values))
            self._launched.report_stored(warp, place, data_slots(warp, "values"))
            if shadow is not None:
                shadow.define(addresses, record.nbytes)
        elif shadow is not None:
            shadow.put(addresses, values, record.nbytes)
            self._launched.taint(record, addresses[values.any(axis=1)], self._source(warp))

    def _source(self, warp: Registers) -> Origin:
        """Where what the instruction stores comes from."""
        slots = data_slots(warp, "values")
        known = next((warp.origins[s] for s in slots if warp.undefined[s] and s in warp.origins), None)
        bad = next((s for s in slots if warp.undefined[s]), slots[0])
        text = f"register {self._launched.register_name(bad)}, which no instruction has written"
        return known or Origin(text, self._launched.where(warp.who, warp.index))

    def _atomic(self, warp: Registers, record: Access) -> None:
        """Read-modify-write: the memory must be defined, and what goes to a tensor."""
        launched, slots = self._launched, data_slots(warp, "sources")
        for address, lane in zip(record.addresses.tolist(), warp.lane_list(record), strict=True):
            region, shadow = launched.region(record, address, address + record.nbytes)
            bad = any(fold(warp.undefined[s]) >> lane & 1 for s in slots)
            if shadow is not None and not shadow.clean(address, address + record.nbytes):
                place = launched.place(record, region, address)
                missing = f"{place} must be written before an atomic operation reads it"
                key = ("uninitialised operand", launched.begin.kernel, warp.index, "memory")
                launched.report(key, key[0], launched.where(warp.who, warp.index), place, missing, None)
            if bad and launched.is_output(record, region):
                launched.report_stored(warp, launched.place(record, region, address), slots)
                bad = False
            if shadow is not None:
                shadow.fill(address, address + record.nbytes, 0xFF if bad else 0)
        for slot in warp.plan.targets:
            warp.undefined[slot] &= ~planes(warp.loaded_lanes(record))

    def _tensor_access(self, warp: Registers, record: Access, rule: str) -> None:
        words = self._launched.tensor(record.who, record.rank)
        if record.kind == "read" and rule == "load":
            found = words.get(record.addresses)
            if found.any():
                at = int(record.addresses[found != 0][0])
                warp.loading = self._launched.source(record, None, at, warp.index)
                transfers.loaded_words(warp, found)
            else:
                self._loaded(warp, record)
        elif record.kind == "write":
            values = transfers.stored_words(warp, record) if warp.dirty and rule == "store" else None
            words.put(record.addresses, 0 if values is None else values)
            if values is not None and values.any():
                self._launched.taint(record, record.addresses[values != 0], self._source(warp))

    # ---------------------------------------------------------------- asynchronous operations
    def _begin_operation(self, record: AsyncBegin) -> None:
        index = record.at if record.at >= 0 else self._enter(record.who).index
        product = record.unit == "wgmma" or record.what.startswith("tcgen05.mma")
        self._operations[record.operation] = Operation(record.who, index, product)

    def _end_operation(self, record: AsyncEnd) -> None:
        operation = self._operations.pop(record.operation, None)
        if operation is not None:
            complete(self._launched, operation)


def _slots(a: Any) -> tuple[int, ...]:
    return a if isinstance(a, tuple) else ()
