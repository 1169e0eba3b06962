"""A stage taken apart, step by step, for notebooks: what it needs, its shapes, one run on the emulator, its gate."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

import backends
from backends.cache import Cache
from emulator import debug, views
from emulator.errors import EmulatorError
from emulator.watch import Finding, checkers, failed, findings
from gate.compare import measure, wide
from gate.errors import UsageError
from gate.job import COMPILER_ARCH
from gate.judge import rng
from gate.ledger import read_ledger
from gate.load import load
from gate.options import parse
from gate.select import JobFactory, gate_names
from gate.stage import Stage
from kernels.shared.show import PINNED, showing

ROOT = Path(__file__).resolve().parent.parent
_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TTY_COMPATIBLE")


@cache
def _untraced() -> Path:
    """A folder for kernels that were compiled to see their shapes. It lives as long as the process, which has loaded
    the stand-in runtime library from there."""
    folder = tempfile.mkdtemp(prefix="shapes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class _Chosen:
    """Prints the lines about some tensors: a name at the start of a line, indented lines about its modes behind it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.inside = False

    def __call__(self, line: str) -> None:
        if not line.startswith(" "):
            self.inside = not self.names or line.split()[0] in (*self.names, PINNED)
        if self.inside:
            print(line)


@dataclass(frozen=True, eq=False)
class Experiment:
    """One run of the kernel on the emulator beside its oracle: named outputs, what was promised, and the recording of
    the launch (of the last one, if there were several)."""

    got: dict[str, torch.Tensor]
    want: dict[str, torch.Tensor]
    recorder: views.Recorder

    def errors(self, output: str | None = None, **settings: Any) -> Any:
        """The error map of an output (default: the first)."""
        name = output or next(iter(self.got))
        return views.error_map(self.got[name], self.want[name], name=name, **settings)

    def tmem(self, **settings: Any) -> Any:
        """The map of tensor memory."""
        return views.tmem_map(self.recorder, **settings)

    def timeline(self, **settings: Any) -> Any:
        """Who waits for whom."""
        return views.timeline(self.recorder, **settings)

    def stages(self, **settings: Any) -> Any:
        """Occupancy of the pipeline stages."""
        return views.stages(self.recorder, **settings)

    def hot(self, **settings: Any) -> Any:
        """The lines that most instructions belong to."""
        return views.hot_lines(self.recorder, **settings)

    def difference(self, output: str | None = None) -> float:
        """1 - 2xy / (x^2 + y^2) of an output and its oracle: 0 for equal ones, and unlike cosine it sees
        scale; NaN if no element of them is finite in both."""
        name = output or next(iter(self.got))
        got, want = self.got[name], self.want[name]
        both = wide(got).isfinite() & wide(want).isfinite()
        return measure(got, want).diff if both.any() else math.nan


class Lab:
    """One case of one gate.

    gate: a name of gates.yaml (a prefix is enough if it is unique); case: an id (default: the first); mutant: a planted
    fault of the gate, by name. Runs on the emulator, whatever this machine has. Raises UsageError naming gate, case or
    mutant and what there is.
    """

    def __init__(self, gate: str, case: str | None = None, *, seed: int = 0, mutant: str | None = None) -> None:
        self.gates = load(ROOT)
        (self.gate,) = gate_names(self.gates, [gate])
        options = parse([self.gate, "--on", "emulator"])
        jobs = JobFactory(self.gates, options).jobs(self.gate)
        ids = list(dict.fromkeys(job.case for job in jobs))
        found = [job for job in jobs if job.case == (case or ids[0]) and job.seed == seed]
        if not found:
            raise UsageError(f"{self.gate}: no case '{case}' with seed {seed}; cases: {', '.join(ids)}")
        self.job = found[0]
        if mutant is not None:
            known = self.gates[self.gate].falsified_by
            if mutant not in known:
                raise UsageError(f"{self.gate}: no mutant '{mutant}'; mutants: {', '.join(known)}")
            self.job = JobFactory(self.gates, options).mutated(self.job, mutant)
        self.arch = COMPILER_ARCH[self.job.arch]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.job.fields.items())
        fault = f", mutant {self.job.mutant}" if self.job.mutant else ""
        return f"{self.gate}[{self.job.case}]: {fields}; emulated {self.arch}{fault}"

    def needs(self) -> dict[str, str]:
        """The gates that this one needs, and whether each is proven here by the sources as they are now. Those that
        are not are judged at once. Raises RuntimeError if one fails."""
        ledger = read_ledger(ROOT)
        found = {}
        for name in self.gates[self.gate].needs or []:
            factory = JobFactory(self.gates, parse([name]))
            arch = self.gates[name].arch[0]
            entry = ledger.entry(self.gates, name, arch, "emulated", factory.digests(name, arch, "emulated"))
            found[name] = "pass" if entry.proven else self._judged(name)
        return found

    def _judged(self, name: str) -> str:
        status, text = self.judge(name)
        if status:
            raise RuntimeError(f"{self.gate} needs {name}, which does not pass:\n{text}")
        return "pass (judged now)"

    def shapes(self, *only: str) -> None:
        """Trace the kernel anew and print the tensors that it shows (all, or those named), and whatever is pinned."""
        # Only a kernel that is traced prints, so none may come out of the cache.
        shutil.rmtree(_untraced() / "kernels", ignore_errors=True)
        with showing(_Chosen(only)):
            self._run(backends.get("emulated", self.arch, cache=Cache(_untraced())))

    def run(self, policy: str = "in_order", **settings: Any) -> Experiment:
        """Kernel and oracle on the inputs of the case. `settings` go to the recorder (`ctas="all"`)."""
        recorder = views.Recorder(**self.stage.names(), **settings)
        got = self._run(backends.get("emulated", self.arch, policy=policy, listeners=(recorder,)))
        return Experiment(got, self.stage.tensors("oracle", self._inputs(), self.stage.case, "ideal"), recorder)

    def sanitize(self, *tools: str) -> list[Finding]:
        """What checkers (default: all) find in one run; a launch that hangs or faults is reported up to there."""
        chosen = checkers(tools or None)
        backend = backends.get("emulated", self.arch, listeners=chosen)
        try:
            self._run(backend)
        except EmulatorError as error:
            failed(chosen, error)
        return findings(chosen)

    def session(self) -> debug.Session:
        """The run under a debugger: `session.until(debug.mma(3))`, look, `session.finish()`."""
        backend = backends.get("emulated", self.arch)
        return debug.Session(lambda: self._run(backend), backend, **self.stage.names())

    def judge(self, *gates: str, arguments: Sequence[str] = ()) -> tuple[int, str]:
        """`run_gate.py` on gates (default: this one, this case): exit code and what it printed."""
        own = [] if gates else ["-k", self.job.case]
        command = [sys.executable, "run_gate.py", *(gates or (self.gate,)), *own, "--on", "emulator", *arguments]
        # Jupyter asks programs for colours, which a cell's printed text cannot show.
        plain = {name: value for name, value in os.environ.items() if name not in _COLOURS} | {"NO_COLOR": "1"}
        done = subprocess.run([*command, "--format", "plain"], cwd=ROOT, env=plain, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    @cached_property
    def stage(self) -> Stage:
        """The stage; importing it takes seconds."""
        return Stage(self.job, ROOT)

    def _inputs(self) -> dict[str, torch.Tensor]:
        return self.stage.tensors("inputs", self.stage.case, rng(self.job))

    def _run(self, backend: Any) -> dict[str, torch.Tensor]:
        return self.stage.read(dict(self.stage.launch(self._inputs(), backend)))
