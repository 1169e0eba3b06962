"""What every view is: text for a terminal or a log, a figure for a notebook or a file."""

from __future__ import annotations

import base64
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.views.labels import ViewError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
_WIDEST_NAME = 48

# The palette of Okabe and Ito, which people with any colour vision can tell apart.
COLOURS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "sky": "#56B4E9",
    "red": "#D55E00",
    "yellow": "#F0E442",
    "black": "#222222",
    "grey": "#BBBBBB",
    "light": "#EEEEEE",
}


class View:
    """`text()` and `figure()`; Jupyter shows the figure."""

    def text(self) -> str:
        """The view as plain text."""
        raise NotImplementedError

    def figure(self) -> Figure:
        """The view as a matplotlib figure. Raises ViewError without matplotlib."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write the figure; the suffix chooses the format (png, svg, pdf)."""
        target = Path(path)
        self.figure().savefig(target, dpi=DPI)
        return target

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        buffer = io.BytesIO()
        self.figure().savefig(buffer, format="png", dpi=DPI)
        return {"image/png": base64.b64encode(buffer.getvalue()).decode("ascii"), "text/plain": self.text()}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that no window or notebook backend knows of."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ViewError("figures need matplotlib: pip install -e '.[notebooks]'; text() works without it") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Any) -> None:
    """No frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)


def table(head: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    """Aligned columns, the first `left` of them to the left, numbers to the right; two spaces between."""
    lines = [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return [
        "  ".join(
            cell.ljust(widths[k]) if k < left or k == len(head) - 1 else cell.rjust(widths[k])
            for k, cell in enumerate(line)
        ).rstrip()
        for line in lines
    ]


def short(name: str) -> str:
    """A kernel's name for a title: mangled ones are cut."""
    return name if len(name) <= _WIDEST_NAME else name[: _WIDEST_NAME - 1] + "…"


def heading(figure: Any, title: str, remarks: list[str]) -> None:
    """Title and remarks above the panels, from the left edge, remarks in red, broken where the figure ends."""
    width, height = figure.get_size_inches()
    lines = [line for remark in remarks for line in textwrap.wrap(remark, int(12.5 * width), subsequent_indent="  ")]
    figure.set_size_inches(width, height + 0.2 * len(lines))
    figure.suptitle("\n".join([title, *[""] * len(lines)]), x=0.01, ha="left", fontsize=11, fontweight="bold")
    height = figure.get_size_inches()[1]
    for k, line in enumerate(lines):
        figure.text(0.01, 1 - (0.32 + 0.2 * k) / height, line, ha="left", va="top", fontsize=9, color=COLOURS["red"])
