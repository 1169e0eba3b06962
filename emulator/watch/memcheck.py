"""memcheck: accesses that reach memory which is there, but not theirs.

The machine itself refuses what lies outside every tensor, misaligned accesses and writes to read-only memory;
`failed` turns such a fault into a finding. What is left: an address computed from one tensor that lands in another, or
in the gap between the elements of a strided one; shared memory outside the variable that was named; local memory of
another thread; an output element that two warps write with different values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from emulator.errors import MemoryFault, Where
from emulator.events import Access, AsyncBegin, LaunchBegin, LaunchEnd, WarpId
from emulator.memory.globals import Region
from emulator.memory.spaces import SHARED_RESERVED
from emulator.watch.bounds import Bounds, Expected
from emulator.watch.finding import Finding
from emulator.watch.report import Reporter, element_text, function_of, nearest, shared_text, where
from emulator.watch.writers import Clash, Writers

_ADDRESS = re.compile(r" at (?:[^,;]*? offset )?(0x[0-9a-f]+)")
_KINDS = (
    ("misaligned", "misaligned"),
    ("must be a multiple", "misaligned"),
    ("must be multiples", "misaligned"),
    ("is needed", "misaligned"),
    ("read-only", "write to read-only memory"),
)
"""Words of the machine's messages and what they are called here; anything else is out of bounds."""


