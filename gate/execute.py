"""One run from selection to exit code: select, run, write `result.json`, render everything else from it."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gate import blocks, machine, stage_files
from gate.errors import EXIT_EMPTY, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, BadFile, UsageError
from gate.folders import Commit, commit, new_run_folder, point_latest, utc_now
from gate.job import Job
from gate.ledger import FOLDER, Entry, Ledger, read_ledger
from gate.load import Gates
from gate.not_checked import not_checked
from gate.report import html, junit, markdown
from gate.result import SCHEMA, CaseResult, GateResult, Result, RunInfo, read_result, write_result
from gate.runner import Runner
from gate.screens import Screen
from gate.select import JobFactory, Selection, gate_names, select
from gate.status import NOT_RUN, is_failure

MOST_ANNOTATIONS = 10
_REPORTS = ("result.json", "report.html", "summary.md", "junit.xml")


def run(gates: Gates, options: argparse.Namespace, command: str, out: Console) -> int:
    """Run the selection and report it.

    Raises:
        BadFile, UsageError, EmptySelection: before anything has run.
    """
    problems = stage_files.problems(gates, gate_names(gates, options.gates, oracle_only=options.oracle_only))
    if problems:
        raise BadFile(problems)
    _check_replay(gates, options)
    ledger = read_ledger(gates.root)
    selection = select(gates, options, ledger)
    state = commit(gates.root)
    folder = new_run_folder(gates.root, state)
    info = describe(command, state)
    started = time.monotonic()
    screen = _screen(gates, options, selection, folder, out)
    for note in selection.notes if not options.quiet else ():
        screen.say(note, "yellow")
    runner = Runner(gates, selection, folder, screen, jobs=options.jobs, stop=options.stop, falsify=options.falsify)
    try:
        runner.run(lambda job: _resumed(gates.root, ledger, job))
    finally:
        screen.close()
    # the report of what has ended is written even if the impatient press Ctrl-C again
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        info = info.model_copy(
            update={"ended": utc_now(), "seconds": time.monotonic() - started, "interrupted": runner.interrupted}
        )
        result = _result(gates, options, ledger, runner, info)
        write(result, gates, folder, options)
    finally:
        signal.signal(signal.SIGINT, previous)
    _farewell(result, folder, screen, options)
    return exit_code(result)


def _check_replay(gates: Gates, options: argparse.Namespace) -> None:
    """A schedule that cannot be read is refused before anything runs; one of another launch, by the case."""
    if options.replay is None:
        return
    from emulator.errors import ScheduleError
    from emulator.machine.schedule import load

    try:
        load(gates.root / options.replay)
    except ScheduleError as error:
        raise UsageError(f"--replay: {error}") from None


def exit_code(result: Result) -> int:
    """What the run is worth: interrupted, misused, failed, empty, or all right; in this order."""
    if result.run.interrupted:
        return EXIT_INTERRUPTED
    if any(case.status == "contract_error" and case.mutant is None for case in result.cases):
        return EXIT_USAGE
    if any(is_failure(gate.status) for gate in result.gates):
        return EXIT_FAILED
    if all(case.status in NOT_RUN for case in result.cases):
        return EXIT_EMPTY
    return EXIT_OK


def describe(command: str, state: Commit) -> RunInfo:
    """The run as it begins: commit, machine, versions."""
    return RunInfo(
        commit=state.short,
        dirty=state.dirty,
        started=utc_now(),
        command=command,
        machine=machine.describe(),
        versions=machine.versions(),
    )


def _screen(gates: Gates, options: argparse.Namespace, selection: Selection, folder: Path, out: Console) -> Screen:
    jobs = [*selection.jobs, *selection.resumed, *(job for job, _ in selection.skipped)]
    places = {name: i for i, name in enumerate(selection.gates)}
    keys = dict.fromkeys((job.gate, job.arch) for job in sorted(jobs, key=lambda job: places[job.gate]))
    screen = Screen(
        out,
        keys,
        quiet=options.quiet,
        verbose=options.verbose,
        live=options.format == "auto",
        folder=folder,
        debug=options.debug,
    )
    screen.begin(jobs, {name: gates[name].about for name in selection.gates})
    return screen


def _resumed(root: Path, ledger: Ledger, job: Job) -> CaseResult:
    """The earlier result of a case that --resume leaves out."""
    row = ledger.passed(job.key, job.digest)
    assert row is not None
    earlier = read_result(root / FOLDER / row.run / "result.json")
    found = next(case for case in earlier.cases if case.id == job.id and case.gate == job.gate)
    return found.model_copy(update={"resumed_from": row.run, "artifacts": []})


def _result(gates: Gates, options: argparse.Namespace, ledger: Ledger, runner: Runner, info: RunInfo) -> Result:
    verdicts = list(runner.verdicts.values())
    order: list[tuple[str, str]] = [(name, arch) for name in gates.order for arch in gates[name].arch]
    verdicts.sort(key=lambda verdict: order.index((verdict.gate, verdict.arch)))
    cases = runner.results
    needs = _outside_needs(gates, options, ledger, verdicts)
    return Result(
        schema=SCHEMA, run=info, gates=verdicts, cases=cases, not_checked=not_checked(gates, cases, verdicts, needs)
    )


def _outside_needs(
    gates: Gates, options: argparse.Namespace, ledger: Ledger, verdicts: Iterable[GateResult]
) -> dict[str, Entry]:
    """The ledger's word on needed gates that were not part of this run."""
    verdicts = list(verdicts)
    ran = {verdict.gate for verdict in verdicts}
    factory = JobFactory(gates, options)
    found = {}
    for verdict in verdicts:
        for need in gates[verdict.gate].needs:
            if need not in ran and verdict.arch in gates[need].arch:
                on = "cuda" if verdict.evidence.startswith("sm_") else "emulated"
                found[need] = ledger.entry(gates, need, verdict.arch, on, factory.digests(need, verdict.arch, on))
    return found


