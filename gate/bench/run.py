"""One run of --bench from selection to exit code: time, judge, write `result.json`, render everything else from it."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from gate import machine, stage_files
from gate.bench import baseline, table
from gate.bench.plan import BenchJob, Plan, plan, profiler
from gate.bench.pool import Pool
from gate.bench.screen import BenchScreen
from gate.errors import EXIT_EMPTY, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, BadFile
from gate.execute import MOST_ANNOTATIONS, describe, link_to_report, on_github, write
from gate.folders import commit, new_run_folder, utc_now
from gate.load import Gates
from gate.options import FAIL_SLOWER
from gate.result import SCHEMA, BenchReport, BenchResult, NotChecked, Result
from gate.select import gate_names
from gate.status import is_failure

_MOST_PREPARING = 12


class Timer(Protocol):
    """What times jobs: `gate.bench.pool.Pool`, or a stand-in for it."""

    def prepare(self, jobs: Sequence[BenchJob], at_once: int) -> None:
        """Have every kernel compiled."""

    def results(self, jobs: Sequence[BenchJob], mode: str = "time") -> Iterator[BenchResult]:
        """The result of each job, in order."""


def bench(gates: Gates, options: argparse.Namespace, command: str, out: Console, timer: Timer | None = None) -> int:
    """Time the bench cases that the flags ask for, and report them; gives the exit code.

    Raises:
        BadFile, UsageError, EmptySelection: before anything has run.
    """
    problems = stage_files.problems(gates, gate_names(gates, options.gates))
    if problems:
        raise BadFile(problems)
    chosen = plan(gates, options)
    kept = baseline.load(gates.root, options.compare) if options.compare else None
    state = commit(gates.root)
    folder = new_run_folder(gates.root, state)
    info = describe(command, state)
    started = time.monotonic()
    screen = BenchScreen(out, quiet=options.quiet, live=options.format == "auto")
    for note in chosen.notes:
        screen.say(note, "yellow")
    results = [_skipped(job, reason) for job, reason in chosen.skipped]
    interrupted = False
    try:
        for timed in _timed(timer or Pool(gates.root, folder, screen.tick), chosen.jobs, options, screen):
            judged = baseline.judged(timed, kept, options.compare, _allowed(options))
            results.append(judged)
            screen.ended(judged)
            if options.stop and is_failure(judged.status):
                screen.say(f"stopped after the first failure, {judged.label} (-x)", "yellow")
                break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        screen.close()
    # the report of what has ended is written even if the impatient press Ctrl-C again
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = {"ended": utc_now(), "seconds": time.monotonic() - started, "interrupted": interrupted}
        report = _report(results, options)
        unchecked = _not_checked(chosen, results)
        result = Result(schema=SCHEMA, run=info.model_copy(update=ended), bench=report, not_checked=unchecked)
        write(result, gates, folder, options)
        if options.save:
            screen.say(f"kept as {baseline.save(gates.root, options.save, results).relative_to(gates.root)}")
    finally:
        signal.signal(signal.SIGINT, previous)
    _farewell(result, report, folder, screen, options)
    return exit_code(result, report)


def exit_code(result: Result, report: BenchReport) -> int:
    """Interrupted, misused, failed, nothing timed, or all within limits; in this order."""
    if result.run.interrupted:
        return EXIT_INTERRUPTED
    if any(one.status == "contract_error" for one in report.results):
        return EXIT_USAGE
    if report.failures():
        return EXIT_FAILED
    if all(one.status == "skipped" for one in report.results):
        return EXIT_EMPTY
    return EXIT_OK


def _timed(
    timer: Timer, jobs: Sequence[BenchJob], options: argparse.Namespace, screen: BenchScreen
) -> Iterator[BenchResult]:
    """Results as they come. Under a profiler every kernel is called once and none is timed."""
    screen.begin(jobs)
    attached = profiler()
    if attached:
        screen.say(f"{attached} is attached, whose work would be timed too: every kernel is called once", "yellow")
        yield from timer.results(jobs, "profile")
        return
    at_once = min(options.jobs or machine.cores(), _MOST_PREPARING)
    if len(jobs) > 1 and at_once > 1:
        screen.doing(f"compiling {len(jobs)} kernels, {min(at_once, len(jobs))} at once")
        timer.prepare(jobs, at_once)
    screen.doing("timing")
    yield from timer.results(jobs)


def _allowed(options: argparse.Namespace) -> float:
    return FAIL_SLOWER if options.fail_slower is None else float(options.fail_slower)


def _skipped(job: BenchJob, reason: str) -> BenchResult:
    about = {name: getattr(job, name) for name in ("gate", "case", "arch", "bytes", "at_most", "at_most_us", "peers")}
    return BenchResult.model_validate(about | {"status": "skipped", "message": reason})


def _report(results: list[BenchResult], options: argparse.Namespace) -> BenchReport:
    slower = _allowed(options) if options.compare else None
    return BenchReport(results=results, saved=options.save, compared=options.compare, fail_slower=slower)


def _not_checked(chosen: Plan, results: Sequence[BenchResult]) -> list[NotChecked]:
    """What times say nothing about."""
    gates = ", ".join(dict.fromkeys(result.gate for result in results)) or "every gate"
    found = [NotChecked(what=f"values: {gates}", why="--bench times kernels, it judges no output")]
    found += [NotChecked(what=one.label, why=str(one.message)) for one in results if one.status == "skipped"]
    seen = {result.label for result in results}
    found += [NotChecked(what=job.label, why="the run had ended") for job in chosen.jobs if job.label not in seen]
    free = [one.label for one in results if one.at_most is None and one.at_most_us is None]
    if free:
        found.append(NotChecked(what=", ".join(free), why="no limit in gates.yaml: shown, not judged"))
    return found


def _farewell(
    result: Result, report: BenchReport, folder: Path, screen: BenchScreen, options: argparse.Namespace
) -> None:
    if on_github(options):
        for one in report.failures()[:MOST_ANNOTATIONS]:
            screen.say(f"::error file=gates.yaml,title={one.label}: {one.status}::{one.message}")
    if result.run.interrupted:
        screen.say("interrupted: the report holds what had ended", "yellow")
    screen.say(table.evidence(result.run, report.results), "dim")
    red = bool(report.failures())
    screen.say(f"{'FAIL' if red else 'DONE'}  {table.summary(report.results)}", "bold red" if red else "bold green")
    if not options.quiet:
        screen.out.print(link_to_report(folder, options), soft_wrap=True)
