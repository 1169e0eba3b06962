"""--schedules and --replay: the kernel under other schedules than `in_order`, and the shortest one that shows a fault.

A schedule decides who runs next, for how long, and when asynchronous work completes. The bits of a right kernel depend
on none of that. Only worker processes import this module.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gate.device import Device
from gate.job import Job
from gate.stage import Stop, Tensors

FILE = "schedule.json"
SHRINK_RUNS, SHRINK_SECONDS = 400, 40.0
_WIDTH = 110
_MOST_LINES = 40
# An endless loop under one schedule must not take the time of the whole case.
_LEAST_WATCHDOG, _WATCHDOG_FACTOR = 2_000_000, 50


class Runs(Protocol):
    """The kernel of the case."""

    def run(self, policy: str, seed: int = 0, schedules: Sequence[Any] = ()) -> Tensors:
        """One run, under a policy."""


@dataclass(frozen=True)
class Outcome:
    """What a schedule led to: `status` is `pass`, `race` (other bits), or what stopped the kernel. `schedules` are the
    decisions of its launches."""

    status: str
    message: str
    schedules: tuple[Any, ...]


class Explorer:
    """Runs a kernel that has passed in order under other schedules. `found` gets what the result is to hold."""

    def __init__(
        self, job: Job, root: Path, kernel: Runs, device: Device, differs: Callable[[Tensors], str | None],
        found: dict[str, Any],
    ) -> None:  # fmt: skip
        self.job = job
        self.root = root
        self.kernel = kernel
        self.device = device
        self.differs = differs
        self.found = found

    def explore(self) -> None:
        """Raises Stop for the first seed whose bits differ or that does not end, with the shortest such schedule."""
        note = {"seeds": self.job.schedules, "equal": False, "file": self.job.replay}
        self.found["schedules"] = note
        with self.device.bounded(self._watchdog()):
            if self.job.replay is not None:
                self._replay(Path(self.job.replay), note)
            for seed in range(self.job.schedules):
                outcome = self._run("random", seed=seed)
                if outcome.status != "pass":
                    self._explain(outcome, f"random schedule {seed} of {self.job.schedules}", note)
        note["equal"] = True

    def _watchdog(self) -> int:
        instructions = self.found.get("cost", {}).get("instructions", 0)
        return max(_LEAST_WATCHDOG, _WATCHDOG_FACTOR * instructions)

    def _run(self, policy: str, seed: int = 0, schedules: Sequence[Any] = ()) -> Outcome:
        try:
            outputs = self.kernel.run(policy, seed, schedules)
        except Stop as stop:
            if stop.status in ("contract_error", "compile_error"):
                raise
            return Outcome(stop.status, str(stop), tuple(self.device.schedules))
        said = self.differs(outputs)
        return Outcome("race" if said else "pass", said or "", tuple(self.device.schedules))

    def _replay(self, file: Path, note: dict[str, Any]) -> None:
        from emulator.machine.schedule import load

        given = load(self.root / file)
        outcome = self._run("replay", schedules=given)
        if outcome.status == "pass":
            return
        note["decisions"] = self._story(given)
        raise self._stop(outcome, f"the schedule of {file}", "")

    def _explain(self, outcome: Outcome, which: str, note: dict[str, Any]) -> None:
        """Shrink the schedule, tell it, keep it, and end the case."""
        from emulator.machine.schedule import save
        from emulator.machine.shrink import shrink

        def shows(schedules: Sequence[Any]) -> bool:
            return self._run("replay", schedules=schedules).status == outcome.status

        total = sum(len(s.decisions) for s in outcome.schedules)
        if not shows(outcome.schedules):
            raise Stop(outcome.status, f"{which}: {outcome.message}\nits replay does not: run() is not repeatable")
        shortest = shrink(outcome.schedules, shows, runs=SHRINK_RUNS, seconds=SHRINK_SECONDS)
        shown = self._run("replay", schedules=shortest.schedules)
        file = Path(self.job.folder) / FILE
        save(file, shortest.schedules)
        note["file"] = str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)
        note["decisions"] = self._story(shortest.schedules)
        rest = "none of which can be left out" if shortest.minimal else "perhaps not all of them needed"
        text = f"shortest schedule found that shows it: {shortest.count} of {total} decisions, {rest}:"
        raise self._stop(shown, which, text)

    def _stop(self, outcome: Outcome, which: str, text: str) -> Stop:
        lines = [f"{which} {outcome.message}" if outcome.status == "race" else f"{which}: {outcome.message}"]
        lines += [text] if text else []
        return Stop(outcome.status, "\n".join([*lines, *numbered(self.found["schedules"]["decisions"])]))

    def _story(self, schedules: Sequence[Any]) -> list[str]:
        """Every deviation from `in_order` as a sentence, from a run that is watched."""
        from emulator.machine.story import Story

        story = Story(schedules)
        with self.device.listening(story):
            self._run("replay", schedules=schedules)
        return [line.replace(f"{self.root}/", "") for line in story.lines]


def numbered(decisions: Sequence[str]) -> list[str]:
    """The list as a person reads it."""
    lines = []
    for number, decision in enumerate(decisions[:_MOST_LINES], start=1):
        head = f"{number:>3}. "
        lines += textwrap.wrap(decision, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    if len(decisions) > _MOST_LINES:
        lines.append(f"     and {len(decisions) - _MOST_LINES} more")
    return lines
