"""What the checkers cost: time of a launch with each of them over the same engine without, and memory at the peak."""

from __future__ import annotations

import functools
import resource
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

import backends
import emulator
from emulator.watch import TOOLS, checkers, findings
from gate.case import Case
from stages import fmha_multitile

REPEATS = 3
PROBLEMS = {
    "one tile of keys": {"q": 128, "kv": 128, "d": 64},
    "16 tiles of keys": {"q": 128, "kv": 2048, "d": 64},
    "8 heads, ragged": {"q": 100, "kv": 200, "heads": 8, "kv_heads": 2, "d": 64},
}


class Problem:
    """One attention problem, compiled."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.case = Case("benchmark", fields)
        self.x = fmha_multitile.inputs(self.case, torch.Generator().manual_seed(0))
        # A backend gives the reference engine whatever listens; without listeners it has to be asked for.
        self.backend = backends.get("emulated", run=functools.partial(emulator.run, engine="numpy"))

    def seconds(self, tools: Sequence[str]) -> tuple[float, int, int]:
        """(seconds in the emulator, warp-instructions, findings) of one call."""
        listeners = checkers(tools)
        self.backend.listeners = listeners
        fmha_multitile.run(self.x, self.case, self.backend)
        launches = self.backend.last_launches
        return sum(x.seconds for x in launches), sum(x.instructions for x in launches), len(findings(listeners))

    def median(self, tools: Sequence[str]) -> tuple[float, int]:
        """Median seconds, findings."""
        runs = [self.seconds(tools) for _ in range(REPEATS)]
        return statistics.median(run[0] for run in runs), runs[0][2]


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Ratios per tool and for all together."""
    torch.set_num_threads(1)
    for name, fields in PROBLEMS.items():
        problem = Problem(fields)
        problem.seconds(())
        alone, _ = problem.median(())
        _, instructions, _ = problem.seconds(())
        before = _megabytes()
        print(f"{name}: {instructions} warp-instructions, {alone:.3f} s without checkers")
        for tools in (*((tool,) for tool in TOOLS), TOOLS):
            started = time.perf_counter()
            seconds, found = problem.median(tools)
            word = tools[0] if len(tools) == 1 else "all five"
            spent = time.perf_counter() - started
            print(f"  {word:10s} {seconds:7.3f} s  {seconds / alone:5.2f} x  {found} findings  ({spent:.1f} s in all)")
        print(f"  memory     {before:.0f} MB without, {_megabytes():.0f} MB at the peak")
