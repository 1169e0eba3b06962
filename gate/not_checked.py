"""What a run says nothing about. Always listed, so that a green report is not read as more than it is."""

from __future__ import annotations

from collections.abc import Iterable

from gate.ledger import Entry
from gate.load import Gates
from gate.result import CaseResult, GateResult, NotChecked, short_case
from gate.status import NOT_RUN


def not_checked(
    gates: Gates, cases: list[CaseResult], verdicts: Iterable[GateResult], needs: dict[str, Entry]
) -> list[NotChecked]:
    """Everything in one list; `needs` holds the ledger's entries of needed gates that this run did not run."""
    verdicts = list(verdicts)
    found = _skips(cases)
    found += [
        NotChecked(what=f"{gate} (needed)", why=f"not in this run; {_said(entry)}") for gate, entry in needs.items()
    ]
    for verdict in verdicts:
        found += _of_gate(gates, verdict)
    found += _notes(cases)
    ran = {verdict.gate for verdict in verdicts}
    unselected = [name for name in gates.order if name not in ran and gates[name].state != "planned"]
    if unselected:
        found.append(NotChecked(what=_names(unselected), why="not selected"))
    planned = [name for name in gates.order if gates[name].state == "planned" and name not in ran]
    if planned:
        found.append(NotChecked(what=f"{len(planned)} stages: {_names(planned)}", why="only planned"))
    found += _everywhere(cases)
    return found


def _everywhere(cases: list[CaseResult]) -> list[NotChecked]:
    """What no run of this tool checks."""
    found = _unchecked_tools(cases)
    if any(case.on == "emulated" and case.schedules is None and case.status not in NOT_RUN for case in cases):
        found.append(NotChecked(what="schedules other than in_order and latest", why="not run (--schedules N)"))
    if any(case.on == "emulated" for case in cases):
        found.append(NotChecked(what="time and bandwidth", why="the emulator has no clock"))
        found.append(
            NotChecked(
                what="the hardware", why="emulated results say nothing about what a GPU does beyond the emulator"
            )
        )
    if any(case.on == "oracle" for case in cases):
        found.append(NotChecked(what="kernels", why="--oracle-only: oracle, limits and wrong variants only"))
    return found


_CHECKS = {
    "memcheck": "accesses beyond the tensor that was meant",
    "initcheck": "uses of what nobody has written",
    "racecheck": "data races and missing fences",
    "synccheck": "misused barriers",
    "tmemcheck": "misused tensor memory",
}


def _unchecked_tools(cases: list[CaseResult]) -> list[NotChecked]:
    """What the checkers would have looked for that listened to no case, or not to all."""
    ran = [case for case in cases if case.on != "oracle" and case.status not in NOT_RUN and case.mutant is None]
    found = []
    for tool, what in _CHECKS.items():
        without = [c.id for c in ran if c.sanitizers is None or tool not in c.sanitizers.tools]
        if ran and len(without) == len(ran):
            found.append(NotChecked(what=what, why=f"{tool} was not run (--sanitize)"))
        elif without:
            found.append(NotChecked(what=f"{what}: {_names(without)}", why=f"{tool} was not run on these"))
    return found


def _skips(cases: list[CaseResult]) -> list[NotChecked]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        if case.status in NOT_RUN:
            by_reason.setdefault((case.gate, case.reason or ""), []).append(case.id)
    return [NotChecked(what=f"{gate}: {_names(ids)}", why=why) for (gate, why), ids in by_reason.items()]


def _of_gate(gates: Gates, verdict: GateResult) -> list[NotChecked]:
    found = []
    name = f"{verdict.gate} {verdict.arch}"
    if not verdict.complete and verdict.status not in NOT_RUN:
        found.append(NotChecked(what=name, why="only some of its cases and seeds were selected"))
    if not verdict.falsified and gates[verdict.gate].falsified_by:
        mutants = len(gates[verdict.gate].falsified_by)
        found.append(NotChecked(what=f"{name}: {mutants} mutants", why="not run (--falsify)"))
    elif verdict.falsified and not gates[verdict.gate].falsified_by:
        found.append(NotChecked(what=f"{name}: mutants", why="gates.yaml names none for it"))
    for row in verdict.falsification:
        if row.blind:
            cases = _names(list(dict.fromkeys(short_case(case) for case in row.blind)))
            found.append(NotChecked(what=f"{name}: {row.kind} {row.name}", why=f"blind cases: {cases}"))
    return found


def _notes(cases: list[CaseResult]) -> list[NotChecked]:
    notes: dict[tuple[str, str], int] = {}
    for case in cases:
        for note in case.notes:
            notes[case.gate, note] = notes.get((case.gate, note), 0) + 1
    return [NotChecked(what=f"{gate}, {count} cases", why=note) for (gate, note), count in notes.items()]


def _said(entry: Entry) -> str:
    if entry.state == "never":
        return "it has never been run here"
    return f"its last result is {entry.state}{' (stale)' if entry.stale else ''}, {entry.evidence}"


def _names(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
