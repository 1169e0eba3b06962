"""Wall time of the gate's commands, as a user waits for them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 3


def seconds(*arguments: str, cache: str | None = None) -> float:
    """One run of run_gate.py; `cache` is the folder of the compile cache."""
    environment = dict(os.environ) | ({"WORKBENCH_CACHE": cache} if cache else {})
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "run_gate.py", *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - started


def report(what: str, times: list[float]) -> None:
    """One line: median and extremes."""
    print(f"{what:44s} {statistics.median(times):7.2f} s   ({min(times):.2f} … {max(times):.2f}, {len(times)} runs)")


def main() -> None:
    """Quick answers, one case with an empty and a warm compile cache, the whole gate."""
    for flag in ("--help", "--list", "--check"):
        report(f"run_gate.py {flag}", [seconds(flag) for _ in range(REPEATS)])
    with tempfile.TemporaryDirectory() as cache:
        one = ("fmha_multitile", "-k", "n256", "--seed", "0")
        report("one case, nothing compiled", [seconds(*one, cache=cache)])
        report("one case, compiled before", [seconds(*one, cache=cache) for _ in range(REPEATS)])
        report("fmha_multitile, all cases", [seconds("fmha_multitile", cache=cache)])
