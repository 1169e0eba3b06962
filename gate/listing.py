"""`--list`: the map of the whole work. Every gate with its state, and per architecture what the ledger proves."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from gate import stage_files
from gate.ledger import Entry, Ledger
from gate.load import Gates
from gate.machine import gpus, resolve
from gate.select import JobFactory, gate_names
from gate.table import seconds

_MOST_BLIND = 2
_STATES = {"pass": "green", "fail": "red", "partial": "yellow", "never": "dim"}


def show(gates: Gates, options: argparse.Namespace, ledger: Ledger, out: Console) -> None:
    """Print the list; names on the command line restrict it."""
    names = gate_names(gates, options.gates) if options.gates else list(gates.file.gates)
    factory = JobFactory(gates, options)
    head = f"{'gate':<27}{'state':<10}{'arch':<12}{'cases':>5}  {'needs':<16}  last result, or what is planned"
    out.print(Text(head, style="bold"), soft_wrap=True)
    group = None
    for name in names:
        if gates[name].group != group:
            group = gates[name].group
            out.print(Text(f"{group or 'other'}", style="bold cyan"))
        for line in _lines(gates, factory, ledger, name):
            out.print(line, soft_wrap=True)
    problems = stage_files.problems(gates)
    stages = f"{len(problems)} problems (--check shows them)" if problems else "ok"
    planned = sum(gate.state == "planned" for gate in gates.file.gates.values())
    counts = f"{len(gates.order)} gates, {planned} of them planned"
    out.print(Text(f"{counts} · gates.yaml ok · stages {stages} · on this machine: {_here()}"), soft_wrap=True)


def _here() -> str:
    found = ", ".join(dict.fromkeys(gpu.name for gpu in gpus())) or "no GPU"
    where = ", ".join(
        f"{arch} → {'GPU' if resolve(arch, 'auto')[0] == 'cuda' else 'emulator'}" for arch in ("sm100", "sm90")
    )
    return f"{where} ({found})"


def _lines(gates: Gates, factory: JobFactory, ledger: Ledger, name: str) -> list[Text]:
    gate = gates[name]
    needs = _fit(", ".join(gate.needs) or "-", 16)
    first = f"{name:<27}{gate.state:<10}{' '.join(gate.arch):<12}{len(gate.cases or []) or '-':>5}  {needs:<16}  "
    if gate.state == "planned":
        return [Text(first + gate.about, style="dim")]
    lines: list[Text] = []
    for entry in _entries(gates, factory, ledger, name):
        line = Text(first if not lines else " " * len(first))
        line.append(entry.state, style=_STATES[entry.state])
        if entry.stale:
            line.append(" (stale)", style="yellow")
        line.append("  " + "  ".join(part for part in _details(entry) if part))
        lines.append(line)
    return lines


def _entries(gates: Gates, factory: JobFactory, ledger: Ledger, name: str) -> list[Entry]:
    """One entry per architecture and kind of evidence that has results; one `never` where an architecture has none."""
    entries = []
    for arch in gates[name].arch:
        kinds = [ledger.entry(gates, name, arch, on, factory.digests(name, arch, on)) for on in ("emulated", "cuda")]
        with_results = [entry for entry in kinds if entry.state != "never"]
        entries += with_results or kinds[:1]
    return entries


def _details(entry: Entry) -> list[str]:
    if entry.state == "never":
        return [entry.arch]
    blind = ", ".join(list(entry.blind)[:_MOST_BLIND])
    more = len(entry.blind) - _MOST_BLIND
    return [
        entry.evidence,
        f"{entry.passed}/{entry.wanted}",
        seconds(entry.seconds),
        ago(entry.ended),
        f"blind: {blind}{f' and {more} more' if more > 0 else ''}" if blind else "",
    ]


def ago(moment: str, now: datetime | None = None) -> str:
    """`2 h ago`, from a UTC time stamp."""
    then = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    passed = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed // size:.0f} {unit} ago"
    return "just now"


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
