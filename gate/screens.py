"""What a person sees while gates run: live lines on a terminal, plain lines in a log, one line per gate with -q."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gate import blocks, table
from gate.job import Job
from gate.result import CaseResult, GateResult, to_explain
from gate.status import NOT_RUN, is_failure

_LOG_WIDTH = 120
_MOST_LIVE = 12
_MOST_NAMES = 4
_COLOURS = {"pass": "green", "xfail": "yellow", "skipped": "yellow", "blocked": "yellow"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
Key = tuple[str, str]


def console(*, colour: bool, stderr: bool) -> Console:
    """A console that is 120 columns wide in a log and as wide as the terminal on one."""
    made = Console(stderr=stderr, highlight=False, markup=False, no_color=not colour or None)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, markup=False, no_color=True, width=_LOG_WIDTH)
    return made


class Screen:
    """Prints gate by gate in ladder order, whatever order the cases end in: later gates wait until it is their turn."""

    def __init__(
        self,
        out: Console,
        order: Iterable[Key],
        *,
        quiet: bool,
        verbose: bool,
        live: bool,
        folder: Path,
        debug: str | None,
    ) -> None:
        self.out = out
        self.quiet = quiet
        self.verbose = verbose
        self.folder = folder
        self.debug = debug
        self.claims: dict[str, str] = {}
        self._order = list(order)
        self._pending: dict[Key, list[CaseResult]] = {key: [] for key in self._order}
        self._closed: dict[Key, tuple[GateResult, list[CaseResult]]] = {}
        self._opened: set[Key] = set()
        self._running: dict[str, tuple[str, float]] = {}
        self._ended = 0
        self._total = 0
        self._widths: dict[str, int] = {}
        self._first_seed: dict[Key, int] = {}
        self._live = Live(console=out, auto_refresh=False, transient=True) if live and out.is_terminal else None

    def begin(self, jobs: Iterable[Job], claims: dict[str, str]) -> None:
        """These cases will end; `claims` maps gates to their `about`."""
        ids: dict[str, list[str]] = {}
        for job in jobs:
            ids.setdefault(job.gate, []).append(job.case)
        self._total = sum(len(cases) for cases in ids.values())
        self._widths = {gate: table.id_width(cases) for gate, cases in ids.items()}
        self.claims = claims
        if self._live is not None:
            self._live.start()

    def close(self) -> None:
        """Take the live lines away."""
        if self._live is not None:
            self._live.stop()

    def say(self, line: str = "", style: str = "") -> None:
        """One line, never wrapped by us."""
        self.out.print(Text(line, style=style), soft_wrap=True)

    # --- listener ------------------------------------------------------------------------------------------------

    def started(self, job: Job) -> None:
        self._running[job.label] = ("import", time.monotonic())

    def step(self, job: Job, step: str) -> None:
        if job.label in self._running:
            self._running[job.label] = (step, self._running[job.label][1])

    def ended(self, result: CaseResult) -> None:
        self._running.pop(result.label, None)
        self._ended += 1
        self._pending[result.gate, result.arch].append(result)
        self._flush()

    def gate_ended(self, verdict: GateResult, results: list[CaseResult]) -> None:
        self._closed[verdict.gate, verdict.arch] = (verdict, results)
        self._flush()

    def tick(self) -> None:
        if self._live is None:
            return
        now = time.monotonic()
        spin = _SPINNER[int(now * 8) % len(_SPINNER)]
        lines = [f"{spin} {self._ended} of {self._total} cases done, {len(self._running)} running"]
        for label, (step, started) in list(self._running.items())[:_MOST_LIVE]:
            lines.append(f"  {label:<64} {step:<10} {table.seconds(now - started):>8}")
        self._live.update(Text("\n".join(lines), style="dim"), refresh=True)

    # --- printing ------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Print what it is the turn of."""
        while self._order:
            key = self._order[0]
            if not self.quiet:
                self._print_cases(key)
            if key not in self._closed:
                return
            self._order.pop(0)
            self._print_end(*self._closed[key])

    def _print_cases(self, key: Key) -> None:
        for result in self._pending[key]:
            if result.mutant is not None:
                continue
            self._open(key, result)
            if self._worth_a_line(key, result):
                self._print_case(result)
        self._pending[key].clear()

    def _open(self, key: Key, result: CaseResult) -> None:
        if key in self._opened or result.status in NOT_RUN:
            return
        self._opened.add(key)
        self._first_seed[key] = result.seed
        gate, arch = key
        self.say()
        line = Text(f"{gate}  ", style="bold")
        line.append(f"{self.claims.get(gate, '')}", style="not bold")
        line.append(f"  ·  {arch}, {result.evidence}", style="not bold dim")
        self.out.print(line, soft_wrap=True)
        self.say(table.header(self._widths.get(gate, 0)), "dim")

    def _worth_a_line(self, key: Key, result: CaseResult) -> bool:
        """Passes of later seeds are summed up in one line, unless -v."""
        first = self._first_seed.setdefault(key, result.seed)
        return result.status not in NOT_RUN and (self.verbose or result.status != "pass" or result.seed == first)

    def _print_case(self, result: CaseResult) -> None:
        width = self._widths.get(result.gate, 0)
        line = Text(f"{table.row(result, width)}  ")
        line.append(result.status, style=_colour(result.status))
        if result.resumed_from:
            line.append(f" (run {result.resumed_from})", style="dim")
        self.out.print(line, soft_wrap=True)
        if self.verbose:
            for text in table.verbose_rows(result, width):
                self.say(text, "dim")
        self._print_debug(result)

    def _print_debug(self, result: CaseResult) -> None:
        if self.debug == "shapes":
            log = self.folder / "cases" / result.gate / result.id / "stdout.txt"
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            for line in text.splitlines() or ["(the kernel printed nothing at trace time)"]:
                self.say(f"    │ {line}", "bold red" if line.startswith("PINNED ") else "")
        if self.debug == "ptx":
            for artifact in result.artifacts:
                if artifact.endswith(".ptx"):
                    self.say(f"    ptx  {self.folder / artifact}")
        for artifact in result.artifacts:
            if artifact.rpartition("/")[2].startswith("trace"):
                self.say(f"    trace  {os.path.relpath(self.folder / artifact)}")
            if artifact.endswith("/views.txt"):
                for line in (self.folder / artifact).read_text(encoding="utf-8").splitlines():
                    self.say(f"    │ {line}")

    def _print_end(self, verdict: GateResult, results: list[CaseResult]) -> None:
        if not self.quiet:
            self._print_seeds(verdict, results)
            self._print_skips(results)
            for result in to_explain(results, verdict.falsification):
                self.say()
                self._print_block(result)
            self._print_facts(verdict, results)
        line = Text()
        line.append(f"{blocks.word(verdict.status):<5} ", style=f"bold {_colour(verdict.status)}")
        line.append(f"{verdict.gate}", style="bold")
        line.append("  " + "  ".join(part for part in self._end_parts(verdict, results) if part))
        self.out.print(line, soft_wrap=True)

    def _print_seeds(self, verdict: GateResult, results: list[CaseResult]) -> None:
        first = self._first_seed.get((verdict.gate, verdict.arch))
        if self.verbose or first is None:
            return
        seeds: dict[int, int] = {}
        for result in results:
            if result.seed != first and result.status == "pass" and result.mutant is None:
                seeds[result.seed] = seeds.get(result.seed, 0) + 1
        for seed, passed in sorted(seeds.items()):
            self.say(f"  … seed {seed}: {passed} pass")

    def _print_skips(self, results: list[CaseResult]) -> None:
        """What was not run, by reason."""
        reasons: dict[str, list[str]] = {}
        for result in results:
            if result.status in NOT_RUN:
                reasons.setdefault(result.reason or "", []).append(result.id)
        for reason, cases in reasons.items():
            if len(cases) < len(results):
                shown = ", ".join(cases[:_MOST_NAMES]) + (", …" if len(cases) > _MOST_NAMES else "")
                self.say(f"  {len(cases)} not run: {shown}: {reason}", "yellow")

    def _print_block(self, result: CaseResult) -> None:
        head, *rest = blocks.failure(result)
        self.say(head, f"bold {_colour(result.status)}")
        for line in rest:
            self.say(line)

    def _print_facts(self, verdict: GateResult, results: list[CaseResult]) -> None:
        if all(r.status in NOT_RUN for r in results):
            return
        self.say()
        for line in table.facts(verdict, results):
            self.say(f"  {line}")
        for line in table.mutant_lines(verdict.falsification):
            self.say(f"  {line}")
        for line in table.blind_lines(row for row in verdict.falsification if row.kind == "variant"):
            self.say(f"  {line}", "dim")

    def _end_parts(self, verdict: GateResult, results: list[CaseResult]) -> list[str]:
        real = [r for r in results if r.mutant is None]
        ran = any(r.status not in NOT_RUN for r in real)
        return [
            verdict.arch,
            f"{verdict.passed}/{verdict.total} cases" if ran else "",
            table.worst(real) if verdict.status == "pass" else (verdict.message or ""),
            table.seconds(verdict.seconds) if ran else "",
            verdict.evidence if ran else "",
        ]


def _colour(status: str) -> str:
    return _COLOURS.get(status, "red") if status in _COLOURS or is_failure(status) else "default"
