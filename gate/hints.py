"""Where a stage names a wrong variant, and the comment that stands there: the hint of `looks like`."""

from __future__ import annotations

import ast
from pathlib import Path


def find(path: Path, name: str) -> tuple[int, str | None] | None:
    """(line, comment) of the text literal `name` in a source file, or None if it does not occur.

    The comment is the block of comment lines directly above, else the one behind it on the same line.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    found = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value == name]
    if not found:
        return None
    lines = text.splitlines()
    line = max(found)
    above: list[str] = []
    for previous in reversed(lines[: line - 1]):
        if not previous.lstrip().startswith("#"):
            break
        above.insert(0, previous.strip().lstrip("# "))
    behind = lines[line - 1].partition("  # ")[2].strip()
    return line, " ".join(above) or behind or None
