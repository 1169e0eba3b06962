"""Small pictures as SVG text: the error map of an output, the ladder of gates, the history of a gate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape

from gate.result import ErrorMap

COLOURS = {
    "pass": "#2f855a",
    "fail": "#c53030",
    "xfail": "#b7791f",
    "skipped": "#a0aec0",
    "blocked": "#b7791f",
    "planned": "#e2e8f0",
    "idle": "#cbd5e0",
}
_INK, _GREY = "#1a202c", "#718096"
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 176, 30, 34, 10
_MAP_WIDTH, _MAP_HEIGHT, _SMALLEST, _LARGEST = 520.0, 300.0, 3.0, 24.0


def colour(status: str) -> str:
    """The colour of a status; every failing one is red."""
    return COLOURS.get(status, COLOURS["fail"])


def error_map_svg(errors: ErrorMap, name: str) -> str:
    """Rows down, columns across; the redder, the more of the block is wrong. The axes name first and last index.

    An output without elements gives an empty text.
    """
    if not errors.percent or not errors.percent[0]:
        return ""
    rows, columns = len(errors.percent), len(errors.percent[0])
    cell_x = max(_SMALLEST, min(_LARGEST, _MAP_WIDTH / columns))
    cell_y = max(_SMALLEST, min(_LARGEST, _MAP_HEIGHT / rows))
    left, top = 46, 20
    title = f"{name}: columns 0–{errors.columns - 1}, blocks of {errors.row_block} × {errors.column_block}"
    parts = [
        _text(left, 13, title),
        _text(left - 6, top + 10, "0", anchor="end"),
        _text(left - 6, top + rows * cell_y, str(errors.rows - 1), anchor="end"),
    ]
    for r, line in enumerate(errors.percent):
        c = 0
        for percent, run in ((value, len(list(equal))) for value, equal in itertools.groupby(line)):
            where = f"rows {_span(r, 1, errors.row_block, errors.rows)}, "
            where += f"columns {_span(c, run, errors.column_block, errors.columns)}: {percent}%"
            parts.append(_box(left + c * cell_x, top + r * cell_y, run * cell_x, cell_y, _heat(percent), title=where))
            c += run
    parts.append(_box(left, top, columns * cell_x, rows * cell_y, "none", f' stroke="{_GREY}"'))
    return _svg(max(left + columns * cell_x + 6, left + 7 * len(title)), top + rows * cell_y + 8, parts)


def _span(block: int, blocks: int, size: int, total: int) -> str:
    return f"{block * size}–{min(total, (block + blocks) * size) - 1}"


def _heat(percent: int) -> str:
    if percent == 0:
        return "#f0fff4"
    share = 0.25 + 0.75 * percent / 100
    low, high = (254, 215, 170), (155, 28, 28)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(low, high, strict=True))


def ladder_svg(boxes: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """`boxes` are (gate, status, needs) in ladder order; a gate stands right of all that it needs."""
    depth: dict[str, int] = {}
    taken: dict[int, int] = {}
    place: dict[str, tuple[float, float]] = {}
    for name, _, needs in boxes:
        column = max((depth[need] + 1 for need in needs if need in depth), default=0)
        row = taken.get(column, 0)
        depth[name], taken[column] = column, row + 1
        place[name] = (column * (_BOX_WIDTH + _GAP_X) + 2, row * (_BOX_HEIGHT + _GAP_Y) + 2)
    arrows = [_arrow(place[need], place[name]) for name, _, needs in boxes for need in needs if need in place]
    drawn = []
    for name, status, _ in boxes:
        x, y = place[name]
        drawn.append(_box(x, y, _BOX_WIDTH, _BOX_HEIGHT, colour(status), ' rx="5"', title=f"{name}: {status}"))
        fill = _INK if status in ("planned", "idle") else "#fff"
        drawn.append(_text(x + _BOX_WIDTH / 2, y + 19, name, anchor="middle", fill=fill))
    width = (max(depth.values(), default=0) + 1) * (_BOX_WIDTH + _GAP_X)
    return _svg(width, max(taken.values(), default=0) * (_BOX_HEIGHT + _GAP_Y) + 4, [*arrows, *drawn])


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the right edge of one box to the left edge of another."""
    a, b, x, y = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT / 2, end[0], end[1] + _BOX_HEIGHT / 2
    bend = _GAP_X / 2
    return f'<path d="M{a} {b} C{a + bend} {b} {x - bend} {y} {x} {y}" fill="none" stroke="{_GREY}"/>'


def history_svg(statuses: Sequence[tuple[str, str]]) -> str:
    """(run, status) of the last runs, oldest first, as a row of ticks."""
    ticks = [_box(i * 8, 0, 6, 16, colour(s), title=f"{run}: {s}") for i, (run, s) in enumerate(statuses)]
    return _svg(max(8, len(statuses) * 8), 16, ticks)


def _box(x: float, y: float, width: float, height: float, fill: str, more: str = "", title: str = "") -> str:
    """A rectangle; `title` is shown under the pointer."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    head = f'<rect {place} fill="{fill}" shape-rendering="crispEdges"{more}'
    return f"{head}><title>{escape(title)}</title></rect>" if title else f"{head}/>"


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = "#4a5568") -> str:
    style = f'font-family="system-ui, sans-serif" font-size="12" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {round(width)} {round(height)}" width="{round(width)}" height="{round(height)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'
