"""Shapes, printed while a kernel is traced.

``show("kv tile is mode 2", tVgV=tVgV)`` prints name, memory, shape and stride of a tensor, once, at trace time, and
only inside ``showing()`` or with ``WORKBENCH_SHOW=1`` in the environment. It emits no instruction, so a kernel keeps
its calls for good. A kernel that comes out of a compile cache is not traced and prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Sink = Callable[[str], None]

_sink: ContextVar[Sink | None] = ContextVar("sink", default=None)


@contextmanager
def showing(sink: Sink = print) -> Iterator[None]:
    """Within this context ``show`` hands every line to ``sink``."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def show(meaning: str = "", /, **tensors: Any) -> None:
    """Print name, memory, element type, shape and stride of each tensor (or layout); ``meaning`` names its modes."""
    sink = _sink.get() or (print if os.environ.get("WORKBENCH_SHOW") == "1" else None)
    if sink is None:
        return
    for name, tensor in tensors.items():
        sink(line(name, tensor, meaning))


def _ask(tensor: Any, attribute: str) -> Any:
    """The attribute, or None: tensors of coordinates lie in no memory, and say so by ValueError."""
    try:
        return getattr(tensor, attribute, None)
    except ValueError:
        return None


def line(name: str, tensor: Any, meaning: str = "") -> str:
    """One aligned line about ``tensor``, which needs a ``shape`` and a ``stride`` or a ``layout``."""
    layout = getattr(tensor, "layout", tensor)
    element = getattr(_ask(tensor, "element_type"), "__name__", "")
    space = str(_ask(tensor, "memspace") or "").rpartition(".")[2]
    where = f"{space} {element}" if space else ("coordinates" if "@" in str(layout) else "")
    return f"{name:<8} {where:<14} {layout}" + (f"   # {meaning}" if meaning else "")
