"""The listener that stops a launch: a callback at each breakpoint decides how to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator import events
from emulator.debug.errors import BadBreakpoint, NeverReached, Stopped
from emulator.debug.points import MMA, Point, indices
from emulator.debug.stop import Stop
from emulator.views.recorder import Recorder

STEPS = ("instruction", "block", "any")
"""instruction: the same warp's next one. block: its next basic block. any: whatever warp executes next."""


@dataclass(frozen=True)
class Step:
    """Go on to the next instruction, block, or instruction of any warp (`STEPS`)."""

    unit: str = "instruction"

    def __post_init__(self) -> None:
        if self.unit not in STEPS:
            raise BadBreakpoint(f"step({self.unit!r}); allowed: {', '.join(STEPS)}")


class _Stop:
    """Give the launch up: it raises Stopped."""

    def __repr__(self) -> str:
        return "STOP"


STOP = _Stop()
Answer = Point | Sequence[Point] | Step | _Stop | None
_Product = tuple[int, int, events.WarpId]
"""Number of a matrix product, its static instruction, and who issued it."""
OnBreak = Callable[[Stop], Answer]


class _Armed:
    """A point resolved against the kernel that runs, and how often it was passed."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.places: frozenset[int] = frozenset()
        self.passed = 0
        self.reached = False

    def concerns(self, who: events.WarpId) -> bool:
        """Whether the point is about this warp."""
        point = self.point
        return (point.cta is None or point.cta == who.cta) and (point.warp is None or point.warp == who.warp)

    def pass_by(self, who: events.WarpId) -> bool:
        """Count; whether this was the time to stop."""
        if self.reached or not self.concerns(who):
            return False
        self.passed += 1
        return self.passed == self.point.times


class Debugger:
    """A listener: calls `on_break(stop)` at every point, on the thread that runs the launch.

    points: where to stop; each stops once, at its `times`-th time. fields, roles, barriers: names, as `Recorder` takes
    them. on_break answers None to go on to the other points, a Point (or several) to go on to these instead, a `Step`,
    or `STOP` to give the launch up (it raises Stopped). kernel: only entries whose name contains this.

    A launch that ends before a point was reached raises NeverReached, which says where it ended; a place that the
    kernel does not have raises BadBreakpoint before the first instruction.
    """

    reads_registers = True

    def __init__(
        self,
        points: Point | Sequence[Point],
        on_break: OnBreak,
        *,
        fields: Mapping[str, Sequence[object]] | None = None,
        roles: Mapping[int, str] | None = None,
        barriers: Sequence[str] | None = None,
        kernel: str = "",
    ) -> None:
        self.recorder = Recorder(fields, roles, barriers, ctas="all")
        self.labels = self.recorder.labels
        self.on_break = on_break
        self.kernel = kernel
        self.records = self.recorder.records
        self.stops = 0
        self.strict = True
        self.ending = "no kernel was launched"
        self._wanted = _as_points(points)
        self._grid: Any = None
        self._issued = 0
        self._first = False
        self._product: _Product | None = None
        self._step: tuple[Step, events.WarpId | None] | None = None
        self._armed: list[_Armed] = []

    def start(self, answer: Answer) -> None:
        """Before a launch: stop at these points, or at the first instruction."""
        self._first = isinstance(answer, Step)
        if answer is not None and not isinstance(answer, (Step, _Stop)):
            self._wanted = _as_points(answer)

    def check(self, points: Sequence[Point]) -> None:
        """Raises BadBreakpoint for places that the kernel, if one runs, does not have."""
        for point in _as_points(points):
            if self._grid is not None:
                indices(point, self._program.function.instructions)
            if point.kind == "barrier" and isinstance(point.value[0], str):
                self._check_name(point)

    # ---------------------------------------------------------------- records
    def __call__(self, record: Any) -> None:
        self.recorder(record)
        kind = type(record)
        if kind is events.LaunchBegin:
            self._begin(record)
        elif self._grid is None:
            return
        elif kind is events.Issue:
            self._issue(record)
        elif kind is events.Synchronise:
            self._synchronise(record)
        elif kind is events.AsyncBegin:
            if self._product is not None and record.at == self._product[1]:
                self._waiting[record.operation] = self._product
                self._product = None
        elif kind is events.AsyncEnd:
            self._completed(record.operation)
        elif kind is events.LaunchEnd:
            self._end(record)

    def _begin(self, record: events.LaunchBegin) -> None:
        if self.kernel not in record.kernel:
            self._grid = None
            return
        self._grid = record.state
        self._program = record.state.program
        self._products = [i.opcode.startswith(MMA) for i in self._program.function.instructions]
        self._issued = 0
        self._product = None
        self._waiting: dict[int, _Product] = {}
        self._last: dict[tuple[Any, int], int] = {}
        self._masks: dict[tuple[Any, int], Any] = {}
        self._where: events.WarpId | None = None
        self._step = (Step("any"), None) if self._first else None
        self._first = False
        self.ending = "the launch stopped before its end"
        self._arm(self._wanted)

    def _arm(self, points: Sequence[Point]) -> None:
        """Go for these points from now on."""
        self.check(points)
        self._wanted = tuple(points)
        self._armed = [_Armed(point) for point in points]
        places: set[int] = set()
        for armed in self._armed:
            armed.places = indices(armed.point, self._program.function.instructions)
            places |= armed.places
        self._places = np.zeros(len(self._program.function.instructions), bool)
        self._places[list(places)] = True

    def _check_name(self, point: Point) -> None:
        name = point.value[0]
        if name not in self.labels.barriers:
            raise BadBreakpoint(f"no mbarrier is named {name!r}; names: {', '.join(self.labels.barriers) or 'none'}")

    # ---------------------------------------------------------------- instructions
    def _issue(self, record: events.Issue) -> None:
        self._where = record.who
        key = (record.who.cta, record.who.warp)
        # A warp that could not go on tries the same instruction again.
        again = self._last.get(key) == record.index and np.array_equal(self._masks[key], record.mask)
        self._last[key], self._masks[key] = record.index, record.mask
        if self._product is not None and record.who == self._product[2]:
            # A product that is no asynchronous operation is complete when its warp goes on.
            done, self._product = self._product, None
            self._after(done)
        stepped = self._step is not None and self._steps_to(record, again)
        executes = bool(record.mask.any())
        hits = []
        if executes and not again and self._places[record.index]:
            hits = self._hits(lambda armed: record.index in armed.places, record.who)
        product = executes and self._products[record.index] and not again
        if product:
            hits += self._hits(lambda armed: armed.point.value == (self._issued, "before"), record.who, "mma")
        if hits or stepped:
            self._break(hits, record.who)
        if product:
            self._product = (self._issued, record.index, record.who)
            self._issued += 1

    def _hits(self, concerns: Callable[[_Armed], bool], who: events.WarpId, kind: str = "") -> list[_Armed]:
        """Points (of a kind) that this passes for the time at which they stop."""
        return [a for a in self._armed if kind in ("", a.point.kind) and concerns(a) and a.pass_by(who)]

    def _steps_to(self, record: events.Issue, again: bool) -> bool:
        assert self._step is not None
        step, who = self._step
        if step.unit == "any":
            return True
        if record.who != who or again:
            return False
        return step.unit == "instruction" or record.index in self._program.block_of

    def _completed(self, operation: int) -> None:
        done = self._waiting.pop(operation, None)
        if done is not None:
            self._after(done)

    def _after(self, done: _Product) -> None:
        k, index, who = done
        hits = self._hits(lambda armed: armed.point.value == (k, "after"), who, "mma")
        if hits:
            self._break(hits, who, index)

    # ---------------------------------------------------------------- barriers
    def _synchronise(self, record: events.Synchronise) -> None:
        if record.what == "bar.arrive":
            hits = self._hits(lambda armed: armed.point.value == record.key[1], record.who, "named")
        elif record.what.startswith("mbarrier."):
            hits = self._hits(lambda armed: self._concerns(armed.point, record), record.who, "barrier")
        else:
            return
        if hits:
            self._break(hits, record.who)

    def _concerns(self, point: Point, record: events.Synchronise) -> bool:
        which, event = point.value
        what = record.what.removeprefix("mbarrier.")
        happened = {
            "wait": what == "wait",
            "arrive": what.startswith(("arrive", "expect_tx", "complete_tx")),
            "complete": record.ended,
        }
        if not happened[event]:
            return False
        offset = record.key[1]
        if isinstance(which, int):
            return offset == which
        cta = self._warp(record.who).cluster.ctas[record.key[0]]
        return self.labels.barrier_names(list(cta.mbarriers)).get(offset) == which

    # ---------------------------------------------------------------- stopping
    def _warp(self, who: events.WarpId) -> Any:
        ctas = (cta for cluster in self._grid.resident for cta in cluster.ctas)
        return next(cta.warps[who.warp] for cta in ctas if cta.coordinates == who.cta)

    def _break(self, hits: Sequence[_Armed], who: events.WarpId, index: int | None = None) -> None:
        """Stop, by default at the instruction that the warp has issued last."""
        for armed in hits:
            armed.reached = True
        reason = "; ".join(str(armed.point) for armed in hits) or "next instruction"
        key = (who.cta, who.warp)
        self._step = None
        self.stops += 1
        place = self._last[key] if index is None else index
        stop = Stop(self._grid, self._warp(who), place, self._masks[key], reason, self.recorder.step, self)
        try:
            answer = self.on_break(stop)
        finally:
            stop.leave()
        if answer is STOP:
            raise Stopped(f"{stop.kernel}: given up at {reason}")
        if isinstance(answer, Step):
            self._step = (answer, who)
        elif isinstance(answer, Point) or (isinstance(answer, Sequence) and not isinstance(answer, str)):
            self._arm(_as_points(answer))
        elif answer is not None:
            raise BadBreakpoint(f"on_break answered {answer!r}; allowed: None, a Point, several, a Step, STOP")

    def _end(self, record: events.LaunchEnd) -> None:
        grid, self._grid = self._grid, None
        self.ending = f"{record.kernel} ended after {record.instructions} warp-instructions, {self._last_place(grid)}"
        if self.strict and self.unreached():
            raise NeverReached(f"{self.missing()}; {self.ending}")

    def missing(self) -> str:
        """The points that were not reached, and how near it came."""
        parts = []
        for armed in self.unreached():
            point = armed.point
            near = f" (passed {armed.passed} times)" if armed.passed else ""
            if point.kind == "mma":
                near = f" ({self._issued} were issued)"
            parts.append(f"{point}{near}")
        return f"never reached: {'; '.join(parts) or 'the next instruction'}"

    def unreached(self) -> list[_Armed]:
        """What is still to come."""
        return [armed for armed in self._armed if not armed.reached]

    def _last_place(self, grid: Any) -> str:
        if self._where is None:
            return "before the first one"
        index = self._last[self._where.cta, self._where.warp]
        i = grid.program.function.instructions[index]
        source = f" ({i.loc[0]}:{i.loc[1]})" if i.loc else ""
        return f"the last one in CTA {self._where.cta}, {self.labels.warp(self._where.warp)}, PTX line {i.line}{source}"


def _as_points(given: Point | Sequence[Point]) -> tuple[Point, ...]:
    points = (given,) if isinstance(given, Point) else tuple(given)
    for point in points:
        if not isinstance(point, Point):
            raise BadBreakpoint(f"points: {point!r} is a {type(point).__name__}; allowed: what line(), mma(), … return")
    return points
