"""Shapes, printed while a kernel is traced, and slices that lose a mode by mistake.

``show(tVgV, "box, kv tile")`` prints name, memory, shape and stride of a tensor and what each mode is, once, at trace
time, inside ``showing()`` or with ``WORKBENCH_SHOW=1`` in the environment; else it tests a flag and returns. It emits
no instruction, so a kernel keeps its calls for good. A kernel that comes out of a compile cache is not traced and
prints nothing.

While shapes are shown, slices of global tensors and of TMA partitions are watched: a constant that pins a mode with
more than one index is reported, because such a slice has no wrong address and no error, and one tile cannot show it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.shared.modes import Mode, ask, flat, layout_text, memory, modes, size, split

Sink = Callable[[str], None]
VARIABLE = "WORKBENCH_SHOW"
PINNED = "PINNED"
_WATCHED = ("gmem", "coordinates")


@dataclass(frozen=True)
class Shown:
    """One tensor as it was shown."""

    name: str
    layout: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Pin:
    """A constant in a slice that keeps one of several indices of a mode: ``2``, or ``0.1`` for the second mode inside
    the first. ``place`` is the file and line of the slice."""

    name: str
    mode: str
    shape: str
    stride: str
    label: str
    at: int
    place: str

    def __str__(self) -> str:
        extent = size(self.shape)
        indices = "extent known at run time" if extent is None else f"size {extent}"
        label = f" '{self.label}'" if self.label else ""
        return (
            f"{PINNED}   {self.name}: mode {self.mode}{label} ({self.shape} : {self.stride}, {indices}) is fixed at "
            f"{self.at} by {self.place}; no other index of it can be reached"
        )


class Listing:
    """What has been shown, in order, and what has been pinned."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.shown: list[Shown] = []
        self.pins: list[Pin] = []
        # tensors are kept, or another one could get the id of one that is gone
        self._known: dict[int, tuple[Any, str, Sequence[str]]] = {}

    def add(self, name: str, tensor: Any, meaning: str) -> None:
        """Show a tensor."""
        self._known[id(tensor)] = (tensor, name, _labels(meaning))
        lines = describe(name, tensor, meaning)
        self.shown.append(Shown(name, layout_text(tensor), tuple(lines)))
        for line in lines:
            self.sink(line)

    def sliced(self, tensor: Any, coordinate: Any, frame: Any) -> None:
        """Report constants that pin a mode of a watched tensor."""
        if not isinstance(coordinate, tuple) or memory(tensor) not in _WATCHED or None not in _leaves(coordinate):
            return
        _, name, labels = self._known.get(id(tensor), (None, _name_in(frame, tensor), ()))
        place = f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
        for number, (mode, at) in enumerate(zip(modes(tensor, labels), coordinate, strict=False)):
            for path, shape, stride, constant in _pinned(str(number), mode.shape, mode.stride, at):
                pin = Pin(name, path, shape, stride, mode.label, constant, place)
                if pin not in self.pins:
                    self.pins.append(pin)
                    self.sink(str(pin))


_listing: ContextVar[Listing | None] = ContextVar("listing", default=None)
_of_process: list[Listing] = []


@contextmanager
def showing(sink: Sink = print) -> Iterator[Listing]:
    """Within this context ``show`` hands every line to ``sink``; gives what was shown."""
    listing = Listing(sink)
    token = _listing.set(listing)
    _watch_slices()
    try:
        yield listing
    finally:
        _listing.reset(token)
        _unwatch_slices()


def show(*tensors: Any, **named: Any) -> None:
    """Print each tensor (or layout): name, memory, element type, layout, and a line for every mode.

    A tensor given without a name is called as the caller's variable. A text among the arguments names the modes, parted
    by commas: ``show(tVgV, "box, kv tile")``.
    """
    listing = _now()
    if listing is None:
        return
    _watch_slices()
    frame = sys._getframe(1)
    meaning = next((x for x in tensors if isinstance(x, str) and ":" not in x), "")
    for tensor in tensors:
        if tensor is not meaning:
            listing.add(_name_in(frame, tensor), tensor, meaning)
    for name, tensor in named.items():
        listing.add(name, tensor, meaning)


@contextmanager
def expect_shapes(expected: str, *, pinned: Sequence[str] = ()) -> Iterator[Listing]:
    """For tests: what is traced inside must show these layouts, in this order.

    ``expected`` has a line ``name layout`` for each, as ``show`` prints them; other names may be shown in between, and
    an indented comment behind ``#`` is left out. ``pinned`` names the tensors that a constant may pin.

    Raises AssertionError that names the first line that differs, or the pin that was not expected.
    """
    with showing(lambda line: None) as listing:
        yield listing
    wanted = [line.split("#")[0].split(maxsplit=1) for line in expected.splitlines() if line.split("#")[0].strip()]
    at = 0
    for name, layout in ((words[0], "".join(words[1:]).strip()) for words in wanted):
        places = [n for n, shown in enumerate(listing.shown) if shown.name == name]
        found = next((n for n in places if n >= at and listing.shown[n].layout == layout), None)
        if found is None:
            raise AssertionError(_mismatch(name, layout, listing, at))
        at = found + 1
    for pin in listing.pins:
        if pin.name not in pinned:
            raise AssertionError(str(pin))


