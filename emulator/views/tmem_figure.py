"""The tensor-memory map as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.memory.tmem import LANES
from emulator.views.labels import Field
from emulator.views.view import COLOURS, heading, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from emulator.views.tmem import TmemMap

_SOURCE_COLOURS = (COLOURS["light"], COLOURS["sky"], COLOURS["orange"], COLOURS["green"], COLOURS["grey"])
_PANEL = 1.9
_SIDE = 0.24
"""Width of the column of legends, of the column of panels."""


def draw(view: TmemMap) -> Figure:
    """Panels under one axis of columns: fields; last writer; values; and where a reference differs."""
    rows = [("fields", 0.36 * (max(_levels(view.labels.fields), default=0) + 1) + 0.1)]
    rows += [("source", _PANEL), ("values", _PANEL)] + ([("differs", _PANEL)] if view.reference is not None else [])
    remarks = [r for r in view.remarks() if not r.startswith("  ") and " share columns " not in r]
    figure = new_figure(11, sum(h for _, h in rows) + 1.0)
    axes = figure.subplots(len(rows), 2, sharex="col", height_ratios=[h for _, h in rows], width_ratios=[1, _SIDE])
    panels = {name: axes[k] for k, (name, _) in enumerate(rows)}
    for side in axes[:, 1]:
        side.axis("off")
    _draw_fields(panels["fields"][0], view)
    _draw_source(panels["source"], view)
    _draw_values(figure, panels["values"], view)
    if view.reference is not None:
        _draw_differs(panels["differs"], view)
    last = axes[-1][0]
    last.set_xlabel("tensor-memory column (32 bits each)")
    last.set_xlim(0, view.shown)
    last.set_xticks(range(0, view.shown + 1, 32))
    heading(figure, view.title, remarks)
    return figure


def _levels(fields: tuple[Field, ...]) -> list[int]:
    """A row for each field such that fields over each other lie in different rows."""
    levels: list[int] = []
    for k, field in enumerate(fields):
        taken = {levels[j] for j in range(k) if fields[j].column < field.end and field.column < fields[j].end}
        levels.append(next(level for level in range(len(fields)) if level not in taken))
    return levels


def _draw_fields(axes: Any, view: TmemMap) -> None:
    fields = view.labels.fields
    twins = {b: a for a, b in view.twins()}
    levels = _levels(fields)
    for field, level in zip(fields, levels, strict=True):
        twin = twins.get(field.name)
        edge = COLOURS["red"] if twin or field.name in twins.values() else COLOURS["black"]
        axes.broken_barh(
            [(field.column, field.columns)], (level + 0.08, 0.84), facecolor="white", edgecolor=edge, linewidth=1.2
        )
        text = f"{field.name} {field.dtype}" + (f" = {twin} !" if twin else "")
        axes.text(field.column + field.columns / 2, level + 0.5, text, ha="center", va="center", fontsize=9, color=edge)
    for a, b in view.aliases():
        first, end = max(a.column, b.column), min(a.end, b.end)
        low = min(levels[fields.index(a)], levels[fields.index(b)])
        axes.broken_barh([(first, end - first)], (low + 0.92, 0.16), facecolor=COLOURS["black"], linewidth=0)
    axes.set_ylim(max(levels, default=0) + 1, 0)
    axes.set_yticks([])
    shared = "\n(black bar:\nsame columns)" if view.aliases() else ""
    axes.set_ylabel(f"fields{shared}", rotation=0, ha="right", va="center", fontsize=8)
    axes.spines[:].set_visible(False)
    axes.tick_params(bottom=False, labelbottom=False)
    if not fields:
        axes.text(view.shown / 2, 0.5, "no fields were named", ha="center", va="center", color="#666666")


def _image(axes: Any, view: TmemMap, data: Any, what: str, **how: Any) -> Any:
    """A panel of lanes down and columns across, with the edges of fields and of the lane quarters."""
    image = axes.imshow(data, aspect="auto", extent=(0, view.shown, LANES, 0), interpolation="nearest", **how)
    axes.set_ylim(LANES, 0)
    axes.set_yticks([0, 32, 64, 96, 128])
    axes.set_ylabel(f"{what}\nlane")
    for lane in (32, 64, 96):
        axes.axhline(lane, color=COLOURS["black"], linewidth=0.5, alpha=0.4)
    for edge in {e for f in view.labels.fields for e in (f.column, f.end)}:
        axes.axvline(edge, color=COLOURS["black"], linewidth=0.6)
    return image


def _legend(side: Any, title: str, entries: list[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, edgecolor="#888888", label=label) for label, colour in entries]
    side.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.05, 1.05), frameon=False, fontsize=8, title=title,
        title_fontsize=8, alignment="left",
    )  # fmt: skip


def _draw_source(row: Any, view: TmemMap) -> None:
    from matplotlib.colors import ListedColormap, to_rgba

    from emulator.views.tmem import SOURCES

    axes, side = row
    shown = view.source[:, : view.shown]
    _image(axes, view, shown, "last writer", cmap=ListedColormap(_SOURCE_COLOURS), vmin=0, vmax=len(SOURCES) - 1)
    entries = [(SOURCES[k], _SOURCE_COLOURS[k]) for k in np.unique(shown).tolist()]
    moved = view.moved[:, : view.shown]
    if moved.any():
        image = np.zeros((*moved.shape, 4))
        image[moved] = to_rgba(COLOURS["red"])
        _image(axes, view, image, "last writer")
        entries.append(("moved: stored by a thread\nthat had not loaded it", COLOURS["red"]))
    _legend(side, "last written by", entries)


def _draw_values(figure: Any, row: Any, view: TmemMap) -> None:
    from matplotlib import colormaps

    axes, side = row
    values, owner = view.values[:, : view.shown].copy(), view.owner[:, : view.shown]
    for number in np.unique(owner):
        mine = owner == number
        finite = np.abs(values[mine][np.isfinite(values[mine])])
        scale = float(np.percentile(finite, 99)) if finite.size else 0.0
        values[mine] /= scale or 1.0
    cmap = colormaps["RdBu_r"].with_extremes(bad=COLOURS["grey"])
    shown = _image(axes, view, np.ma.masked_invalid(values), "value", cmap=cmap, vmin=-1, vmax=1)
    bar = figure.colorbar(shown, cax=side.inset_axes((0.0, 0.1, 0.07, 0.8)), ticks=[-1, 0, 1])
    bar.set_label("value, of the 99th percentile\nof its field (grey: undefined)", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _draw_differs(row: Any, view: TmemMap) -> None:
    from matplotlib.colors import ListedColormap

    axes, side = row
    differs = view.differs
    assert differs is not None
    colours = [COLOURS["light"], COLOURS["red"]]
    _image(axes, view, differs[:, : view.shown], "differs", cmap=ListedColormap(colours), vmin=0, vmax=1)
    _legend(side, "against the reference", [("other bits", colours[1]), ("same bits", colours[0])])
