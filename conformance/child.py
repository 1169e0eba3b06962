"""Runs one case in this process: `python -m conformance.child CUTLASS NAME RESULT.json`."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import emulator
from backends import emulated
from conformance.cases import EXAMPLES, Case, cases
from conformance.measure import noted, worst
from conformance.stand_ins import stand_in
from emulator.errors import EmulatorError


@dataclass
class Outcome:
    """What a run gave. verdict: pass, fail (an assertion of the script), the name of an emulator error, error, crash or
    timeout. seconds: processor time of the script and of its launches alone. sources: a digest of what ran it."""

    verdict: str = "pass"
    message: str = ""
    cos: float | None = None
    rel_rms: float | None = None
    max_error: float | None = None
    comparisons: int = 0
    constant: bool = False
    launches: int = 0
    instructions: int = 0
    seconds: float = 0.0
    emulated_seconds: float = 0.0
    stood_in: list[str] = field(default_factory=list)
    sources: str = ""


def run_case(cutlass: Path, case: Case) -> Outcome:
    """Run the case's script as `python script arguments` would, in its folder, with the emulator as the GPU."""
    outcome = Outcome()
    begin = time.process_time()

    def run(*args: Any, **settings: Any) -> emulator.Launch:
        start = time.process_time()
        launch = emulator.run(*args, **settings)
        outcome.emulated_seconds += time.process_time() - start
        outcome.launches += 1
        outcome.instructions += launch.instructions
        return launch

    examples = (cutlass / EXAMPLES).resolve()
    script = examples / case.path
    os.chdir(script.parent)
    sys.path[:0] = [str(script.parent), str(examples)]
    sys.argv = [str(script), *shlex.split(case.arguments)]
    torch.manual_seed(0)
    with (
        emulated(case.arch, torch_cuda=True, run=run),
        noted() as comparisons,
        stand_in(comparisons) as outcome.stood_in,
    ):
        if case.torch:
            vars(torch)["__version__"] = case.torch
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as stop:
            if stop.code not in (None, 0):
                outcome.verdict, outcome.message = "fail", f"exit code {stop.code}"
        except AssertionError as error:
            outcome.verdict, outcome.message = "fail", str(error)
            traceback.print_exc()
        except EmulatorError as error:
            outcome.verdict, outcome.message = type(error).__name__, str(error)
            traceback.print_exc()
        except Exception as error:
            outcome.verdict, outcome.message = "error", f"{type(error).__name__}: {error}"
            traceback.print_exc()
    outcome.seconds = time.process_time() - begin
    outcome.comparisons = len(comparisons)
    outcome.constant = bool(comparisons) and all(c.constant for c in comparisons)
    for name, value in worst(comparisons).items():
        setattr(outcome, name, value)
    return outcome


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkout, name, result = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).resolve()
    [chosen] = cases(checkout, (name,))
    result.write_text(json.dumps(asdict(run_case(checkout, chosen)), indent=1))
    # Objects of the DSL and of torch end in no particular order at the interpreter's exit.
    sys.stdout.flush()
    os._exit(0)
