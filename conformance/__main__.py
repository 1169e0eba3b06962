"""`python -m conformance --cutlass DIR [NAME ...]`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from conformance.cases import Case, cases
from conformance.child import Outcome
from conformance.table import Row, page, short, summary

ROOT = Path(__file__).resolve().parent.parent
_FAILED = re.compile(r"^.*\bFAIL(ED)?\b.*$", re.MULTILINE)


def main(argv: list[str]) -> int:
    """Run the cases and write the page once there is a result of every case: the latest of each. Returns 0 when every
    verdict is the expected one."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description="Run NVIDIA's CuTe DSL examples and primitives, unchanged, on the emulator.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases to run (default: all)")
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

    now = sources()

    def one(case: Case) -> Outcome:
        outcome = replace(run_apart(options.cutlass, case, options.logs), sources=now)
        (options.logs / f"{case.name}.json").write_text(json.dumps(asdict(outcome), indent=1))
        print(short(case, outcome), flush=True)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(zip(chosen, pool.map(one, chosen), strict=True))
    print(summary(rows))
    known = latest(cases(options.cutlass), options.logs)
    if known is not None:
        options.output.write_text(page(known, _commit(options.cutlass), version("nvidia-cutlass-dsl"), now))
    return int(any(outcome.verdict != case.expected for case, outcome in rows))


def latest(known: list[Case], logs: Path) -> list[Row] | None:
    """The latest outcome of every case, or None when there is none of some."""
    results = [logs / f"{case.name}.json" for case in known]
    if not all(result.exists() for result in results):
        return None
    return [(case, Outcome(**json.loads(r.read_text()))) for case, r in zip(known, results, strict=True)]


def sources() -> str:
    """A digest of the code that results depend on."""
    digest = hashlib.sha256()
    for package in ("backends", "conformance", "emulator"):
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


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
    outcome = Outcome(**json.loads(result.read_text()))
    said = _FAILED.search((logs / f"{case.name}.log").read_text())
    if outcome.verdict == "pass" and said:
        # Some scripts tell their verdict and nothing else.
        outcome = replace(outcome, verdict="fail", message=f"it says: {said[0].strip()}")
    return outcome


def _commit(cutlass: Path) -> str:
    """The checkout's commit if git knows it."""
    done = subprocess.run(["git", "-C", str(cutlass), "rev-parse", "HEAD"], capture_output=True, text=True)
    return f"commit {done.stdout.strip()[:12]}" if done.returncode == 0 else "of unknown commit"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
