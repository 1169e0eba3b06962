"""What the command line can refuse, each with the exit code that it earns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 2
EXIT_INTERNAL = 3
EXIT_USAGE = 4
EXIT_EMPTY = 5


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a file of the user: `file:line:column: message` (lines and columns count from 1)."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class GateError(Exception):
    """A refusal before or instead of running; `code` is the exit code of the process."""

    code = EXIT_USAGE


class UsageError(GateError):
    """A flag, a gate name or an expression that cannot be used."""


class BadFile(GateError):
    """Problems found in `gates.yaml` or in stage files, all at once."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in sorted(problems)))
        self.problems = sorted(problems)


class EmptySelection(GateError):
    """The selection names no case, or nothing that can run here."""

    code = EXIT_EMPTY


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""
