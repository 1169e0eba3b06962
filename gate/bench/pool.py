"""The parent's side of bench workers: kernels are compiled by several at once, times are taken by one alone."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gate.bench.plan import BenchJob
from gate.client import Worker, WorkerDied
from gate.errors import GateError
from gate.result import BenchResult

_MODULE = "gate.bench.worker"
_START_S = 120.0
_TICK_S = 0.2
_PATIENCE_S = 1.0

Tick = Callable[[], None]


class Pool:
    """Workers on the tree at `root`; their logs go to `folder`. `tick` is called while one waits."""

    def __init__(self, root: Path, folder: Path, tick: Tick = lambda: None, module: str = _MODULE) -> None:
        self.root = root
        self.folder = folder
        self.tick = tick
        self.module = module

    def prepare(self, jobs: Sequence[BenchJob], at_once: int) -> None:
        """Have every kernel compiled. What goes wrong here goes wrong again when it is timed, and is said then."""
        shares = [list(jobs[i::at_once]) for i in range(min(at_once, len(jobs)))]
        workers = [self._open("prepare", i) for i in range(len(shares))]
        try:
            deadline = time.monotonic() + _START_S + max(job.timeout_s for job in jobs)
            for worker, share in zip(workers, shares, strict=True):
                for job in share:
                    worker.start(job)
            self._drain(workers, deadline)
        finally:
            _stop(workers)

    def results(self, jobs: Sequence[BenchJob], mode: str = "time") -> Iterator[BenchResult]:
        """The result of each job, in order. A worker that hangs, dies or fails is replaced: a GPU that has faulted
        answers nothing more in the same process.

        Raises:
            GateError: if a worker cannot even start.
        """
        worker: Worker | None = None
        try:
            for job in jobs:
                worker = worker or self._open(mode, 0)
                result = self._one(worker, job)
                if result.status in ("runtime_error", "timeout"):
                    _stop([worker])
                    worker = None
                yield result
        finally:
            _stop([worker] if worker else [])

    def _open(self, mode: str, number: int) -> Worker:
        return Worker(self.root, mode, self.folder / f"bench-{mode}-{number}.log", self.module)

    def _one(self, worker: Worker, job: BenchJob) -> BenchResult:
        """Wait for the only job of a worker."""
        started = time.monotonic()
        allowed = job.timeout_s + (0.0 if worker.ready else _START_S)
        worker.start(job)
        with selectors.DefaultSelector() as selector:
            selector.register(worker, selectors.EVENT_READ)
            while time.monotonic() < started + allowed:
                if not selector.select(_TICK_S):
                    self.tick()
                    continue
                try:
                    for event in worker.read():
                        if event["event"] == "result":
                            return BenchResult.model_validate(event["result"])
                except WorkerDied as death:
                    if not worker.ready:
                        raise GateError(str(death)) from None
                    return _failed(job, "runtime_error", str(death), time.monotonic() - started)
        return _failed(job, "timeout", f"not done after {allowed:g} s", time.monotonic() - started)

    def _drain(self, workers: Sequence[Worker], deadline: float) -> None:
        """Read until all have answered everything, or died, or the time is up."""
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker, selectors.EVENT_READ)
            left = set(workers)
            while left and time.monotonic() < deadline:
                ready = selector.select(_TICK_S)
                if not ready:
                    self.tick()
                for key, _ in ready:
                    one: Any = key.fileobj
                    with contextlib.suppress(WorkerDied):
                        one.read()
                        if one.running:
                            continue
                    selector.unregister(one)
                    left.discard(one)


def _failed(job: BenchJob, status: str, message: str, seconds: float) -> BenchResult:
    first, _, rest = message.partition("\n")
    about = {name: getattr(job, name) for name in ("gate", "case", "arch", "bytes", "at_most", "at_most_us", "peers")}
    end = {"status": status, "message": first, "tail": rest or None, "seconds": seconds}
    return BenchResult.model_validate(about | end)


def _stop(workers: Sequence[Worker]) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        for worker in workers:
            worker.stop(_PATIENCE_S)
