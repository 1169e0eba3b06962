"""What a recorder has seen of one launch: plain data that every view draws from.

Two clocks. `step` counts warp-instructions in the order in which the emulator executed them (one warp at a time).
`logical` is a Lamport clock: a warp counts its own instructions, and a wait ends no earlier than what it waited for, so
things that may run at once are shown side by side. Neither is time: the emulator has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.views.labels import Labels, Pipeline, ViewError
from emulator.views.tensor_history import TensorHistory

Coordinates = tuple[int, int, int]
CLOCKS = ("logical", "step")
UNITS = ("tma", "tensor", "wgmma", "bulk")
"""Asynchronous units, as events name them."""


@dataclass(frozen=True)
class Line:
    """One static instruction: PTX line, its text, and the Python line that it came from."""

    line: int
    text: str
    file: str = ""
    python: int = 0

    @property
    def place(self) -> str:
        """`sm100.py:414`, or `PTX 812` without line information."""
        return f"{self.file.rpartition('/')[2]}:{self.python}" if self.file else f"PTX {self.line}"


@dataclass
class Span:
    """An interval on both clocks. `end` -1: it never ended."""

    begin: int
    end: int
    logical_begin: int
    logical_end: int

    def on(self, clock: str) -> tuple[int, int]:
        """(begin, end) on a clock."""
        return (self.begin, self.end) if clock == "step" else (self.logical_begin, self.logical_end)


@dataclass
class Run(Span):
    """Instructions that a warp executed without waiting: static indices `first` to `last`."""

    warp: int = 0
    first: int = 0
    last: int = 0


@dataclass
class Wait(Span):
    """A warp that could not go on. `offset`: the shared offset of the mbarrier that it waited for, -1 for something
    else, which `what` says; `by` the lane that let it go on (a warp number or the name of a unit, None if nobody did),
    at `by_begin` and `by_logical`."""

    warp: int = 0
    index: int = 0
    what: str = ""
    offset: int = -1
    by: int | str | None = None
    by_begin: int = -1
    by_logical: int = -1

    @property
    def ended(self) -> bool:
        """Whether the warp ever went on."""
        return self.end >= 0

    def released(self, clock: str) -> int:
        """When the lane `by` let it go on."""
        return self.by_begin if clock == "step" else self.by_logical


@dataclass
class Work(Span):
    """An asynchronous operation of a unit, issued by a warp at static instruction `index`."""

    number: int = 0
    unit: str = ""
    what: str = ""
    warp: int = 0
    index: int = 0


@dataclass(frozen=True)
class Mark:
    """Something that happened to an mbarrier: `kind` init, arrive, expect, wait or complete (of phase `phase`), by
    lane `by` (a warp number or the name of a unit)."""

    step: int
    logical: int
    offset: int
    kind: str
    phase: int
    by: int | str


@dataclass
class CtaRecord:
    """One CTA."""

    coordinates: Coordinates
    rank: int
    warps: int
    runs: list[Run] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    barriers: dict[int, int] = field(default_factory=dict)
    tensor: TensorHistory | None = None

    @property
    def lanes(self) -> list[int | str]:
        """Warps and the units that did something, in the order in which they are drawn."""
        used = {w.unit for w in self.work}
        return [*range(self.warps), *(u for u in UNITS if u in used), *sorted(used - set(UNITS))]

    def last(self, clock: str) -> int:
        """The latest moment of the record."""
        spans = [*self.runs, *self.waits, *self.work]
        return max((max(s.on(clock)) for s in spans), default=0)


@dataclass
class Recording:
    """One launch. `counts` int64 [static instructions]: how often warps of any CTA issued each. `ended`: false if the
    launch was stopped by a fault, a deadlock or a listener."""

    kernel: str
    grid: Coordinates
    block: Coordinates
    cluster: Coordinates
    policy: str
    labels: Labels
    lines: list[Line]
    counts: NDArray[np.int64]
    ctas: dict[Coordinates, CtaRecord] = field(default_factory=dict)
    steps: int = 0
    ended: bool = False

    def cta(self, coordinates: Coordinates | None = None) -> CtaRecord:
        """A recorded CTA, by default the first one. Raises ViewError naming those that there are."""
        if not self.ctas:
            raise ViewError(f"{self.kernel}: no CTA was recorded")
        if coordinates is None:
            return next(iter(self.ctas.values()))
        x, y, z = coordinates
        if (x, y, z) not in self.ctas:
            known = ", ".join(map(str, self.ctas))
            raise ViewError(f"cta={(x, y, z)} was not recorded; recorded: {known} (Recorder(ctas=…))")
        return self.ctas[x, y, z]

    def pipelines(self, cta: CtaRecord) -> list[Pipeline]:
        """Pipelines by the given names."""
        return self.labels.pipelines(list(cta.barriers))

    def waited_for(self, cta: CtaRecord, wait: Wait) -> str:
        """What a warp waited for, by name."""
        if wait.offset >= 0:
            return self.labels.barrier_names(list(cta.barriers)).get(wait.offset, f"mbarrier {wait.offset:#x}")
        return wait.what or self.lines[wait.index].text.split(" ")[0]

    def lane(self, lane: int | str | None) -> str:
        """A lane in words."""
        if lane is None:
            return "nobody"
        names = {"tensor": "tensor core", "tma": "TMA", "bulk": "bulk copy", "wgmma": "wgmma"}
        return self.labels.warp(lane) if isinstance(lane, int) else names.get(lane, lane)


def check_clock(clock: str) -> None:
    """Raises ViewError unless `clock` is one of `CLOCKS`."""
    if clock not in CLOCKS:
        raise ViewError(f"clock={clock!r}; allowed: {', '.join(CLOCKS)}")


def recorded(given: Any, cta: Coordinates | None) -> tuple[Recording, CtaRecord]:
    """Recording and CTA of a Recorder, a Recording or a stop of `emulator.debug`, whose own CTA is the default."""
    recording = latest(given)
    own = getattr(given, "cta", None)
    return recording, recording.cta(own if cta is None and isinstance(own, tuple) else cta)


def latest(given: Any) -> Recording:
    """A recording, or the latest one of a recorder. Raises ViewError for anything else."""
    recording = getattr(given, "recording", given)
    if not isinstance(recording, Recording):
        raise ViewError(f"a {type(given).__name__} was given; allowed: a Recording or a Recorder")
    return recording
