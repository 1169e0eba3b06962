"""Where the instructions go: counts by PTX line or by Python line."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.views.labels import ViewError
from emulator.views.recording import Line, Recording
from emulator.views.view import COLOURS, View, heading, new_figure, plain, short, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY = ("ptx", "python")
_WIDEST = 60


@dataclass(frozen=True)
class Hot:
    """`count` warp-instructions of one line, or of neighbouring lines that belong together."""

    count: int
    place: str
    text: str


@dataclass(frozen=True, eq=False)
class HotLines(View):
    """The `top` lines of a launch, most executed first; `total` warp-instructions in all."""

    kernel: str
    by: str
    total: int
    lines: tuple[Hot, ...]
    others: int

    def text(self) -> str:
        """Count, share, running share, place and PTX of each line."""
        rows, running = [], 0
        for hot in self.lines:
            running += hot.count
            share, so_far = (f"{100 * n / max(self.total, 1):.1f} %" for n in (hot.count, running))
            rows.append([str(hot.count), share, so_far, hot.place, hot.text])
        title = f"Hot lines of {short(self.kernel)}: {self.total} warp-instructions"
        head = [
            "count",
            "share",
            "so far",
            "place",
            "PTX (times x lines: first line)" if self.by == "ptx" else "most executed PTX",
        ]
        rest = [f"and {self.others} more lines"] if self.others else []
        return "\n".join([title, "", *table(head, rows, left=0), *rest])

    def figure(self) -> Figure:
        """Bars, most executed first."""
        figure = new_figure(11, 0.27 * len(self.lines) + 1.2)
        axes = figure.subplots()
        counts = [hot.count for hot in self.lines]
        axes.barh(range(len(counts)), counts, color=COLOURS["blue"])
        for row, hot in enumerate(self.lines):
            axes.text(hot.count, row, f" {100 * hot.count / max(self.total, 1):.1f} %", va="center", fontsize=8)
        labels = [f"{hot.text}   {hot.place}" for hot in self.lines]
        axes.set_yticks(range(len(counts)), labels, fontsize=8, family="monospace")
        axes.set_ylim(len(counts) - 0.4, -0.6)
        axes.set_xlim(0, 1.1 * max(counts, default=1))
        axes.set_xlabel(f"warp-instructions (of {self.total}; a count, not time)")
        plain(axes)
        heading(figure, f"Hot lines of {short(self.kernel)} (times x neighbouring lines: the first of them)", [])
        return figure


def hot_lines(given: Any, *, top: int = 20, by: str = "ptx", module: Any = None) -> HotLines:
    """The most executed lines of a Recorder, a Recording, or a Launch.

    by: "ptx": neighbouring PTX lines of one count and one Python line are one row; "python": sums over the lines of the
    source. A Launch knows counts by PTX line only: give the parsed `module` too, for text and Python lines. Raises
    ViewError.
    """
    if by not in BY:
        raise ViewError(f"by={by!r}; allowed: {', '.join(BY)}")
    if top < 1:
        raise ViewError(f"top={top}; allowed: at least 1")
    given = getattr(given, "recording", given)
    if isinstance(given, Recording):
        counted = [(int(n), line) for n, line in zip(given.counts, given.lines, strict=True) if n]
    elif hasattr(given, "by_line"):
        counted = _of_launch(given, module)
    else:
        raise ViewError(f"a {type(given).__name__} was given; allowed: a Recorder, a Recording, a Launch")
    rows = _by_python(counted) if by == "python" else _by_ptx(counted)
    rows.sort(key=lambda hot: -hot.count)
    return HotLines(given.kernel, by, sum(n for n, _ in counted), tuple(rows[:top]), max(len(rows) - top, 0))


def _of_launch(launch: Any, module: Any) -> list[tuple[int, Line]]:
    known: dict[int, Any] = {}
    if module is not None:
        if launch.kernel not in module.functions:
            raise ViewError(f"module has no entry {launch.kernel}; it has {', '.join(module.functions)}")
        known = {i.line: i for f in module.functions.values() for i in f.instructions}
    found = []
    for line, count in launch.by_line.items():
        i = known.get(line)
        found.append((count, Line(line, i.text if i else "", *((i.loc if i else None) or ("", 0)))))
    return found


def _by_ptx(counted: list[tuple[int, Line]]) -> list[Hot]:
    """Runs of lines of one count and place: all of a block that came from one line of the source."""
    rows = []
    for (count, place), group in itertools.groupby(counted, key=lambda pair: (pair[0], pair[1].place)):
        lines = [line for _, line in group]
        first, last = lines[0].line, lines[-1].line
        which = f"PTX {first}" if len(lines) == 1 else f"PTX {first}..{last}"
        text = f"{count} x {len(lines)}: {lines[0].text}" if len(lines) > 1 else lines[0].text
        source = "" if place.startswith("PTX") else f"  {place}"
        rows.append(Hot(count * len(lines), which + source, _cut(text)))
    return rows


def _by_python(counted: list[tuple[int, Line]]) -> list[Hot]:
    sums: dict[str, int] = {}
    hottest: dict[str, tuple[int, str]] = {}
    for count, line in counted:
        sums[line.place] = sums.get(line.place, 0) + count
        hottest[line.place] = max(hottest.get(line.place, (0, "")), (count, _cut(line.text)))
    return [Hot(count, place, hottest[place][1]) for place, count in sums.items()]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
