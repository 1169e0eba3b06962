"""Everything the emulator refuses or reports, as one tree of exceptions.

A message is complete by itself: it says what, where (kernel, CTA, warp, PTX line) and what was expected. `where` is
filled in by the machine when a fault is raised by a unit that cannot know which warp called it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Where:
    """The place of a fault: one instruction of one warp."""

    kernel: str
    cta: tuple[int, int, int]
    warp: int
    line: int
    text: str
    loc: tuple[str, int] | None = None

    def __str__(self) -> str:
        source = f" ({self.loc[0]}:{self.loc[1]})" if self.loc else ""
        return f"{self.kernel}, CTA {self.cta}, warp {self.warp}, PTX line {self.line}{source}: {self.text}"


class EmulatorError(Exception):
    """Root of the tree."""

    where: Where | None = None
    schedule: Any = None
    """What had been decided when it was raised (`machine.schedule.Schedule`); None under `in_order`."""

    def at(self, where: Where) -> EmulatorError:
        """Attach the place once; the first place wins."""
        if self.where is None:
            self.where = where
        return self

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n  at {self.where}" if self.where else text


class PtxSyntaxError(EmulatorError):
    """Text that is not PTX: the message begins with `line:column:` and says what was expected."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Unsupported:
    """One static instruction that the emulator does not implement, and why."""

    line: int
    text: str
    reason: str


class UnknownInstruction(EmulatorError):
    """Opcodes or modifiers that are not implemented; raised before the first step with all of them."""

    def __init__(self, kernel: str, found: list[Unsupported]) -> None:
        lines = "\n".join(f"  line {u.line}: {u.text}\n    {u.reason}" for u in found)
        super().__init__(
            f"{kernel} uses {len(found)} instruction(s) that are not implemented; nothing was run\n{lines}"
        )
        self.kernel = kernel
        self.found = found


class LaunchError(EmulatorError):
    """A launch configuration that the hardware would refuse (grid, block, cluster, shared memory, parameters)."""


class ScheduleError(EmulatorError):
    """A schedule that is cut off, of another version, or was recorded for another launch."""


class MemoryFault(EmulatorError):
    """An access outside every registered tensor, outside shared memory, or misaligned."""


class IllegalInstruction(EmulatorError):
    """Operands that the hardware faults on: descriptor, coordinate, tensor-memory column, collective mask."""


class BarrierFault(EmulatorError):
    """An mbarrier or named barrier used against its rules (not initialised, too many arrivals, tx overflow)."""


class Trap(EmulatorError):
    """The kernel executed `trap` or `brkpt`."""


@dataclass(frozen=True)
class Waiting:
    """One warp of a deadlock report: what it waits for and what has arrived."""

    cta: int
    warp: int
    line: int
    text: str
    reason: str
    loc: tuple[str, int] | None = None


class Deadlock(EmulatorError):
    """No warp can step and nothing is in flight."""

    def __init__(self, kernel: str, instructions: int, waiting: list[Waiting], notes: list[str]) -> None:
        rows = "\n".join(
            f"  CTA {w.cta} warp {w.warp:2d}  line {w.line:5d}  {w.reason}"
            + (f"  ({w.loc[0]}:{w.loc[1]})" if w.loc else "")
            for w in waiting
        )
        tail = "".join(f"\n  {note}" for note in notes)
        super().__init__(
            f"{kernel}: no warp can step and nothing is in flight after {instructions} warp-instructions\n{rows}{tail}"
        )
        self.kernel = kernel
        self.instructions = instructions
        self.waiting = waiting
        self.notes = notes


class Watchdog(EmulatorError):
    """More warp-instructions, or asynchronous operations, than allowed: an endless loop."""

    def __init__(self, kernel: str, instructions: int, hot: list[str], what: str = "warp-instructions") -> None:
        self.kernel = kernel
        self.instructions = instructions
        self.hot = hot
        lines = "".join(f"\n  {h}" for h in hot)
        hottest = f"; hottest lines:{lines}" if hot else ""
        super().__init__(f"{kernel}: stopped after {instructions} {what}{hottest}")
