"""From flags to bench jobs: which sizes of which kernels are timed, and which cannot be timed here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gate import formula
from gate.errors import EmptySelection
from gate.expression import compile_expression
from gate.load import Gates
from gate.machine import resolve
from gate.schema import BenchCase
from gate.select import gate_names

# Environment variables by which a profiler's process is known.
_PROFILERS = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute",
    "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN": "compute-sanitizer",
}


@dataclass(frozen=True)
class BenchJob:
    """One size to be timed, as plain data that travels to the worker as a line of JSON."""

    gate: str
    stage: str
    case: str
    arch: str
    fields: dict[str, Any]
    bytes: int
    floor: str
    at_most: float | None = None
    at_most_us: float | None = None
    warm: list[str] = field(default_factory=list)
    canaries: str | None = None
    peers: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    timeout_s: float = 120.0
    where: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`nvfp4_linear[wkv_m1-sm90]`."""
        return f"{self.gate}[{self.case}-{self.arch}]"


@dataclass
class Plan:
    """Jobs in ladder order, what cannot be timed here with the reason, and what else is worth saying."""

    jobs: list[BenchJob] = field(default_factory=list)
    skipped: list[tuple[BenchJob, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan(gates: Gates, options: argparse.Namespace) -> Plan:
    """Every bench case that the flags ask for.

    Raises:
        UsageError: for a bad name or expression.
        EmptySelection: if there is nothing to time, or no GPU to time it on.
    """
    names = [name for name in gate_names(gates, options.gates) if gates[name].state != "planned"]
    without = [name for name in names if gates[name].bench is None]
    jobs = [job for name in names for job in _jobs(gates, name, options)]
    if not jobs:
        raise EmptySelection(f"--bench: no bench case in gates.yaml for {', '.join(without) or 'the gates named'}")
    if options.k is not None:
        matches = compile_expression(options.k)
        kept = [job for job in jobs if matches(job.label)]
        if not kept:
            cases = " ".join(dict.fromkeys(job.case for job in jobs))
            raise EmptySelection(f"-k '{options.k}' matches no bench case; there are: {cases}")
        jobs = kept
    found = Plan(notes=[f"{', '.join(without)}: no bench in gates.yaml"] if without and options.gates else [])
    for job in jobs:
        reason = resolve(job.arch, "gpu")[1]
        if reason:
            found.skipped.append((job, reason.removesuffix(" Use --on emulator.")))
        else:
            found.jobs.append(job)
    if not found.jobs:
        raise EmptySelection(f"--bench needs a GPU: {found.skipped[0][1]}")
    return found


def profiler(environment: Mapping[str, str] = os.environ) -> str | None:
    """The profiler that this process runs under: its overhead would be inside every time."""
    return next((name for variable, name in _PROFILERS.items() if variable in environment), None)


def _jobs(gates: Gates, name: str, options: argparse.Namespace) -> list[BenchJob]:
    bench = gates[name].bench
    if bench is None:
        return []
    arches = [arch for arch in gates[name].arch if options.arch in (None, arch)]
    indexed = list(enumerate(bench.cases))
    return [_job(gates, name, index, case, arch, options) for arch in arches for index, case in indexed]


def _job(gates: Gates, name: str, index: int, case: BenchCase, arch: str, options: argparse.Namespace) -> BenchJob:
    bench = gates[name].bench
    assert bench is not None
    return BenchJob(
        gate=name,
        stage=gates.stage(name),
        case=case.id,
        arch=arch,
        fields=case.fields(),
        bytes=int(formula.evaluate(bench.of(case, "bytes"), case.fields())),
        floor=bench.of(case, "floor"),
        at_most=bench.of(case, "at_most"),
        at_most_us=bench.of(case, "at_most_us"),
        warm=list(bench.of(case, "warm")),
        canaries=bench.canaries,
        peers=dict(case.peers),
        seed=options.seed or 0,
        timeout_s=options.timeout or gates.timeout_s(name),
        where={"case": gates.place(("gates", name, "bench", "cases", index))},
    )
