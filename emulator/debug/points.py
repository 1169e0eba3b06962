"""Places to stop at. A point is a plain description; `plan` resolves it against a kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from emulator.debug.errors import BadBreakpoint
from emulator.ptx.module import Instruction

MMA = ("tcgen05.mma", "wgmma.mma_async", "mma.sync", "wmma.mma")
EVENTS = ("arrive", "complete", "wait")
_NEAR = 4

Coordinates = tuple[int, int, int]


@dataclass(frozen=True)
class Point:
    """`kind` and `value` say where; the rest narrows it down: only this CTA (coordinates), this warp, the `times`-th
    time (from 1). Make points with the functions below, and narrow them with `of`."""

    kind: str
    value: Any
    cta: Coordinates | None = None
    warp: int | None = None
    times: int = 1

    def of(self, *, cta: Coordinates | None = None, warp: int | None = None, times: int = 1) -> Point:
        """The same place, narrowed down. Raises BadBreakpoint for times below 1."""
        if times < 1:
            raise BadBreakpoint(f"times={times}; allowed: at least 1")
        return replace(self, cta=None if cta is None else (cta[0], cta[1], cta[2]), warp=warp, times=times)

    def __str__(self) -> str:
        words = {
            "instruction": f"instruction {self.value}",
            "line": f"PTX line {self.value}",
            "python": f"Python line {self.value}",
            "named": f"named barrier {self.value}",
        }
        if self.kind == "barrier":
            name = self.value[0] if isinstance(self.value[0], str) else f"{self.value[0]:#x}"
            verb = {"arrive": "arrival at", "complete": "completion of", "wait": "wait for"}[self.value[1]]
            text = f"{verb} mbarrier {name}"
        elif self.kind == "mma":
            text = f"MMA {self.value[0]} ({self.value[1]} it)"
        else:
            text = words.get(self.kind, self.kind)
        narrowed = [f"CTA {self.cta}"] if self.cta is not None else []
        narrowed += [f"warp {self.warp}"] if self.warp is not None else []
        narrowed += [f"time {self.times}"] if self.times != 1 else []
        return ", ".join([text, *narrowed])


def instruction(index: int) -> Point:
    """Before static instruction `index` of the kernel, from 0, is executed."""
    return Point("instruction", index)


def line(number: int) -> Point:
    """Before the instruction of PTX line `number`."""
    return Point("line", number)


def python(place: str) -> Point:
    """Before the first instruction of a source line: `sm100.py:388` or a longer end of the path."""
    if not re.fullmatch(r".+:\d+", place):
        raise BadBreakpoint(f"python({place!r}); allowed: FILE:LINE, like 'sm100.py:388'")
    return Point("python", place)


def barrier(which: str | int, event: str = "complete") -> Point:
    """An mbarrier, by name or shared offset: after somebody arrives, after a phase completes, or after a wait for it
    has succeeded."""
    if event not in EVENTS:
        raise BadBreakpoint(f"barrier(event={event!r}); allowed: {', '.join(EVENTS)}")
    return Point("barrier", (which, event))


def named_barrier(number: int) -> Point:
    """After a warp arrives at `bar`/`barrier` number 0..15."""
    if not 0 <= number < 16:
        raise BadBreakpoint(f"named_barrier({number}); allowed: 0..15")
    return Point("named", number)


def mma(k: int, when: str = "after") -> Point:
    """The k-th matrix product of the launch, from 0, in the order of issue: `before` it is issued, or `after` its
    result is in memory."""
    if k < 0 or when not in ("before", "after"):
        raise BadBreakpoint(f"mma({k}, {when!r}); allowed: k at least 0, 'before' or 'after'")
    return Point("mma", (k, when))


def indices(point: Point, instructions: tuple[Instruction, ...]) -> frozenset[int]:
    """Static instructions of a point that is a place in the code; empty for other points. Raises BadBreakpoint for a
    place without an instruction, naming the nearest that have one."""
    if point.kind == "instruction":
        if not 0 <= point.value < len(instructions):
            raise BadBreakpoint(f"{point}: the kernel has instructions 0..{len(instructions) - 1}")
        return frozenset([point.value])
    if point.kind == "line":
        found = [n for n, i in enumerate(instructions) if i.line == point.value]
        if not found:
            raise BadBreakpoint(
                f"{point} holds no instruction; near: {_near(point.value, {i.line for i in instructions})}"
            )
        return frozenset(found)
    if point.kind == "python":
        return _python_indices(point, instructions)
    return frozenset()


def _python_indices(point: Point, instructions: tuple[Instruction, ...]) -> frozenset[int]:
    file, _, number = point.value.rpartition(":")
    of_file = {
        n: i.loc[1] for n, i in enumerate(instructions) if i.loc and f"/{i.loc[0]}".endswith(f"/{file.lstrip('/')}")
    }
    if not of_file:
        files = sorted({i.loc[0].rpartition("/")[2] for i in instructions if i.loc})
        known = ", ".join(files) or "none: it was compiled without line information"
        raise BadBreakpoint(f"{point}: no instruction came from {file}; files: {known}")
    wanted = [n for n, at in of_file.items() if at == int(number)]
    if not wanted:
        raise BadBreakpoint(f"{point} holds no instruction; near: {_near(int(number), set(of_file.values()))}")
    # The first instruction of each run of them: a line is entered once, not once an instruction.
    return frozenset(n for n in wanted if of_file.get(n - 1) != int(number))


def _near(number: int, known: set[int]) -> str:
    return ", ".join(map(str, sorted(sorted(known, key=lambda n: abs(n - number))[:_NEAR])))
