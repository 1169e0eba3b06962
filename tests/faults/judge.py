"""Runs one fault: what the values show, and what the checkers report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import emulator
from emulator import watch
from emulator.errors import Deadlock, EmulatorError, Watchdog
from tests.faults.catalogue import SAMPLES, attention
from tests.faults.fault import VALUES, Fault
from tests.faults.plant import plant
from tests.faults.samples import Prepared, prepare

WATCHDOG = 1_000_000
"""Warp-instructions; the largest sample takes 22,000."""
POLICIES = ("in_order", "latest")
SCHEDULES = (("in_order", 0), ("latest", 0), ("random", 1), ("random", 2))
"""Schedules under which a fault may be caught, and under which the kernels as they are raise nothing. A checker judges
what was executed: a missing wait may end in a deadlock before the race that it allows."""


@dataclass(frozen=True)
class Outcome:
    """What one fault led to. `values`: by policy `right`, `wrong`, or the name of the machine's error. `reported`: the
    tools with findings, in the order of `watch.TOOLS`; `says`: kinds that the fault's own tool named, each once,
    under `policy`."""

    fault: Fault
    values: tuple[str, ...]
    reported: tuple[str, ...]
    says: tuple[str, ...]
    policy: str = ""

    @property
    def caught(self) -> bool:
        """Whether the right tool reports it."""
        if self.fault.tool == VALUES:
            return "wrong" in self.values and not self.reported
        return self.fault.tool in self.reported


@cache
def prepared(sample: str, mutant: str = "") -> Prepared:
    """The compiled sample, once for the process."""
    return prepare(attention(mutant) if mutant else SAMPLES[sample])


def judge(fault: Fault) -> Outcome:
    """Plant the fault and run it: without checkers under two policies, then with all of them, under one schedule after
    the other until the right tool speaks."""
    sample = prepared(fault.sample, fault.mutant)
    module = emulator.parse(plant(sample.ptx, *fault.edits))
    values = tuple(_values(sample, module, policy) for policy in POLICIES)
    for policy, seed in SCHEDULES:
        found = check(sample, module, policy, seed)
        says = dict.fromkeys(finding.kind for finding in found if finding.tool == fault.tool)
        if says or fault.tool == VALUES:
            break
    tools = {finding.tool for finding in found}
    reported = tuple(tool for tool in watch.TOOLS if tool in tools)
    return Outcome(fault, values, reported, tuple(says), policy if says else "")


def check(sample: Prepared, module: Any, policy: str = "in_order", seed: int = 0) -> list[watch.Finding]:
    """What all checkers report about one launch, the error that ended it included."""
    checkers = watch.checkers()
    try:
        sample.run(module, policy=policy, seed=seed, watchdog=WATCHDOG, listeners=checkers)
    except EmulatorError as error:
        watch.failed(checkers, error)
    return watch.findings(checkers)


def _values(sample: Prepared, module: Any, policy: str) -> str:
    try:
        # With a listener the reference engine runs: it needs no compiling, and a fault is run once.
        sample.run(module, policy=policy, watchdog=WATCHDOG, listeners=[lambda record: None])
    except (Deadlock, Watchdog):
        return "hang"
    except EmulatorError as error:
        return type(error).__name__
    return "right" if sample.right() else "wrong"