def write(result: Result, gates: Gates, folder: Path, options: argparse.Namespace) -> None:
    """`result.json` first; every other file is rendered from it."""
    write_result(result, folder / "result.json")
    (folder / "summary.md").write_text(markdown.render(result), encoding="utf-8")
    (folder / "junit.xml").write_text(junit.render(result), encoding="utf-8")
    (folder / "report.html").write_text(html.render(result, gates, read_ledger(gates.root)), encoding="utf-8")
    point_latest(folder)
    if options.report:
        target = Path(options.report)
        target.mkdir(parents=True, exist_ok=True)
        for name in _REPORTS:
            shutil.copyfile(folder / name, target / name)
    if options.junit:
        shutil.copyfile(folder / "junit.xml", options.junit)
    if options.json == "-":
        sys.stdout.write((folder / "result.json").read_text(encoding="utf-8") + "\n")
    elif options.json:
        shutil.copyfile(folder / "result.json", options.json)
    if on_github(options) and os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
            file.write((folder / "summary.md").read_text(encoding="utf-8"))


def on_github(options: argparse.Namespace) -> bool:
    """Whether GitHub reads what is printed."""
    return options.format == "github" or (options.format == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def _farewell(result: Result, folder: Path, screen: Screen, options: argparse.Namespace) -> None:
    if on_github(options):
        for case in result.failures()[:MOST_ANNOTATIONS]:
            screen.say(_annotation(case))
    if result.run.interrupted:
        screen.say("interrupted: the report holds what had ended", "yellow")
    if not options.quiet:
        screen.say(f"{len(result.not_checked)} things were not checked (last section of the report)", "dim")
        screen.out.print(link_to_report(folder, options), soft_wrap=True)


def link_to_report(folder: Path, options: argparse.Namespace) -> Text:
    """The line that says where the report is."""
    link = folder.parent / "latest" / "report.html"
    shown = Path(options.report) / "report.html" if options.report else link
    line = Text("report  ", style="bold")
    return line.append(os.path.relpath(shown), style=f"not bold link file://{link.resolve()}")


def _annotation(case: CaseResult) -> str:
    """A line that GitHub shows beside the stage file."""
    place = case.looks_like.place if case.looks_like and case.looks_like.equal else None
    file, _, line = (place or f"stages/{case.gate}.py:1").rpartition(":")
    text = "%0A".join(blocks.failure(case)).replace("\r", "")
    return f"::error file={file},line={line},title={case.label}: {case.status}::{text}"
