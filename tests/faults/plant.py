"""Faults planted by editing PTX that the compiler emitted.

A *statement* is one line, or a whole inline-assembly block in braces (a loop around `mbarrier.try_wait` is one). An
edit names statements by a regular expression and the number of the match, counted from 0; `EVERY` means all. An edit
that finds nothing to change raises `NotPlanted`: the compiler's output has changed, and the fault would test nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

Edit = Callable[[list[str]], list[str]]
EVERY = -1
_BEGIN, _END = "// begin inline asm", "// end inline asm"


class NotPlanted(Exception):
    """An edit did not match the PTX."""


def statements(ptx: str) -> list[str]:
    """The text in pieces that edits work on; joined by newlines they are the text again."""
    found: list[str] = []
    block: list[str] | None = None
    for line in ptx.split("\n"):
        text = line.strip()
        if text == _BEGIN:
            block = [line]
        elif block is None:
            found.append(line)
        elif text == _END:
            # A block in braces has names of its own and stays whole; others are ordinary instructions.
            whole = any(part.strip() == "{" for part in block)
            found += ["\n".join([*block, line])] if whole else [*block, line]
            block = None
        else:
            block.append(line)
    return found


def plant(ptx: str, *edits: Edit) -> str:
    """The PTX with every edit applied, in order."""
    pieces = statements(ptx)
    for edit in edits:
        pieces = edit(pieces)
    return "\n".join(pieces)


def drop(pattern: str, which: int = 0) -> Edit:
    """Leave the statement out."""
    return lambda pieces: _each(pieces, pattern, which, lambda piece: [])


def double(pattern: str, which: int = 0) -> Edit:
    """Execute the statement twice."""
    return lambda pieces: _each(pieces, pattern, which, lambda piece: [piece, piece])


def change(pattern: str, old: str, new: str, which: int = 0) -> Edit:
    """Replace the regular expression `old` by `new` within the statement, once."""

    def changed(piece: str) -> list[str]:
        text, count = re.subn(old, new, piece, count=1)
        if not count:
            raise NotPlanted(f"{old!r} is not in {piece.strip()!r}")
        return [text]

    return lambda pieces: _each(pieces, pattern, which, changed)


def insert(where: Literal["before", "after"], pattern: str, text: str, which: int = 0) -> Edit:
    """Put `text` before or after the statement."""
    return lambda pieces: _each(
        pieces, pattern, which, lambda piece: [text, piece] if where == "before" else [piece, text]
    )


def move(pattern: str, which: int, where: Literal["before", "after"], target: str, target_which: int = 0) -> Edit:
    """Take the statement out and put it before or after another."""

    def moved(pieces: list[str]) -> list[str]:
        at = _find(pieces, pattern, which)[0]
        rest = pieces[:at] + pieces[at + 1 :]
        return insert(where, target, pieces[at], target_which)(rest)

    return moved


def _find(pieces: list[str], pattern: str, which: int) -> list[int]:
    hits = [i for i, piece in enumerate(pieces) if re.search(pattern, piece)]
    if not hits or which >= len(hits):
        raise NotPlanted(f"{pattern!r} matches {len(hits)} statements, number {max(which, 0)} is wanted")
    return hits if which == EVERY else [hits[which]]


def _each(pieces: list[str], pattern: str, which: int, change: Callable[[str], list[str]]) -> list[str]:
    chosen = set(_find(pieces, pattern, which))
    return [new for i, piece in enumerate(pieces) for new in (change(piece) if i in chosen else [piece])]
