"""A bench worker without a GPU that does what the case's id says: `python -m tests.gate.bench_stand_in ROOT MODE`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gate.bench.plan import BenchJob
from gate.bench.worker import serve
from gate.result import BenchResult


def main() -> None:
    root, mode = Path(sys.argv[1]), sys.argv[2]
    if (root / "no_start").exists():
        sys.exit("no module named torch")

    def handle(job: BenchJob) -> BenchResult:
        with (root / "handled").open("a") as file:
            file.write(f"{mode} {job.case} {os.getpid()}\n")
        if job.case == "dies":
            print("Fatal: illegal memory access", file=sys.stderr, flush=True)
            os._exit(3)
        if job.case == "hangs":
            time.sleep(60)
        about = {name: getattr(job, name) for name in ("gate", "case", "arch", "bytes", "at_most", "at_most_us")}
        if job.case == "fails" or mode != "time":
            status = "runtime_error" if mode == "time" else "skipped"
            return BenchResult.model_validate(about | {"status": status, "message": "CUDA error: misaligned address"})
        return BenchResult.model_validate(about | {"status": "pass", "us": 2.0, "floor_us": 1.6})

    serve(sys.stdin, sys.stdout, handle)


if __name__ == "__main__":
    main()
