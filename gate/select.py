"""From flags to jobs: which gates, cases, seeds, architectures and mutants, in ladder order."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gate.digest import Sources, case_digest
from gate.errors import EmptySelection, UsageError, did_you_mean
from gate.expression import compile_expression
from gate.job import COMPILER_ARCH, Job
from gate.ledger import Ledger
from gate.load import Gates
from gate.machine import resolve, versions
from gate.schema import Case
from gate.status import OF_TOOL


@dataclass
class Selection:
    """What will be run, and what was asked for but cannot be.

    `resumed`: jobs that the ledger already has a fresh pass of. `skipped`: jobs with the reason why they cannot run.
    `complete`: (gate, arch) pairs of which every case and seed is selected.
    """

    gates: list[str]
    jobs: list[Job] = field(default_factory=list)
    resumed: list[Job] = field(default_factory=list)
    skipped: list[tuple[Job, str]] = field(default_factory=list)
    complete: set[tuple[str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def gate_names(gates: Gates, given: Iterable[str], *, oracle_only: bool = False) -> list[str]:
    """Full names in ladder order; none given means every gate that is not only planned, or for --oracle-only every one
    with cases.

    Raises:
        UsageError: for an unknown name or a prefix of several.
    """
    chosen: set[str] = set()
    for name in given:
        if name in gates.file.gates:
            chosen.add(name)
            continue
        matches = [known for known in gates.order if known.startswith(name)]
        if len(matches) > 1:
            raise UsageError(f"'{name}' is the beginning of several gates: {', '.join(matches)}")
        if not matches:
            hint = did_you_mean(name, gates.order).strip(" ()").removesuffix("?").replace("'", "")
            asked = f"; {hint}?" if hint else ""
            raise UsageError(f"no gate '{name}'{asked} (--list shows {len(gates.order)})")
        chosen.add(matches[0])
    if not chosen:
        chosen = {name for name in gates.order if not _only_planned(gates, name, oracle_only)}
    return [name for name in gates.order if name in chosen]


def _only_planned(gates: Gates, name: str, oracle_only: bool) -> bool:
    """Whether there is nothing to run: no kernel, or for --oracle-only no cases."""
    return gates[name].cases is None if oracle_only else gates[name].state == "planned"


def select(gates: Gates, options: argparse.Namespace, ledger: Ledger) -> Selection:
    """Everything that the flags ask for.

    Raises:
        UsageError: for a bad name or expression.
        EmptySelection: if no case is left.
    """
    names = gate_names(gates, options.gates, oracle_only=options.oracle_only)
    planned = [name for name in names if _only_planned(gates, name, options.oracle_only)]
    names = [name for name in names if name not in planned]
    if not names:
        what = (
            f"{', '.join(planned)} is only planned: there is nothing to run yet{_but_oracles(gates, planned)}"
            if planned
            else "no gate can be run yet"
        )
        raise EmptySelection(what)
    notes = [f"{name} is only planned{_but_oracles(gates, [name])}" for name in planned]
    selection = Selection(names, notes=notes)
    factory = JobFactory(gates, options)
    wanted = [job for name in names for job in factory.jobs(name)]
    if not wanted:
        raise EmptySelection(f"--arch {options.arch}: no selected gate is for it ({', '.join(names)})")
    if options.k is not None:
        wanted = _matching(options.k, wanted)
    if options.lf:
        wanted = _last_failed(wanted, ledger, selection)
    _split(gates, options, wanted, ledger, selection)
    if options.falsify:
        selection.jobs = _with_mutants(gates, factory, selection.jobs)
    return selection


def _but_oracles(gates: Gates, planned: list[str]) -> str:
    """What can be done with gates that are only planned."""
    return " (--oracle-only judges its oracle)" if any(gates[name].cases for name in planned) else ""


def _matching(expression: str, wanted: list[Job]) -> list[Job]:
    matches = compile_expression(expression)
    kept = [job for job in wanted if matches(job.label)]
    if not kept:
        names = ", ".join(dict.fromkeys(job.gate for job in wanted))
        cases = " ".join(dict.fromkeys(job.case for job in wanted))
        raise EmptySelection(f"-k '{expression}' matches no case of {names}; cases: {cases}")
    return kept


def _last_failed(wanted: list[Job], ledger: Ledger, selection: Selection) -> list[Job]:
    failed = ledger.failed()
    kept = [job for job in wanted if job.key in failed]
    if not kept:
        selection.notes.append("--lf: no failure is on record here, so everything runs")
    return kept or wanted


def _split(gates: Gates, options: argparse.Namespace, wanted: list[Job], ledger: Ledger, selection: Selection) -> None:
    """Sort the wanted jobs into those to run, those already passed (--resume) and those that cannot run here."""
    for job in wanted:
        reason = resolve(job.arch, options.on)[1] if job.on != "oracle" else ""
        if reason:
            selection.skipped.append((job, reason))
        elif options.resume and ledger.passed(job.key, job.digest):
            selection.resumed.append(job)
        else:
            selection.jobs.append(job)
    have = {(job.gate, job.arch, job.case, job.seed) for job in [*selection.jobs, *selection.resumed]}
    for gate, arch in {(job.gate, job.arch) for job in wanted}:
        cases = [(gate, arch, case.id, seed) for case in gates[gate].cases or [] for seed in gates.seeds(gate)]
        if have.issuperset(cases):
            selection.complete.add((gate, arch))


def _with_mutants(gates: Gates, factory: JobFactory, jobs: list[Job]) -> list[Job]:
    """The jobs, each gate followed by its mutants on its selected cases, at the first seed of each case."""
    result: list[Job] = []
    for name in dict.fromkeys(job.gate for job in jobs):
        own = [job for job in jobs if job.gate == name]
        result += own
        firsts = {(job.case, job.arch): job for job in reversed(own)}
        for mutant in gates[name].falsified_by:
            result += [factory.mutated(job, mutant) for job in own if firsts[job.case, job.arch] is job]
    return result


class JobFactory:
    """Makes jobs of gates under the given flags."""

    def __init__(self, gates: Gates, options: argparse.Namespace) -> None:
        self.gates = gates
        self.options = options
        self.sources = Sources(gates.root)
        self.versions = versions()

    def jobs(self, name: str) -> list[Job]:
        """Every case x seed x arch of a gate that the flags leave."""
        gate, options = self.gates[name], self.options
        seeds = self.gates.seeds(name) if options.seed is None else [options.seed]
        arches = [arch for arch in gate.arch if options.arch in (None, arch)]
        if options.oracle_only:
            arches = arches[:1]
        indexed = list(enumerate(gate.cases or []))
        return [self._job(name, i, case, seed, arch) for arch in arches for seed in seeds for i, case in indexed]

    def digests(self, name: str, arch: str, on: str) -> dict[str, str]:
        """The digest that each case of a gate has with the sources as they are now."""
        return {case.id: self._digest(name, case, arch, on) for case in self.gates[name].cases or []}

    def mutated(self, job: Job, mutant: str) -> Job:
        """The same case with a planted fault, and with the checkers whose findings it must earn."""
        wanted = self.gates[job.gate].falsified_by[mutant]
        tools = [tool for tool, status in OF_TOOL.items() if tool in job.sanitize or status in wanted]
        return Job(**{**vars(job), "mutant": mutant, "sanitize": tools})

    def _job(self, name: str, index: int, case: Case, seed: int, arch: str) -> Job:
        gates, options = self.gates, self.options
        on = "oracle" if options.oracle_only else resolve(arch, options.on)[0] or "cuda"
        asked = self._asked(name, case)
        return Job(
            gate=name,
            stage=gates.stage(name),
            case=case.id,
            seed=seed,
            arch=arch,
            on=on,
            fields=case.fields(),
            limits=asked["limits"],
            counts=asked["counts"],
            memory=asked["memory"],
            resources=asked["resources"],
            roofline=asked["roofline"],
            repeat=gates.repeat(name),
            timeout_s=options.timeout or gates.timeout_s(name),
            debug=options.debug,
            views=list(options.view or ()),
            schedules=options.schedules or 0,
            replay=options.replay,
            sanitize=list(options.sanitize or ()),
            digest=self._digest(name, case, arch, on),
            where={
                "case": gates.place(("gates", name, "cases", index)),
                "limits": gates.place(("gates", name, "limits"), key=True),
            },
        )

    def _asked(self, name: str, case: Case) -> dict[str, Any]:
        """What gates.yaml asks of one case."""
        gate = self.gates[name]
        counts = {key: getattr(gate, key) for key in ("launches", "syncs", "compiles")}
        counts |= {key: getattr(case, key) for key in counts if getattr(case, key) is not None}
        parts = {key: getattr(gate, key) for key in ("memory", "resources", "roofline")}
        return {
            "limits": {k: v.model_dump(exclude_none=True) for k, v in (gate.limits or {}).items()},
            "counts": {key: value for key, value in counts.items() if value is not None},
            **{key: part.model_dump(exclude_none=True) if part else None for key, part in parts.items()},
        }

    def _digest(self, name: str, case: Case, arch: str, on: str) -> str:
        asked = self._asked(name, case) | {"arch": COMPILER_ARCH[arch], "on": on, "fields": case.fields()}
        asked["repeat"] = self.gates.repeat(name)
        return case_digest(self.sources, self.gates.stage(name), on, asked, self.versions)
