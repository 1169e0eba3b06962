"""Roles of warps: which Python function the instruction at hand comes from."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from emulator.errors import Where
from emulator.events import WarpId
from emulator.watch.sites import Site


@lru_cache(256)
def _functions(path: str) -> tuple[tuple[int, int, str], ...]:
    """(first line, last line, name) of every function of a file; nothing if it is not there or is no Python."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple((n.lineno, n.end_lineno or n.lineno, n.name) for n in ast.walk(tree) if isinstance(n, kinds))


@lru_cache(1 << 14)
def function_at(path: str, line: int) -> str:
    """The innermost function around a line of a Python file, or empty."""
    around = [f for f in _functions(path) if f[0] <= line <= f[1]]
    return min(around, key=lambda f: f[1] - f[0])[2] if around else ""


def role(place: Where) -> str:
    """The Python function that the instruction was written in, else `warp N`."""
    return (function_at(*place.loc) if place.loc else "") or f"warp {place.warp}"


def source(place: Where | None, at: int) -> tuple[str, int]:
    """What makes two places one mistake: the line of Python, which loops unroll into many instructions, else the static
    instruction `at`."""
    return place.loc if place is not None and place.loc else ("", at)


def side(who: WarpId | Site, operation: str = "") -> str:
    """Somebody in a sentence: `warp 3` or `tensor load to 0x400 (issued by warp 3)`."""
    if isinstance(who, Site):
        number, operation = who.warp.warp if who.warp else -1, who.operation
    else:
        number = who.warp
    return f"the {operation} of warp {number}" if operation else f"warp {number}"
