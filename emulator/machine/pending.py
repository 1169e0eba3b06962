"""Asynchronous operations in flight, and when they complete.

A correct kernel gives the same bits whenever an operation completes between its issue and the moment somebody waits for
it. `in_order` completes at issue; `latest` holds everything back until a warp cannot go on without it; `random` picks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emulator.errors import EmulatorError, Where

POLICIES = ("in_order", "latest", "random")


@dataclass
class Operation:
    """One operation in flight. `channel` orders it: operations of one channel complete in order of issue (the tensor
    core's pipe), those without (None) in any. `signals` are the barriers it touches when it completes."""

    number: int
    what: str
    complete: Callable[[int], None]
    where: Callable[[], Where]
    channel: Any = None
    signals: tuple[Any, ...] = ()
    done: bool = False


@dataclass
class InFlight:
    """The operations of one cluster that have not completed."""

    policy: str
    random: np.random.Generator
    finished: Callable[[Operation], None]
    queue: list[Operation] = field(default_factory=list)

    def add(self, operation: Operation) -> None:
        """Issue an operation; under `in_order` it completes at once."""
        if self.policy == "in_order":
            self._complete(operation)
        else:
            self.queue.append(operation)

    def _complete(self, operation: Operation) -> None:
        operation.done = True
        try:
            operation.complete(operation.number)
        except EmulatorError as error:
            raise error.at(operation.where()) from None
        self.finished(operation)

    def complete_through(self, operation: Operation) -> None:
        """Complete an operation and all that its channel has to finish before it."""
        before = [o for o in self.queue if o is operation or (o.channel is not None and o.channel == operation.channel)]
        for o in before[: before.index(operation) + 1]:
            self.queue.remove(o)
            self._complete(o)

    def force(self, wanted: list[Any]) -> bool:
        """Nobody can step: complete one operation, rather one that signals a barrier in `wanted`. False if none is
        left."""
        if not self.queue:
            return False
        useful = [o for o in self.queue if any(s in wanted for s in o.signals)]
        chosen = useful or self.queue
        pick = int(self.random.integers(len(chosen))) if self.policy == "random" else 0
        self.complete_through(chosen[pick])
        return True

    def drift(self) -> None:
        """Under `random`: let some operations complete although nobody waits."""
        if self.policy == "random" and self.queue and self.random.random() < 0.5:
            self.complete_through(self.queue[int(self.random.integers(len(self.queue)))])

    def drain(self) -> None:
        """Complete everything that is left, in order of issue."""
        while self.queue:
            self.complete_through(self.queue[0])
