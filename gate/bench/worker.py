"""The worker: one process that times bench cases one after the other, in one CUDA context.

    python -m gate.bench.worker ROOT MODE        MODE: time, prepare or profile

It reads jobs as lines of JSON from standard input and writes lines of JSON to its standard output: `ready`, then a
`result` for every job. `prepare` calls each kernel once, so that it is compiled when it is timed; `profile` does that
under a profiler. End of input ends it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from gate.bench.plan import BenchJob
from gate.job import COMPILER_ARCH
from gate.result import BenchResult

Handler = Callable[[BenchJob], BenchResult]


def main(argv: list[str]) -> int:
    """Serve until standard input ends."""
    root, mode = Path(argv[1]), argv[2]
    sys.path.insert(0, str(root))
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, out, _Timer(root, mode))
    return 0


def serve(lines: Iterable[str], out: TextIO, handle: Handler) -> None:
    """Answer every job with its result."""

    def say(event: dict[str, Any]) -> None:
        out.write(json.dumps(event, ensure_ascii=False) + "\n")
        out.flush()

    say({"event": "ready"})
    for line in lines:
        job = BenchJob(**json.loads(line))
        result = handle(job)
        say({"event": "result", "id": job.label, "result": result.model_dump(mode="json", exclude_defaults=True)})


class _Timer:
    """Times on this machine's GPU; a backend for every architecture, one clock."""

    def __init__(self, root: Path, mode: str) -> None:
        self.root = root
        self.mode = mode
        self._backends: dict[str, Any] = {}
        self._clock: Any = None

    def __call__(self, job: BenchJob) -> BenchResult:
        import torch

        from gate.bench import measure
        from gate.bench.clock import GpuClock
        from gate.stage import Stage, Stop

        try:
            backend = self._backend(job.arch)
            stage = Stage(measure.judged_as(job), self.root)
        except Stop as stop:
            return measure.about(job, {"status": "runtime_error", "message": str(stop), "tail": stop.tail})
        try:
            if self.mode != "time":
                measure.call_once(job, stage, backend, backend.device)
                return measure.about(job, {"status": "skipped", "message": "called once, not timed"})
            self._clock = self._clock or GpuClock(backend.device)
            return measure.measure(job, stage, backend, self._clock)
        except Exception as error:
            text = f"{type(error).__name__}: {stage.said(error)}"
            return measure.about(job, {"status": "runtime_error", "message": text})
        finally:
            torch.cuda.empty_cache()

    def _backend(self, arch: str) -> Any:
        from gate.stage import Stop

        if arch not in self._backends:
            try:
                backends: Any = importlib.import_module("backends")
                self._backends[arch] = backends.get("cuda", arch=COMPILER_ARCH[arch])
            except Exception as error:
                raise Stop("runtime_error", f"backend cuda {arch}: {type(error).__name__}: {error}") from None
        return self._backends[arch]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
