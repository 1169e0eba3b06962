"""A figure for notebooks: the modes of a tensor side by side, and which of their indices a slice keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emulator.views.view import COLOURS, View, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Coordinate = Sequence[int | str | None]
MOST = 12
"""Indices of a mode that are drawn; the rest is an ellipsis."""


class Modes(View):
    """Modes of a tensor by name and extent, and slices of it: for each mode None keeps all indices, a text is an index
    that is known at run time only, and a number is a constant, which keeps one index for ever.

    modes: {name: extent}, extents of at least 1; slices: {what is written: coordinate}, one entry per mode. Raises
    ValueError naming the slice whose coordinate has another length or an index outside its mode.
    """

    def __init__(self, modes: Mapping[str, int], slices: Mapping[str, Coordinate]) -> None:
        self.modes = dict(modes)
        self.slices = {text: tuple(coordinate) for text, coordinate in slices.items()}
        for text, coordinate in self.slices.items():
            if len(coordinate) != len(self.modes):
                raise ValueError(
                    f"slice {text!r} has {len(coordinate)} entries; the tensor has {len(self.modes)} modes"
                )
            for (name, extent), at in zip(self.modes.items(), coordinate, strict=True):
                if isinstance(at, int) and not 0 <= at < extent:
                    raise ValueError(f"slice {text!r}: index {at} of mode {name!r}; allowed: 0 to {extent - 1}")

    def lost(self, text: str) -> list[str]:
        """Modes of more than one index of which the slice keeps one for ever."""
        pairs = zip(self.modes.items(), self.slices[text], strict=True)
        return [name for (name, extent), at in pairs if isinstance(at, int) and extent > 1]

    def text(self) -> str:
        """A line for each slice: what is left, and what is lost."""
        lines = ["modes: " + ", ".join(f"{name} ({extent})" for name, extent in self.modes.items())]
        for text, coordinate in self.slices.items():
            kept = [name for name, at in zip(self.modes, coordinate, strict=True) if not isinstance(at, int)]
            lost = self.lost(text)
            lines.append(
                f"{text}: keeps {', '.join(kept) or 'nothing'}" + (f"; PINS {', '.join(lost)}" if lost else "")
            )
        return "\n".join(lines)

    def figure(self) -> Figure:
        """A row for each slice, a group of boxes for each mode."""
        figure = new_figure(11, 1.1 + 0.75 * len(self.slices))
        axes: Any = figure.add_subplot()
        for row, text in enumerate(self.slices):
            self._row(axes, len(self.slices) - row, text)
        left = 0.0
        for name, extent in self.modes.items():
            axes.text(left, len(self.slices) + 0.95, f"{name}\n{extent}", va="bottom", fontsize=9)
            left += _width(extent)
        axes.set_xlim(-4.5, left)
        axes.set_ylim(0.3, len(self.slices) + 1.9)
        axes.set_axis_off()
        axes.plot([], [], "s", color=COLOURS["blue"], label="kept: can still be indexed")
        axes.plot([], [], "s", color=COLOURS["sky"], label="indexed at run time")
        axes.plot([], [], "s", color=COLOURS["red"], label="pinned: this index for ever")
        axes.plot([], [], "s", color=COLOURS["light"], label="out of reach")
        axes.legend(loc="lower center", ncols=4, frameon=False, fontsize=8, bbox_to_anchor=(0.55, -0.28))
        return figure

    def _row(self, axes: Any, y: float, text: str) -> None:
        axes.text(-4.4, y + 0.3, text, family="monospace", fontsize=9, va="center")
        left = 0.0
        for extent, at in zip(self.modes.values(), self.slices[text], strict=True):
            for index in range(min(extent, MOST)):
                axes.add_patch(_box(left + 0.42 * index, y, _colour(at, index, extent)))
            if extent > MOST:
                axes.text(left + 0.42 * MOST, y + 0.3, "…", va="center")
            left += _width(extent)


def _colour(at: int | str | None, index: int, extent: int) -> str:
    if isinstance(at, str):
        return COLOURS["sky"]
    if at is None or extent == 1:
        return COLOURS["blue"]
    return COLOURS["red"] if index == at else COLOURS["light"]


def _width(extent: int) -> float:
    return 0.42 * min(extent, MOST) + 1.1


def _box(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 0.36, 0.6, facecolor=colour, edgecolor="white")
