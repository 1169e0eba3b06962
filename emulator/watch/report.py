"""What the checkers have in common: places of a launch in words, and findings that are counted instead of repeated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from emulator.errors import Where
from emulator.events import LaunchBegin, WarpId
from emulator.memory.globals import Region
from emulator.watch.finding import Finding
from emulator.watch.naming import function_at

KEPT = 1000
"""Different findings that a checker keeps; what comes later is only counted where it repeats one of them."""


class Findings:
    """Findings by what they are about: the same mistake of the same instructions is one finding with a count."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Finding] = {}

    def add(self, key: Hashable, finding: Finding) -> None:
        """Keep `finding`, or count it onto the one that was added under the same key."""
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + 1)
        elif len(self._found) < KEPT:
            self._found[key] = finding

    def count(self, key: Hashable) -> bool:
        """Count a repetition; False if nothing was added under the key."""
        known = self._found.get(key)
        if known is None:
            return False
        self._found[key] = replace(known, count=known.count + 1)
        return True

    def listed(self) -> list[Finding]:
        """All of them, in the order found."""
        return list(self._found.values())


class Reporter:
    """The front of every checker; a subclass listens, and adds to `_found`."""

    tool: str

    def __init__(self) -> None:
        self._found = Findings()

    @property
    def findings(self) -> list[Finding]:
        """What was found so far, each mistake of an instruction once, in the order found."""
        return self._found.listed()

    def failed(self, error: BaseException) -> None:
        """A launch has ended with an error. Some checkers know what it means; to the others it says nothing."""


T = TypeVar("T")


class PerProgram(Generic[T]):
    """What is worked out once for a translated kernel; that of the latest ones is kept."""

    def __init__(self, make: Callable[[Any], T], kept: int = 16) -> None:
        self._make = make
        self._kept = kept
        self._known: dict[int, tuple[Any, T]] = {}

    def __call__(self, program: Any) -> T:
        """That of `program`."""
        # The program is remembered too, or another one could get its id.
        found = self._known.pop(id(program), None) or (program, self._make(program))
        self._known[id(program)] = found
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]
        return found[1]


def where(begin: LaunchBegin, who: WarpId, index: int) -> Where:
    """Static instruction `index`, executed by a warp of the launch."""
    i = begin.state.program.function.instructions[index]
    return Where(begin.kernel, who.cta, who.warp, i.line, i.text, i.loc)


def function_of(place: Where | None) -> str:
    """The Python function that an instruction was written in; empty where nobody knows."""
    return function_at(*place.loc) if place is not None and place.loc is not None else ""


def lanes_text(mask: int) -> str:
    """`lane 3`, `lanes 0..31`, `lanes 1, 5 and 9` of a 32-bit mask."""
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    if lanes and lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"lanes {lanes[0]}..{lanes[-1]}"
    shown = ", ".join(map(str, lanes[:8])) + (", …" if len(lanes) > 8 else "")
    return f"lanes {shown}"


def variable_at(begin: LaunchBegin, offset: int) -> str:
    """The shared variable that holds an offset and the distance from its start, if it lies in one."""
    state = begin.state
    sizes = {v.name: v.nbytes for v in (*state.program.module.variables, *state.program.function.variables)}
    for name, (space, start) in state.program.layout.places.items():
        end = start + sizes.get(name, 0) if sizes.get(name) else state.shared_extent
        if space == "shared" and start <= offset < end:
            return f"{name}+{offset - start:#x}"
    return ""


def shared_text(begin: LaunchBegin, rank: int, offset: int) -> str:
    """A place in shared memory in words."""
    name = variable_at(begin, offset)
    peer = f" of CTA rank {rank}" if begin.cluster != (1, 1, 1) else ""
    return f"shared memory offset {offset:#x}{f' ({name})' if name else ''}{peer}"


def tensor_text(rank: int, address: int) -> str:
    """A place in tensor memory in words."""
    return f"tensor memory lane {address >> 16}, column {address & 0xFFFF}" + (f" of CTA rank {rank}" if rank else "")


def strides_of(region: Region) -> tuple[int, ...]:
    """Bytes between elements, one number a dimension; empty where shape and size of the region do not fit."""
    if region.strides:
        return region.strides
    count = 1
    for extent in region.shape:
        count *= extent
    if not region.shape or not count or region.nbytes % count:
        return ()
    strides, stride = [], region.nbytes // count
    for extent in reversed(region.shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def element_text(region: Region, address: int) -> str:
    """`out[3, 5]`, with an index beyond the extent for an address beyond the end; or a distance in bytes where shape
    and type of the region do not say which element it is."""
    at, strides = address - region.address, strides_of(region)
    if not strides:
        return f"{region.name} {'+' if at >= 0 else '-'} {abs(at)} bytes"
    index, left = [0] * len(strides), at
    order = sorted(range(len(strides)), key=lambda d: (-strides[d], -region.shape[d]))
    for position, d in enumerate(order):
        index[d] = left // strides[d] if position == 0 else min(left // strides[d], region.shape[d] - 1)
        left -= index[d] * strides[d]
    inside = f" + {left} bytes" if left else ""
    return f"{region.name}[{', '.join(map(str, index))}]{inside}"


def nearest(regions: Iterable[Region], address: int) -> Region | None:
    """The region that holds an address, or the one that it misses by least."""
    near: list[tuple[int, Any]] = [(max(r.address - address, address + 1 - r.end, 0), r) for r in regions if r.nbytes]
    return min(near, key=lambda pair: pair[0])[1] if near else None
