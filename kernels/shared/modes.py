"""What the modes of a tensor or layout are, read from the text that CuTe prints for it.

Text, because that is one form for all: ``(8,4):(4,1)``, the coordinates of a TMA tensor ``((64,128),?):((1@0,1@1),0)``,
a swizzled ``S<3,4,3> o 0 o (8,64):(64,1)``, extents known at run time ``?`` or ``?{i64 div=8}``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LANE = 65536
"""Step from a lane of tensor memory to the next, in the address that CuTe counts in."""

_TERM = re.compile(r"^(\?[^@]*|\d+)@(\d+(?:@\d+)*)$")


@dataclass(frozen=True)
class Mode:
    """One top-level mode: texts of its shape and stride, its size (None: known at run time), what it means."""

    shape: str
    stride: str
    size: int | None
    meaning: str
    label: str = ""


def layout_text(tensor: Any) -> str:
    """The layout of a tensor as CuTe prints it; what has no ``layout`` is one."""
    return str(getattr(tensor, "layout", tensor))


def memory(tensor: Any) -> str:
    """``gmem``, ``smem``, ``tmem``, ``rmem``; ``coordinates`` for what counts places instead of holding values;
    ``descriptors`` of shared memory, whose strides count 16 bytes."""
    space = str(ask(tensor, "memspace") or "").rpartition(".")[2]
    if space:
        return space
    if "@" in layout_text(tensor):
        return "coordinates"
    return "descriptors" if "smem_desc" in str(ask(tensor, "iterator")) else ""


def ask(tensor: Any, attribute: str) -> Any:
    """The attribute, or None: tensors of coordinates lie in no memory, and say so by ValueError."""
    try:
        return getattr(tensor, attribute, None)
    except ValueError:
        return None


def modes(tensor: Any, labels: Sequence[str] = ()) -> list[Mode]:
    """The top-level modes in order. ``labels`` are the author's names, if there is one for each."""
    shape, stride = _halves(layout_text(tensor))
    shapes, strides = split(shape), split(stride)
    if not stride or len(shapes) != len(strides):
        strides = [""] * len(shapes)
    space, width = memory(tensor), getattr(ask(tensor, "element_type"), "width", 32)
    names = labels if len(labels) == len(shapes) else [""] * len(shapes)
    rows = zip(shapes, strides, names, strict=True)
    return [Mode(a, b, size(a), _meaning(a, b, space, width), name) for a, b, name in rows]


def _halves(layout: str) -> tuple[str, str]:
    """Shape and stride. Of a swizzled layout, those of its outer part, which is what coordinates index."""
    shape, _, stride = layout.rpartition(" o ")[2].strip().partition(":")
    return shape, stride


def split(text: str) -> list[str]:
    """The elements of a printed tuple; a text without parentheses is its own only element."""
    if not (text.startswith("(") and text.endswith(")")):
        return [text] if text else []
    parts, depth, start = [], 0, 1
    for at, sign in enumerate(text):
        depth += (sign in "({") - (sign in ")}")
        if (sign == "," and depth == 1) or at == len(text) - 1:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in parts if part]


def flat(text: str) -> list[str]:
    """The leaves of a printed tuple."""
    if not text.startswith("("):
        return [text] if text else []
    return [leaf for part in split(text) for leaf in flat(part)]


def size(shape: str) -> int | None:
    """Elements of a printed shape; None if an extent is known only at run time."""
    leaves = flat(shape)
    return math.prod(map(int, leaves)) if all(leaf.isdigit() for leaf in leaves) else None


def _meaning(shape: str, stride: str, space: str, width: int) -> str:
    """What the strides alone say."""
    if size(shape) == 1:
        return "one"
    pairs = [(n, s) for n, s in zip(flat(shape), flat(stride), strict=False) if n != "1"]
    steps = [s for _, s in pairs if s != "0"]
    if stride and not steps:
        return "repeats one place"
    parts = []
    if any("@" in s for s in steps):
        parts.append(_of_coordinates(pairs))
    elif space == "tmem" and all(s.isdigit() for s in steps) and size(shape) is not None:
        parts.append(_of_tensor_memory(pairs, width))
    elif "1" in steps:
        parts.append("contiguous" if len(steps) == 1 else "contiguous in part")
    elif len(steps) == 1:
        parts.append("steps set at run time" if steps[0].startswith("?") else f"steps of {steps[0]}")
    if any(s == "0" for _, s in pairs):
        parts.append("repeats in part")
    if size(shape) is None:
        parts.append("extent known at run time")
    return ", ".join(parts)


def _of_coordinates(pairs: Sequence[tuple[str, str]]) -> str:
    terms = [(extent, *found.groups()) for extent, stride in pairs if (found := _TERM.match(stride))]
    if len(terms) == 1:
        _, step, dimension = terms[0]
        return f"dimension {dimension}" + ("" if step == "1" else f" in steps of {step}")
    return "box of " + " x ".join(f"{extent} in dimension {dimension}" for extent, _, dimension in terms)


def _of_tensor_memory(pairs: Sequence[tuple[str, str]], width: int) -> str:
    """Lanes, and columns of 32 bits; narrower values are counted one by one."""
    unit = "columns" if width == 32 else f"{width}-bit values"
    lanes = math.prod(int(n) for n, s in pairs if int(s) >= LANE)
    columns = math.prod(int(n) for n, s in pairs if 0 < int(s) < LANE)
    first = min((int(s) for _, s in pairs if 0 < int(s) < LANE), default=1)
    inside = f"{columns} {unit}" if first == 1 else f"{columns} places {first} {unit} apart"
    return " x ".join([f"{lanes} lanes"] * (lanes > 1) + [inside] * (columns > 1))
