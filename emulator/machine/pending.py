"""Asynchronous operations in flight, and when they complete.

A correct kernel gives the same bits whenever an operation completes between its issue and the moment somebody waits for
it. When that is, the policy says (`emulator.machine.choices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulator.errors import EmulatorError
from emulator.machine.choices import InOrder
from emulator.machine.operation import Operation

POLICIES = ("in_order", "latest", "random", "replay")


@dataclass
class InFlight:
    """The operations of one cluster that have not completed."""

    choices: InOrder
    finished: Callable[[Operation], None]
    queue: list[Operation] = field(default_factory=list)
    _issued: dict[int, int] = field(default_factory=dict)

    def add(self, operation: Operation, warp: int) -> None:
        """Issue an operation of a warp (counted over the cluster); it completes at once unless the policy holds it."""
        nth = self._issued.get(warp, 0)
        self._issued[warp] = nth + 1
        operation.key = (warp, nth)
        held = self.choices.held(operation)
        if not held and not self.queue:
            self._complete(operation)
            return
        self.queue.append(operation)
        if not held:
            self.complete_through(operation)

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
        self.complete_through(self.choices.forced(self.queue, useful))
        return True

    def begin(self) -> None:
        """A round of the cluster begins: complete what the policy completes although nobody waits."""
        self.choices.begin()
        while self.queue and (operation := self.choices.due(self.queue)) is not None:
            self.complete_through(operation)

    def drain(self) -> None:
        """Complete everything that is left, in order of issue."""
        while self.queue:
            self.complete_through(self.queue[0])
