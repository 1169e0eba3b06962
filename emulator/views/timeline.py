"""Who runs, who waits for whom: a lane for each warp and each asynchronous unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.views.labels import ViewError
from emulator.views.recording import Coordinates, CtaRecord, Recording, Wait, check_clock, recorded
from emulator.views.view import COLOURS, View, heading, new_figure, plain, short, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = {
    "logical": "logical steps: a warp counts its instructions, a wait ends when its reason has happened (no time)",
    "step": "warp-instructions in the order in which the emulator ran them, one warp at a time (no time)",
}
_ARROW = {"arrowstyle": "-|>", "color": COLOURS["black"], "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
_MOST_ARROWS = 60


@dataclass(frozen=True, eq=False)
class Timeline(View):
    """The lanes of one CTA between `begin` and `end` on a clock."""

    recording: Recording
    cta: CtaRecord
    clock: str
    begin: int
    end: int

    @property
    def waits(self) -> list[Wait]:
        """Waits of some length on this clock, and those that never ended."""
        return [w for w in self.cta.waits if not w.ended or w.on(self.clock)[1] > w.on(self.clock)[0]]

    def waited(self, warp: int) -> int:
        """Steps that a warp spent waiting."""
        return sum(self._until(w) - w.on(self.clock)[0] for w in self.waits if w.warp == warp)

    def _until(self, wait: Wait) -> int:
        return wait.on(self.clock)[1] if wait.ended else self.cta.last(self.clock)

    # ---------------------------------------------------------------- text
    def text(self) -> str:
        """A line for each lane, then who waits for what, longest first."""
        recording, cta = self.recording, self.cta
        last = cta.last(self.clock)
        lines = [
            f"Timeline of {short(recording.kernel)}, CTA {cta.coordinates}: {last} {self.clock} steps (no time)",
            "",
        ]
        rows = []
        for lane in cta.lanes:
            name = recording.lane(lane)
            if isinstance(lane, int):
                runs = [r for r in cta.runs if r.warp == lane]
                busy = sum(r.logical_end - r.logical_begin for r in runs)
                waits = [w for w in self.waits if w.warp == lane]
                rows.append([name, f"{busy} instructions", f"{len(waits)} waits", f"{self.waited(lane)} steps"])
            else:
                rows.append([name, f"{sum(w.unit == lane for w in cta.work)} operations", "", ""])
        lines += table(["lane", "did", "waited", "in all"], rows)
        lines += ["", *table(["waits", "for", "of", "times", "steps", "at"], self._reasons(), left=3)]
        return "\n".join([*lines, *self.remarks()])

    def _reasons(self) -> list[list[str]]:
        sums: dict[tuple[str, str, str, str], list[int]] = {}
        for wait in self.waits:
            role = self.recording.labels.role(wait.warp) or f"warp {wait.warp}"
            by = self._by(wait)
            what = self.recording.waited_for(self.cta, wait)
            key = (role, what, by, self.recording.lines[wait.index].place)
            total = sums.setdefault(key, [0, 0])
            total[0] += 1
            total[1] += self._until(wait) - wait.on(self.clock)[0]
        ordered = sorted(sums.items(), key=lambda item: -item[1][1])
        return [[who, what, by, str(n), str(steps), at] for (who, what, by, at), (n, steps) in ordered]

    def _by(self, wait: Wait) -> str:
        if not wait.ended:
            return "nobody, ever"
        if isinstance(wait.by, int):
            return self.recording.labels.role(wait.by) or f"warp {wait.by}"
        return self.recording.lane(wait.by)

    def remarks(self) -> list[str]:
        """Waits that never ended, if the launch stopped."""
        stuck = [w for w in self.waits if not w.ended]
        if not stuck or self.recording.ended:
            return []
        parts: dict[tuple[str, str], list[int]] = {}
        for w in sorted(stuck, key=lambda w: w.warp):
            key = (self.recording.labels.role(w.warp) or "warp", self.recording.waited_for(self.cta, w))
            parts.setdefault(key, []).append(w.warp)
        what = "; ".join(f"{role} ({', '.join(map(str, warps))}) for {name}" for (role, name), warps in parts.items())
        return [f"waiting when the launch stopped: {what}"]

    # ---------------------------------------------------------------- figure
    def figure(self) -> Figure:
        """Blue runs, orange waits, green asynchronous work; an arrow from who let a wait end."""
        cta, lanes = self.cta, self.cta.lanes
        figure = new_figure(12, 0.32 * len(lanes) + 1.5)
        axes = figure.subplots()
        row = {lane: k for k, lane in enumerate(lanes)}
        width = max(self.end - self.begin, 1)
        for lane in lanes:
            runs = [self._bar(r) for r in cta.runs if r.warp == lane]
            axes.broken_barh(runs, (row[lane] - 0.38, 0.76), facecolor=COLOURS["blue"], linewidth=0)
            work = [self._bar(w, width / 500) for w in cta.work if w.unit == lane]
            axes.broken_barh(work, (row[lane] - 0.38, 0.76), facecolor=COLOURS["green"], linewidth=0)
        for wait in self.waits:
            begin, end = wait.on(self.clock)[0], self._until(wait)
            colour = COLOURS["orange"] if wait.ended else COLOURS["red"]
            axes.broken_barh([(begin, end - begin)], (row[wait.warp] - 0.2, 0.4), facecolor=colour, linewidth=0)
        self._arrows(axes, row)
        axes.set_yticks(range(len(lanes)), [self.recording.lane(lane) for lane in lanes])
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.set_xlim(self.begin, self.end)
        axes.set_xlabel(AXIS[self.clock])
        plain(axes)
        _legend(axes, any(not w.ended for w in self.waits))
        heading(figure, f"Who waits for whom: {short(self.recording.kernel)}, CTA {cta.coordinates}", self.remarks())
        return figure

    def _bar(self, span: Any, least: float = 0.0) -> tuple[float, float]:
        begin, end = span.on(self.clock)
        end = max(end, begin) if span.end >= 0 else self.cta.last(self.clock)
        return begin, max(end - begin, least)

    def _arrows(self, axes: Any, row: dict[int | str, int]) -> None:
        """One arrow for each event that let warps go on, to the nearest of them; the longest waits first."""
        events: dict[tuple[Any, ...], Wait] = {}
        for wait in self.waits:
            if wait.by is None or wait.by == wait.warp or wait.by not in row:
                continue
            key = (wait.by, wait.released(self.clock), wait.offset, wait.what)
            best = events.get(key)
            distance = abs(row[wait.warp] - row[wait.by])
            if best is None or distance < abs(row[best.warp] - row[wait.by]):
                events[key] = wait
        longest = sorted(events.values(), key=lambda w: w.on(self.clock)[0] - w.on(self.clock)[1])[:_MOST_ARROWS]
        for wait in longest:
            source = (wait.released(self.clock), row[wait.by if wait.by is not None else wait.warp])
            axes.annotate(
                "", (wait.on(self.clock)[1], row[wait.warp]), source, arrowprops=_ARROW
            )  # fmt: skip


def _legend(axes: Any, stuck: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=COLOURS["blue"], label="runs"),
        Patch(facecolor=COLOURS["orange"], label="waits"),
        Patch(facecolor=COLOURS["green"], label="asynchronous operation"),
        Line2D([], [], color=COLOURS["black"], marker=">", markersize=4, linewidth=0.8, label="lets go on"),
    ]
    if stuck:
        handles.insert(2, Patch(facecolor=COLOURS["red"], label="waits when the launch stopped"))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), frameon=False, fontsize=8
    )


def timeline(
    given: Any,
    *,
    cta: Coordinates | None = None,
    clock: str = "logical",
    begin: int = 0,
    end: int | None = None,
) -> Timeline:
    """The timeline of a Recorder or Recording: its CTA `cta` (the first by default) from `begin` to `end` on `clock`:
    "logical" (what may run at once is shown at once) or "step" (as the emulator executed it). Raises ViewError."""
    check_clock(clock)
    recording, record = recorded(given, cta)
    until = record.last(clock) if end is None else end
    if not 0 <= begin < max(until, 1):
        raise ViewError(f"begin={begin}, end={until}: allowed 0 <= begin < end <= {record.last(clock)}")
    return Timeline(recording, record, clock, begin, until)