class Memcheck(Reporter):
    """The listener; one object serves any number of launches. once: report output elements that two warps write."""

    tool = "memcheck"

    def __init__(self, once: bool = True) -> None:
        super().__init__()
        self._once = once
        self._begin: LaunchBegin | None = None
        self._clash: Clash | None = None
        self._steps: dict[type, Callable[[Any], None]] = {
            LaunchBegin: self._launch,
            Access: self._access,
            AsyncBegin: self._operation,
            LaunchEnd: lambda end: None,
        }
        self.records = frozenset(self._steps)

    def __call__(self, record: Any) -> None:
        """Take one record."""
        if self._clash is not None:
            self._settle()
        self._steps[type(record)](record)

    def failed(self, error: BaseException) -> None:
        """A launch has ended with an error: a fault of memory becomes a finding."""
        if self._clash is not None:
            self._settle()
        if isinstance(error, MemoryFault):
            self._found.add(("fault", str(error)), self._finding_of(error))

    def _finding_of(self, error: MemoryFault) -> Finding:
        text = str(error.args[0]) if error.args else str(error)
        kind = next((kind for words, kind in _KINDS if words in text), "out of bounds")
        found = _ADDRESS.search(text)
        memory, _, rest = text.partition("; ")
        if found and self._begin is not None and "shared" not in text:
            region = nearest(self._begin.state.memory.regions, int(found[1], 16))
            if region is not None and kind == "out of bounds":
                memory = f"{memory}: {element_text(region, int(found[1], 16))}"
        missing = rest or "the access must stay inside the memory that the kernel was given"
        at = error.where or Where("", (0, 0, 0), 0, 0, "")
        return Finding(self.tool, kind, at, memory, missing, None, function_of(at))

    # ---------------------------------------------------------------- launches and operations
    def _launch(self, begin: LaunchBegin) -> None:
        self._begin = begin
        self._bounds = Bounds(begin)
        self._writers = Writers(begin.state.memory)
        self._issued: dict[int, int] = {}
        self._expected: dict[tuple[int, str], Expected] = {}

    def _operation(self, record: AsyncBegin) -> None:
        self._issued[record.operation] = record.at

    def _access(self, record: Access) -> None:
        if record.space == "tensor" or not record.addresses.size:
            return
        index = record.at if record.operation < 0 else self._issued.get(record.operation, -1)
        listed = record.addresses.ravel().tolist()
        if record.space == "shared":
            self._shared(record, index, listed)
        else:
            self._global(record, index, listed)

    # ---------------------------------------------------------------- shared memory
    def _shared(self, record: Access, index: int, listed: list[int]) -> None:
        low, high = min(listed), max(listed) + record.nbytes
        expected = self._expectation(record, index)
        if expected.low <= low and high <= expected.high:
            return
        outside = _first_outside(listed, record.nbytes, expected)
        if self._begin is None or high > self._begin.state.shared_extent or low < 0:
            return
        place = shared_text(self._begin, record.rank, outside)
        if low < SHARED_RESERVED:
            missing = f"the first {SHARED_RESERVED} bytes of shared memory belong to the system"
        else:
            missing = f"the address is computed from {expected.name}, which ends at offset {expected.high:#x}"
        self._add("out of bounds", record, index, place, missing)

    def _expectation(self, record: Access, index: int) -> Expected:
        # Bulk copies take their addresses from a map or count them on; those of cp.async are the operands.
        key = (index if record.proxy == "generic" else -1, record.space)
        found = self._expected.get(key)
        if found is None:
            found = self._expected[key] = self._bounds.expected(*key)
        return found

    # ---------------------------------------------------------------- global memory
    def _global(self, record: Access, index: int, listed: list[int]) -> None:
        low, high = min(listed), max(listed) + record.nbytes
        expected = self._expectation(record, index)
        region = self._bounds.region(low)
        if expected.low > low or high > expected.high:
            outside = _first_outside(listed, record.nbytes, expected)
            there = self._bounds.region(outside)
            # Outside every tensor the machine itself speaks.
            if there is not None and expected.region is not None:
                missing = f"the address is computed from {expected.name}, but lies in {there}"
                self._add("out of bounds", record, index, element_text(expected.region, outside), missing)
        if region is None or high > region.end:
            if expected.region is None:
                self._crossing(record, index, low, high)
            return
        if region.name.startswith("local memory"):
            self._local(record, index, region)
        elif self._bounds.has_gaps(region):
            self._gaps(record, index, region)
        if self._once and region.poisoned:
            self._clash = self._writers.note(record, index, region)

    def _crossing(self, record: Access, index: int, low: int, high: int) -> None:
        """The lanes of one access lie in several tensors: evenly spaced lanes run from one into the next."""
        last = self._bounds.region(high - record.nbytes)
        first = self._bounds.region(low)
        if first is None or last is None or first is last or record.addresses.size < 3:
            return
        steps = np.diff(np.sort(record.addresses.ravel().astype(np.int64)))
        if (steps == steps[0]).all() and steps[0] and steps[0] <= 4 * record.nbytes:
            missing = f"evenly spaced lanes begin in {first} and run on into {last}"
            self._add("out of bounds", record, index, element_text(first, high - record.nbytes), missing)

    def _local(self, record: Access, index: int, region: Region) -> None:
        """Every thread has its own part of local memory."""
        if self._begin is None:
            return
        each = self._begin.state.program.layout.local_bytes
        lanes = np.arange(32) if record.lanes is None else record.lanes
        addresses = record.addresses.astype(np.int64).ravel()
        if addresses.size != lanes.size:
            return
        start = region.address + (record.who.warp * 32 + lanes) * each
        bad = (addresses < start) | (addresses + record.nbytes > start + each)
        if bad.any():
            lane = int(lanes[bad][0])
            at = int((addresses - start)[bad][0])
            missing = f"the address is {at} bytes from the start of the {each} bytes that the lane owns"
            self._add("out of bounds", record, index, f"local memory of another thread, from lane {lane}", missing)

    def _gaps(self, record: Access, index: int, region: Region) -> None:
        """Between the elements of a strided tensor there may be bytes that are not its own."""
        addresses = record.addresses.astype(np.int64).ravel()
        bad = self._bounds.in_gap(region, addresses)
        if bad is not None:
            missing = f"no element of {region} lies there: its strides are {region.strides} bytes"
            self._add("out of bounds", record, index, f"{region.name} + {bad - region.address} bytes", missing)

    def _settle(self) -> None:
        """The write that clashed with another warp's has happened by now: was it of another value?"""
        clash, self._clash = self._clash, None
        address = clash.changed() if clash is not None else None
        if clash is not None and address is not None and self._begin is not None:
            missing = "an element of an output is written once, or read before it is written again"
            other = where(self._begin, clash.who, clash.at)
            place = element_text(clash.region, address)
            self._add("written twice", clash.record, clash.index, place, missing, other)

    def _add(self, kind: str, record: Access, index: int, place: str, missing: str, other: Where | None = None) -> None:
        if self._begin is None:
            return
        key: Hashable = (kind, self._begin.kernel, index, record.space, None if other is None else other.line)
        if not self._found.count(key):
            at = self._where(record.who, index)
            roles = function_of(at), function_of(other)
            self._found.add(key, Finding(self.tool, kind, at, f"{record.kind} of {place}", missing, other, *roles))

    def _where(self, who: WarpId, index: int) -> Where:
        assert self._begin is not None
        return where(self._begin, who, max(index, 0))


def _first_outside(listed: list[int], nbytes: int, expected: Expected) -> int:
    """The lowest address that is not inside the bounds."""
    return min(at for at in listed if at < expected.low or at + nbytes > expected.high)
