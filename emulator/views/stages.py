"""Occupancy of pipeline stages: free, being filled, full, being read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.views.labels import Pipeline
from emulator.views.recording import Coordinates, CtaRecord, Mark, Recording, check_clock, recorded
from emulator.views.timeline import AXIS
from emulator.views.view import COLOURS, View, heading, new_figure, plain, short, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES = ("free", "filling", "full", "being read")
"""free: released, or never used. filling: a producer has acquired it, or bytes are on their way. full: its full barrier
has completed. being read: a consumer has passed the full barrier and not all have released the stage."""
_COLOURS = dict(zip(STATES, (COLOURS["light"], COLOURS["sky"], COLOURS["orange"], COLOURS["blue"]), strict=True))


@dataclass(frozen=True)
class Occupied:
    """A stage is in `state` from `begin` to `end`; `item` counts what passes through the pipeline, from 0, if its
    stages take turns (the tile number of most loops)."""

    state: str
    begin: int
    end: int
    item: int


@dataclass(frozen=True)
class Stage:
    """One stage of one pipeline: its states without gaps."""

    pipeline: str
    number: int
    states: tuple[Occupied, ...]

    @property
    def name(self) -> str:
        """`k[1]`."""
        return f"{self.pipeline}[{self.number}]"

    def share(self, state: str) -> float:
        """Part of the run that it spends in a state, 0 to 1."""
        total = sum(s.end - s.begin for s in self.states)
        return sum(s.end - s.begin for s in self.states if s.state == state) / total if total else 0.0

    @property
    def items(self) -> int:
        """How often it was filled."""
        return len({s.item for s in self.states if s.state in ("full", "being read")})


@dataclass(frozen=True, eq=False)
class Stages(View):
    """Every stage of every pipeline of one CTA. `named`: false when no names were given and each mbarrier is shown as
    a stage of its own (full: its latest phase has completed and nobody has waited for it yet)."""

    recording: Recording
    cta: CtaRecord
    clock: str
    stages: tuple[Stage, ...]
    named: bool

    def text(self) -> str:
        """A line for each stage: items, and the share of the run in each state."""
        head = ["stage", "items", *STATES, "at the end"]
        rows = [
            [s.name, str(s.items), *(f"{round(100 * s.share(state))} %" for state in STATES), s.states[-1].state]
            for s in self.stages
        ]
        title = f"Pipeline stages of {short(self.recording.kernel)}, CTA {self.cta.coordinates}"
        return "\n".join([title, "", *table(head, rows), *self.remarks()])

    def remarks(self) -> list[str]:
        """What a reader should know or notice."""
        if not self.named:
            return ["no barriers were named NAME.full[i] / NAME.empty[i]: every mbarrier is shown by itself"]
        if self.recording.ended:
            return []
        held = [s.name for s in self.stages if s.states[-1].state == "being read"]
        starved = [s.name for s in self.stages if s.states[-1].state == "filling"]
        found = [f"never released before the launch stopped: {', '.join(held)}"] if held else []
        return found + ([f"never filled before the launch stopped: {', '.join(starved)}"] if starved else [])

    def figure(self) -> Figure:
        """A row for each stage; the numbers are the items that pass through."""
        from matplotlib.patches import Patch

        figure = new_figure(12, 0.32 * max(len(self.stages), 1) + 1.5)
        axes = figure.subplots()
        last = max(self.cta.last(self.clock), 1)
        for row, stage in enumerate(self.stages):
            for s in stage.states:
                axes.broken_barh(
                    [(s.begin, s.end - s.begin)], (row - 0.4, 0.8), facecolor=_COLOURS[s.state], linewidth=0
                )
                if s.state == "being read" and s.end - s.begin > last / 80:
                    middle = (s.begin + s.end) / 2
                    axes.text(middle, row, str(s.item), ha="center", va="center", color="white", fontsize=8)
        axes.set_yticks(range(len(self.stages)), [s.name for s in self.stages])
        axes.set_ylim(len(self.stages) - 0.4, -0.6)
        axes.set_xlim(0, last)
        axes.set_xlabel(AXIS[self.clock])
        plain(axes)
        handles = [Patch(facecolor=_COLOURS[s], edgecolor="#888888", linewidth=0.5, label=s) for s in STATES]
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, fontsize=8)
        title = (
            f"Pipeline stages: {short(self.recording.kernel)}, CTA {self.cta.coordinates} (numbers: item in the stage)"
        )
        heading(figure, title, self.remarks())
        return figure


def stages(given: Any, *, cta: Coordinates | None = None, clock: str = "logical") -> Stages:
    """Stages of a Recorder or Recording, by the names of its mbarriers (`Labels.of`). Raises ViewError."""
    check_clock(clock)
    recording, record = recorded(given, cta)
    pipelines = recording.pipelines(record)
    named = bool(pipelines)
    if not named:
        names = recording.labels.barrier_names(list(record.barriers))
        pipelines = [Pipeline(name, (offset,), ()) for offset, name in names.items()]
    made = [_stage(record, pipe, number, clock) for pipe in pipelines for number in range(len(pipe.full))]
    return Stages(recording, record, clock, tuple(made), named)


def _stage(record: CtaRecord, pipe: Pipeline, number: int, clock: str) -> Stage:
    full = pipe.full[number]
    empty = pipe.empty[number] if number < len(pipe.empty) else -1
    state, since, item = "free", 0, number
    found: list[Occupied] = []
    for mark in record.marks:
        if mark.offset not in (full, empty):
            continue
        following = _next(state, mark, full)
        if following == state:
            continue
        now = max(mark.step if clock == "step" else mark.logical, since)
        if now > since:
            found.append(Occupied(state, since, now, item))
        if following in ("free", "filling") and state in ("full", "being read"):
            item += len(pipe.full)
        state, since = following, now
    found.append(Occupied(state, since, max(record.last(clock), since), item))
    return Stage(pipe.name, number, tuple(found))


def _next(state: str, mark: Mark, full: int) -> str:
    """The state after a mark of one of the two barriers."""
    if mark.offset == full:
        if mark.kind == "complete":
            return "full"
        if mark.kind == "wait" and state == "full":
            return "being read"
        return "filling" if mark.kind in ("expect", "arrive") and state == "free" else state
    if mark.kind == "complete":
        return "free"
    return "filling" if mark.kind == "wait" and state == "free" else state
