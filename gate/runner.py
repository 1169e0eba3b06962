"""Runs jobs: a gate after all that it needs, `-j` cases at once, each in a process of its own."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gate.client import Worker, WorkerDied
from gate.errors import GateError
from gate.job import COMPILER_ARCH, Job
from gate.load import Gates
from gate.machine import cores
from gate.result import CaseResult, GateResult
from gate.select import Selection
from gate.status import is_failure
from gate.verdict import judge_gate

_TAIL_LINES = 20
_TICK_S = 0.1


class Listener(Protocol):
    """What wants to know while cases run."""

    def started(self, job: Job) -> None:
        """A case has begun."""

    def step(self, job: Job, step: str) -> None:
        """A case has come to another step."""

    def ended(self, result: CaseResult) -> None:
        """A case has ended."""

    def gate_ended(self, verdict: GateResult, results: list[CaseResult]) -> None:
        """All cases of a gate on one architecture have ended."""

    def tick(self) -> None:
        """Time has passed."""


class Runner:
    """One run over a selection. `results` and `verdicts` are complete even after an interrupt."""

    def __init__(
        self,
        gates: Gates,
        selection: Selection,
        folder: Path,
        listener: Listener,
        *,
        jobs: int | None,
        stop: bool,
        falsify: bool,
    ) -> None:
        self.gates = gates
        self.selection = selection
        self.folder = folder
        self.listener = listener
        self.at_once = jobs or (1 if any(job.on == "cuda" for job in selection.jobs) else cores())
        self.stop = stop
        self.falsify = falsify
        self.waiting = list(selection.jobs)
        self.done: dict[tuple[str, str], list[CaseResult]] = {}
        self.verdicts: dict[tuple[str, str], GateResult] = {}
        self.workers: dict[str, Worker] = {}
        self.interrupted = False
        self._selector = selectors.DefaultSelector()
        self._stopping: str | None = None
        self._all = [*selection.jobs, *selection.resumed, *(job for job, _ in selection.skipped)]
        self._place = {job.label: i for i, job in enumerate(self._all)}
        self._left: dict[tuple[str, str], int] = {}
        for job in self._all:
            self._left[job.gate, job.arch] = self._left.get((job.gate, job.arch), 0) + 1

    @property
    def results(self) -> list[CaseResult]:
        """Every result, in the order of the selection."""
        every = [result for results in self.done.values() for result in results]
        return sorted(every, key=lambda result: self._place[result.label])

    def run(self, resumed: Callable[[Job], CaseResult]) -> None:
        """Run everything. An interrupt ends the cases that run and marks the rest as skipped.

        Raises:
            GateError: if a worker cannot even start.
        """
        try:
            # the workers import torch while the first results are put in place
            for on in dict.fromkeys(job.on for job in self.waiting):
                self._worker(on)
            for job, reason in self.selection.skipped:
                self._end(_not_run(job, "skipped", reason))
            for job in self.selection.resumed:
                self._end(resumed(job))
            while self.waiting or self._running():
                self._fill()
                self._listen()
        except KeyboardInterrupt:
            self.interrupted = True
            self._drop("interrupted")
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                for worker in self.workers.values():
                    worker.stop()
            self._selector.close()

    def _running(self) -> list[Job]:
        return [job for worker in self.workers.values() for job in worker.running.values()]

    def _worker(self, on: str) -> Worker:
        if on not in self.workers:
            worker = Worker(self.gates.root, on, self.folder / f"worker-{on}.log")
            self.workers[on] = worker
            self._selector.register(worker, selectors.EVENT_READ)
        return self.workers[on]

    def _fill(self) -> None:
        """Start what may start; end what a failed need blocks."""
        free = self.at_once - len(self._running())
        for job in list(self.waiting):
            blocked = self._blocked_by(job)
            if self._stopping or blocked:
                self.waiting.remove(job)
                status = "skipped" if self._stopping else "blocked"
                self._end(_not_run(job, status, self._stopping or f"needs {blocked}, which failed"))
            elif free > 0 and self._needs_done(job):
                self.waiting.remove(job)
                free -= 1
                folder = self.folder / "cases" / job.gate / job.id
                worker = self._worker(job.on)
                self.listener.started(job)
                worker.start(replace(job, folder=str(folder)))

    def _needs_done(self, job: Job) -> bool:
        return all((need, job.arch) not in self._left for need in self.gates[job.gate].needs)

    def _blocked_by(self, job: Job) -> str | None:
        """The needed gate that failed in this run, on the same architecture."""
        for need in self.gates[job.gate].needs:
            verdict = self.verdicts.get((need, job.arch))
            if verdict is not None and verdict.status not in ("pass", "xpass", "skipped"):
                return need
        return None

    def _listen(self) -> None:
        for key, _ in self._selector.select(_TICK_S):
            worker = key.fileobj
            assert isinstance(worker, Worker)
            try:
                for event in worker.read():
                    self._hear(event)
            except WorkerDied as death:
                self._bury(worker, death)
        self.listener.tick()

    def _bury(self, worker: Worker, death: WorkerDied) -> None:
        """A worker that has served is replaced, its cases are lost; one that never came up ends the run."""
        self._selector.unregister(worker)
        del self.workers[worker.on]
        if not worker.ready:
            raise GateError(str(death))
        for job in worker.running.values():
            self._end(_failed(job, "runtime_error", "run", str(death).splitlines()[0], str(death)))

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "step":
            self.listener.step(event["job"], event["step"])
        elif kind == "result":
            self._end(CaseResult.model_validate(event["result"]))
        elif kind == "died":
            self._end(self._died(event))

    def _died(self, event: dict[str, Any]) -> CaseResult:
        """A case that left without a result: its last step and the end of its log are kept."""
        job: Job = event["job"]
        tail = _last_lines(self.folder / "cases" / job.gate / job.id / "stdout.txt")
        if event["timed_out"]:
            text = f"not done after {job.timeout_s:g} s, killed in step {event['step']}"
            return _failed(job, "timeout", event["step"], text, tail, event["seconds"])
        text = f"the case's process was {event['how']} in step {event['step']}".replace("was left", "left")
        return _failed(job, "runtime_error", event["step"], text, tail, event["seconds"])

    def _end(self, result: CaseResult) -> None:
        key = (result.gate, result.arch)
        self.done.setdefault(key, []).append(result)
        expected = self.gates[result.gate].state == "building" or result.mutant is not None
        if self.stop and is_failure(result.status) and not expected:
            self._stopping = self._stopping or f"stopped after the first failure, {result.label} (-x)"
        self.listener.ended(result)
        self._left[key] -= 1
        if not self._left[key]:
            del self._left[key]
            self._judge(key)

    def _judge(self, key: tuple[str, str]) -> None:
        name, arch = key
        complete = key in self.selection.complete
        results = sorted(self.done[key], key=lambda result: self._place[result.label])
        verdict, self.done[key] = judge_gate(
            name, self.gates[name], arch, results, complete=complete, falsified=self.falsify
        )
        self.verdicts[key] = verdict
        if self.stop and is_failure(verdict.status):
            self._stopping = self._stopping or f"stopped after the first failure, {name} (-x)"
        self.listener.gate_ended(verdict, self.done[key])

    def _drop(self, reason: str) -> None:
        for job in [*self._running(), *self.waiting]:
            self._end(_not_run(job, "skipped", reason))
        self.waiting.clear()


def _last_lines(log: Path) -> str:
    """The end of a case's log; of a Python stack, the part that is not the judge's own."""
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    own = f'File "{Path(__file__).parent}/'
    kept = [line for line in lines if own not in line and "<frozen runpy>" not in line]
    return "\n".join([line for line in kept if not line.startswith("Extension modules:")][-_TAIL_LINES:]).strip("\n")


def _not_run(job: Job, status: str, reason: str) -> CaseResult:
    return CaseResult.model_validate(_about(job) | {"status": status, "reason": reason})


def _failed(job: Job, status: str, step: str, message: str, tail: str, seconds: float = 0.0) -> CaseResult:
    end = {"status": status, "step": step, "message": message, "tail": tail or None, "seconds": {"total": seconds}}
    return CaseResult.model_validate(_about(job) | end)


_ON_WORDS = {"emulated": "emulated {}", "cuda": "gpu {}", "oracle": "oracle only"}


def _about(job: Job) -> dict[str, Any]:
    """What a result says of its job when no worker could say it."""
    names = ("gate", "case", "seed", "arch", "on", "mutant", "digest")
    evidence = _ON_WORDS[job.on].format(COMPILER_ARCH[job.arch])
    return {name: getattr(job, name) for name in names} | {"evidence": evidence}
