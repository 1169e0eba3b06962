"""`python -m conformance --cutlass DIR [NAME ...]`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from conformance.cases import Case, cases
from conformance.child import Outcome
from conformance.table import page, short, summary

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> int:
    """Run the cases; 0 when every verdict is the expected one."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description="Run NVIDIA's CuTe DSL examples and primitives, unchanged, on the emulator.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases to run (default: all, and write the page)")
    parser.add_argument("--cutlass", required=True, type=Path, metavar="DIR", help="a checkout of NVIDIA/cutlass")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "conformance.md", help="the page (%(default)s)")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "conformance", help="logs (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (%(default)s)")
    options = parser.parse_args(argv)
    try:
        chosen = cases(options.cutlass, tuple(options.names))
    except ValueError as error:
        parser.error(str(error))
    options.logs.mkdir(parents=True, exist_ok=True)

    def one(case: Case) -> Outcome:
        outcome = run_apart(options.cutlass, case, options.logs)
        print(short(case, outcome), flush=True)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(zip(chosen, pool.map(one, chosen), strict=True))
    print(summary(rows))
    if not options.names:
        options.output.write_text(page(rows, _commit(options.cutlass), version("nvidia-cutlass-dsl")))
    return int(any(outcome.verdict != case.expected for case, outcome in rows))


def run_apart(cutlass: Path, case: Case, logs: Path) -> Outcome:
    """The outcome of a case run in a process of its own; what it prints goes to `<logs>/<name>.log`."""
    result = logs / f"{case.name}.json"
    result.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "conformance.child",
        str(cutlass.resolve()),
        case.name,
        str(result),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with (logs / f"{case.name}.log").open("w") as log:
        try:
            code = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, timeout=case.seconds
            ).returncode
        except subprocess.TimeoutExpired:
            return Outcome("timeout", f"no end after {case.seconds} s", seconds=case.seconds)
    if not result.exists():
        return Outcome("crash", f"the process ended with {code}; see {log.name}")
    return Outcome(**json.loads(result.read_text()))


def _commit(cutlass: Path) -> str:
    """The checkout's commit if git knows it."""
    done = subprocess.run(["git", "-C", str(cutlass), "rev-parse", "HEAD"], capture_output=True, text=True)
    return f"commit {done.stdout.strip()[:12]}" if done.returncode == 0 else "of unknown commit"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
