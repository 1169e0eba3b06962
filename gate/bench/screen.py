"""What a person sees while times are taken: a live line on a terminal, then a table for each gate."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gate.bench import table
from gate.bench.plan import BenchJob
from gate.result import BenchResult
from gate.status import is_failure
from gate.table import seconds

_COLOURS = {"pass": "green", "skipped": "yellow"}


class BenchScreen:
    """Prints a gate when all of its cases have ended."""

    def __init__(self, out: Console, *, quiet: bool, live: bool) -> None:
        self.out = out
        self.quiet = quiet
        self._left: dict[tuple[str, str], int] = {}
        self._total = 0
        self._done: list[BenchResult] = []
        self._doing = ""
        self._since = time.monotonic()
        self._live = Live(console=out, auto_refresh=False, transient=True) if live and out.is_terminal else None

    def begin(self, jobs: Sequence[BenchJob]) -> None:
        """These will end."""
        self._total = len(jobs)
        for job in jobs:
            self._left[job.gate, job.arch] = self._left.get((job.gate, job.arch), 0) + 1
        if self._live is not None:
            self._live.start()

    def doing(self, what: str) -> None:
        """Something else begins."""
        self._doing, self._since = what, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Time has passed."""
        if self._live is not None:
            spent = seconds(time.monotonic() - self._since)
            line = f"{self._doing}  {len(self._done)} of {self._total} timed  {spent}"
            self._live.update(Text(line, style="dim"), refresh=True)

    def ended(self, result: BenchResult) -> None:
        """A case has ended; its gate is printed with its last one."""
        self._done.append(result)
        key = (result.gate, result.arch)
        self._left[key] -= 1
        if not self._left[key]:
            self._print(key)
        self.tick()

    def close(self) -> None:
        """Print gates that were left unfinished, and take the live line away."""
        for key in dict.fromkeys((r.gate, r.arch) for r in self._done):
            if self._left[key]:
                self._print(key)
        if self._live is not None:
            self._live.stop()

    def say(self, line: str = "", style: str = "") -> None:
        """One line, never wrapped by us."""
        self.out.print(Text(line, style=style), soft_wrap=True)

    def _print(self, key: tuple[str, str]) -> None:
        results = [result for result in self._done if (result.gate, result.arch) == key]
        if not self.quiet:
            evidence = next((result.evidence for result in results if result.evidence), "")
            self.say()
            self.out.print(Text(f"{key[0]}  ", style="bold").append(f"{key[1]}, {evidence}", style="not bold dim"))
            self.out.print(_table(results))
            self.say(table.LEGEND, "dim")
        for result in results:
            if result.status != "pass":
                head, *rest = table.failure(result)
                self.say(head, f"bold {_colour(result.status)}")
                for line in rest:
                    self.say(line)


def _table(results: Sequence[BenchResult]) -> Table:
    """Quoted times are dim."""
    shown = table.columns(results)
    made = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for column in shown:
        head = column.name.replace(" ", "\n", 1)
        style = "dim" if column.of == "peer" else ""
        made.add_column(head, justify="left" if column.words else "right", no_wrap=True, style=style)
    for result in results:
        cells = [Text(cell) for cell in table.row(result, shown)]
        cells[-1].stylize(_colour(result.status))
        made.add_row(*cells)
    return made


def _colour(status: str) -> str:
    return _COLOURS.get(status, "red" if is_failure(status) else "default")