def _mismatch(name: str, layout: str, listing: Listing, at: int) -> str:
    own = [shown.layout for shown in listing.shown if shown.name == name]
    if not own:
        names = ", ".join(dict.fromkeys(shown.name for shown in listing.shown)) or "nothing"
        return f"{name} was not shown; shown: {names} (a kernel from a compile cache is not traced)"
    if layout in own:
        before = listing.shown[at - 1].name if at else "the beginning"
        return f"{name} {layout} was shown, but not behind {before}"
    return f"{name} is {' and '.join(dict.fromkeys(own))}, expected {layout}"


def describe(name: str, tensor: Any, meaning: str = "") -> list[str]:
    """The lines about a tensor: the layout whole, then mode by mode."""
    labels = _labels(meaning)
    rows = modes(tensor, labels)
    space = memory(tensor)
    element = "" if space == "coordinates" else getattr(ask(tensor, "element_type"), "__name__", "")
    about = " ".join(part for part in (space, element, _swizzle(tensor)) if part)
    head = f"{name:<8} {layout_text(tensor)}" + (f"   {about}" if about else "")
    if labels and len(labels) != len(rows):
        head += f"   # {len(labels)} labels for {len(rows)} modes: {meaning}"
    return [head, *_table(rows)]


def _labels(meaning: str) -> list[str]:
    return [part.strip() for part in meaning.split(",")] if meaning else []


def _table(rows: Sequence[Mode]) -> list[str]:
    cells = [
        (str(n), r.label, f"{r.shape} : {r.stride}" if r.stride else r.shape, r.meaning) for n, r in enumerate(rows)
    ]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)] if cells else []
    lines = []
    for number, label, layout, meaning in cells:
        named = f"{label:<{widths[1]}}  " if widths[1] else ""
        lines.append(f"    {number:>{widths[0]}}  {named}{layout:<{widths[2]}}  {meaning}".rstrip())
    return lines


def _swizzle(tensor: Any) -> str:
    """The swizzle that a pointer carries; one in the layout is printed there."""
    text = str(ask(tensor, "iterator") or "")
    start = text.find("S<")
    return text[start : text.index(">", start) + 1] if start >= 0 and text.startswith("ptr<") else ""


def _now() -> Listing | None:
    listing = _listing.get()
    if listing is None and os.environ.get(VARIABLE) == "1":
        if not _of_process:
            _of_process.append(Listing(print))
        listing = _of_process[0]
    return listing


def _tensor_type() -> Any:
    """CuTe's class of tensors; None as long as nobody has imported it."""
    return getattr(sys.modules.get("cutlass.cute.tensor"), "_Tensor", None)


def _watch_slices() -> None:
    """Let slices of CuTe's tensors be seen, while shapes are shown."""
    kind = _tensor_type()
    if kind is None or hasattr(kind.__getitem__, "original"):
        return
    slice_ = kind.__getitem__

    def watched(self: Any, coordinate: Any, **where: Any) -> Any:
        listing = _now()
        if listing is not None:
            listing.sliced(self, coordinate, sys._getframe(1))
        return slice_(self, coordinate, **where)

    watched.original = slice_  # type: ignore[attr-defined]
    kind.__getitem__ = watched


def _unwatch_slices() -> None:
    kind = _tensor_type()
    if kind is not None and _now() is None:
        kind.__getitem__ = getattr(kind.__getitem__, "original", kind.__getitem__)


def _pinned(path: str, shape: str, stride: str, at: Any) -> Iterator[tuple[str, str, str, int]]:
    """(path, shape, stride, constant) of the modes inside this one that a coordinate pins."""
    if isinstance(at, tuple):
        parts = zip(split(shape), split(stride) or [""] * len(split(shape)), at, strict=False)
        for number, (inner_shape, inner_stride, inner) in enumerate(parts):
            yield from _pinned(f"{path}.{number}", inner_shape, inner_stride, inner)
        return
    constant = getattr(at, "value", at)
    moves = any(leaf != "1" for leaf in flat(shape))
    if isinstance(constant, int) and not isinstance(constant, bool) and moves:
        yield path, shape, stride, constant


def _leaves(coordinate: Any) -> list[Any]:
    if isinstance(coordinate, tuple):
        return [leaf for part in coordinate for leaf in _leaves(part)]
    return [coordinate]


def _name_in(frame: Any, tensor: Any) -> str:
    """What the caller calls it."""
    local: Mapping[str, Any] = frame.f_locals
    return next((name for name, value in local.items() if value is tensor), "?")


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
