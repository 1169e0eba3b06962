"""Where an output is wrong: by tile, by warp (32 rows), by column block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.views.labels import ViewError
from emulator.views.view import COLOURS, View, heading, new_figure, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
WARP_ROWS = 32
COLUMN_BLOCK = 16
TOLERANCE = 0.02
"""Default: an element is wrong if it is off by more than this part of itself plus this part of the root mean square."""
_BARS: dict[str, Any] = {"align": "edge", "color": COLOURS["blue"], "edgecolor": "white", "linewidth": 0.5}
_MOST_PANELS = 8
_MOST_CELLS = 16


def block_percent(mask: Array, rows: int, columns: int) -> list[list[int]]:
    """Percent of true in each block of `rows` x `columns` of a bool [r, c]; rounded, but 0 and 100 only for none and
    all. Blocks at the ends may be smaller."""
    if not mask.size:
        return []
    down, across = np.arange(0, mask.shape[0], rows), np.arange(0, mask.shape[1], columns)
    sums = np.add.reduceat(np.add.reduceat(mask.astype(np.int64), down, 0), across, 1)
    height = np.diff(np.append(down, mask.shape[0]))
    width = np.diff(np.append(across, mask.shape[1]))
    return [
        [whole_percent(n / (h * w)) for n, w in zip(line, width.tolist(), strict=True)]
        for line, h in zip(sums.tolist(), height.tolist(), strict=True)
    ]


def whole_percent(share: float) -> int:
    """Percent, rounded, but 0 and 100 only for none and all."""
    return min(max(round(share * 100), 1), 99) if 0 < share < 1 else round(share * 100)


@dataclass(frozen=True, eq=False)
class ErrorMap(View):
    """Errors of one output. got, want float64 [..., rows, columns] as [matrices, rows, columns]; `leading` the shape of
    the matrices; tile (rows, columns) or None; wrong bool of the same shape."""

    name: str
    got: NDArray[np.float64]
    want: NDArray[np.float64]
    leading: tuple[int, ...]
    tile: tuple[int, int] | None
    wrong: NDArray[np.bool_]
    rule: str

    @property
    def error(self) -> NDArray[np.float64]:
        """|got - want|; infinite where only one of them is NaN, or where they are different infinities."""
        with np.errstate(invalid="ignore"):
            error = np.abs(self.got - self.want)
        same = (self.got == self.want) | (np.isnan(self.got) & np.isnan(self.want))
        return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))

    def percent(self, matrix: int, rows: int, columns: int) -> list[list[int]]:
        """`block_percent` of one matrix."""
        return block_percent(self.wrong[matrix], rows, columns)

    def matrix(self, number: int) -> str:
        """`[0, 3]`, or an empty text if there is one matrix."""
        return str(list(map(int, np.unravel_index(number, self.leading)))) if self.wrong.shape[0] > 1 else ""

    # ---------------------------------------------------------------- text
    def text(self) -> str:
        """Share of wrong elements in all, by tile, by warp and by column block; the worst element."""
        if not self.wrong.size:
            return f"{self.name}: no elements"
        lines = [f"{self.name}: {self._summary()}"]
        bad = [m for m in range(self.wrong.shape[0]) if self.wrong[m].any()]
        for m in bad[:_MOST_PANELS]:
            lines += ["", *self._matrix_text(m)]
        if len(bad) > _MOST_PANELS:
            lines.append(f"and {len(bad) - _MOST_PANELS} more matrices with wrong elements")
        return "\n".join(lines)

    def _summary(self) -> str:
        wrong = int(self.wrong.sum())
        if not wrong:
            return f"all {self.wrong.size} elements right ({self.rule})"
        error = self.error
        m, r, c = (int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        place = [*map(int, np.unravel_index(m, self.leading)), r, c] if self.leading else [r, c]
        share = whole_percent(wrong / self.wrong.size)
        worst = f"worst {place}: got {self.got[m, r, c]:.4g}, want {self.want[m, r, c]:.4g}"
        return f"{share} % of {self.wrong.size} elements wrong ({self.rule}); {worst}"

    def _matrix_text(self, m: int) -> list[str]:
        _, rows, columns = self.wrong.shape
        lines = [self.matrix(m)] if self.matrix(m) else []
        if self.tile is not None:
            down, across = self.tile
            cells = self.percent(m, down, across)
            head = [f"% wrong by tile {down} x {across}", *(f"{c * across}.." for c in range(len(cells[0])))]
            body = [[f"rows {r * down}..", *map(str, line)] for r, line in enumerate(cells)]
            shown = body[:_MOST_CELLS]
            lines += table([*head[: _MOST_CELLS + 1]], [line[: _MOST_CELLS + 1] for line in shown])
        by_warp = [line[0] for line in self.percent(m, WARP_ROWS, max(columns, 1))]
        by_column = self.percent(m, max(rows, 1), COLUMN_BLOCK)[0]
        lines.append(f"% wrong by {WARP_ROWS} rows (a warp): {_list(by_warp)}")
        lines.append(f"% wrong by {COLUMN_BLOCK} columns: {_list(by_column)}")
        return lines

    # ---------------------------------------------------------------- figure
    def figure(self) -> Figure:
        """The size of every error, with lines between tiles, and shares by warp and by column block beside it."""
        shown = max(1, min(self.wrong.shape[0], _MOST_PANELS)) if self.wrong.size else 1
        across = min(shown, 4)
        down = math.ceil(shown / across)
        figure = new_figure(4.4 * across + 1.2 if shown > 1 else 7.5, 4.0 * down + 0.6)
        grids = figure.add_gridspec(down, across + 1, width_ratios=[1] * across + [0.04])
        image = None
        for m in range(shown if self.wrong.size else 0):
            image = self._panel(figure, grids[m // across, m % across], m)
        if image is not None:
            bar = figure.colorbar(image, cax=figure.add_subplot(grids[:, -1]), extend="max")
            bar.set_label("|got - want|, of the root mean square of want (log scale)", fontsize=8)
            bar.ax.tick_params(labelsize=8)
        more = self.wrong.shape[0] - shown
        notes = [self._summary()] if self.wrong.size else ["no elements"]
        notes += [f"{more} more matrices are not shown"] if self.wrong.size and more > 0 else []
        heading(figure, f"Error map of {self.name}", notes)
        return figure

    def _panel(self, figure: Figure, place: Any, m: int) -> Any:
        from matplotlib import colormaps
        from matplotlib.colors import LogNorm

        _, rows, columns = self.wrong.shape
        inner = place.subgridspec(2, 2, height_ratios=[1, 5], width_ratios=[5, 1], wspace=0.02, hspace=0.02)
        axes = figure.add_subplot(inner[1, 0])
        size = float(np.sqrt(np.mean(np.square(self.want[np.isfinite(self.want)]), dtype=np.float64))) or 1.0
        relative = np.where(np.isinf(self.error[m]), 1e9, self.error[m]) / size
        cmap = colormaps["viridis_r"].with_extremes(bad="white", under="white")
        image = axes.imshow(
            np.ma.masked_less_equal(relative, 0), cmap=cmap, norm=LogNorm(TOLERANCE / 10, 1.0), aspect="auto",
            extent=(0, columns, rows, 0), interpolation="nearest",
        )  # fmt: skip
        if self.tile is not None:
            for r in range(self.tile[0], rows, self.tile[0]):
                axes.axhline(r, color=COLOURS["red"], linewidth=1)
            for c in range(self.tile[1], columns, self.tile[1]):
                axes.axvline(c, color=COLOURS["red"], linewidth=1)
        axes.set_yticks(range(0, rows + 1, WARP_ROWS * max(1, rows // (8 * WARP_ROWS))))
        several = self.tile is not None and (rows > self.tile[0] or columns > self.tile[1])
        tiles = f" (red: tiles of {self.tile[0]} x {self.tile[1]})" if self.tile and several else ""
        axes.set_xlabel(f"column{tiles}", fontsize=8)
        axes.set_ylabel(f"{self.matrix(m)} row".strip(), fontsize=8)
        axes.tick_params(labelsize=8)
        self._margins(figure, inner, m, axes)
        return image

    def _margins(self, figure: Figure, inner: Any, m: int, axes: Any) -> None:
        _, rows, columns = self.wrong.shape
        top = figure.add_subplot(inner[0, 0], sharex=axes)
        right = figure.add_subplot(inner[1, 1], sharey=axes)
        by_column = self.percent(m, rows, COLUMN_BLOCK)[0]
        by_warp = [line[0] for line in self.percent(m, WARP_ROWS, columns)]
        for k, share in enumerate(by_column):
            first, end = k * COLUMN_BLOCK, min((k + 1) * COLUMN_BLOCK, columns)
            top.bar(first, share, width=end - first, **_BARS)
        for k, share in enumerate(by_warp):
            first, end = k * WARP_ROWS, min((k + 1) * WARP_ROWS, rows)
            right.barh(first, share, height=end - first, **_BARS)
        top.set_ylim(0, 100)
        right.set_xlim(0, 100)
        top.set_yticks([0, 100])
        right.set_xticks([0, 100])
        top.set_ylabel(f"% wrong\nby {COLUMN_BLOCK}", fontsize=7)
        right.set_xlabel(f"% wrong\nby {WARP_ROWS} rows", fontsize=7)
        for side in (top, right):
            side.tick_params(labelsize=7)
            side.spines[["top", "right"]].set_visible(False)
        top.tick_params(labelbottom=False)
        right.tick_params(labelleft=False)


def error_map(
    got: Any,
    want: Any,
    *,
    tile: tuple[int, int] | None = None,
    name: str = "output",
    rtol: float = TOLERANCE,
    atol: float | None = None,
) -> ErrorMap:
    """The errors of `got` against `want`.

    got, want: arrays or tensors of one shape [..., rows, columns] (a vector is one row), any real dtype. tile: (rows,
    columns) of the kernel's output tiles. An element is wrong if |got - want| > atol + rtol |want|, or if it is NaN or
    infinite and the other is not the same; atol defaults to rtol times the root mean square of the finite elements of
    `want`. An output without elements gives a text that says so. Raises ViewError for other shapes or a tile below 1.
    """
    x, y = _array(got), _array(want)
    if x.shape != y.shape:
        raise ViewError(f"error_map: got has shape {x.shape}, want {y.shape}; allowed: the same shape")
    if tile is not None and (len(tile) != 2 or min(tile) < 1):
        raise ViewError(f"error_map: tile={tile}; allowed: (rows, columns), both at least 1")
    x, y = (a.reshape((1,) * (2 - a.ndim) + a.shape) if a.ndim < 2 else a for a in (x, y))
    leading = x.shape[:-2]
    x, y = (a.reshape((math.prod(leading), *a.shape[-2:])) for a in (x, y))
    finite = y[np.isfinite(y)]
    floor = rtol * (float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0) if atol is None else atol
    rule = f"wrong: off by more than {floor:.2g} + {rtol:g} |want|"
    made = ErrorMap(name, x, y, leading, tile, np.zeros(x.shape, bool), rule)
    allowed = floor + rtol * np.where(np.isfinite(y), np.abs(y), 0.0)
    return ErrorMap(name, x, y, leading, tile, made.error > allowed, rule)


def _array(given: Any) -> NDArray[np.float64]:
    """float64; a tensor of torch comes through its own conversion, which knows bfloat16 and devices."""
    if hasattr(given, "detach"):
        given = given.detach().double().cpu().numpy()
    return np.asarray(given, np.float64)


def _list(percent: list[int]) -> str:
    shown = " ".join(map(str, percent[:_MOST_CELLS]))
    return shown + (f" … ({len(percent)} in all)" if len(percent) > _MOST_CELLS else "")
