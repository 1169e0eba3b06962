"""A launch that runs while somebody looks: `until`, look, `step`, `until`, `finish`."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from emulator.debug.debugger import STOP, Answer, Debugger, Step
from emulator.debug.errors import BadBreakpoint, NeverReached, Stopped
from emulator.debug.points import Point
from emulator.debug.stop import Stop


class Session:
    """Runs `call` on a thread of its own, which stands still whenever a breakpoint is reached.

    call: takes the listener and launches with it, `lambda listener: emulator.run(…, listeners=[listener])`; or, with
    `backend` (an object whose attribute `listeners` is read at each launch: `backends.get("emulated", …)`, or what
    `backends.emulated(…)` gives), takes nothing and calls a host function. names: fields, roles, barriers, kernel, as
    `Debugger` takes them. Use it as a context: what has not ended at its end is given up.
    """

    def __init__(self, call: Callable[..., Any], backend: Any = None, **names: Any) -> None:
        self.debugger = Debugger((), self._pause, **names)
        self.debugger.strict = False  # a later launch of the call may reach what this one did not
        self.stop: Stop | None = None
        self.result: Any = None
        self._call = call
        self._backend = backend
        self._stops: queue.Queue[Stop | _Ended] = queue.Queue()
        self._answers: queue.Queue[Answer] = queue.Queue()
        self._ended: _Ended | None = None
        self._thread: threading.Thread | None = None
        if backend is not None and not hasattr(backend, "listeners"):
            raise BadBreakpoint(f"backend: a {type(backend).__name__} has no listeners; allowed: an emulated backend")

    # ---------------------------------------------------------------- going on
    def until(self, *points: Point) -> Stop:
        """Go on until the first of these points. Raises NeverReached if the launch ends before, BadBreakpoint for a
        place that the kernel does not have, and whatever the launch raises otherwise."""
        if not points:
            raise BadBreakpoint("until() of no point; allowed: at least one, such as mma(0)")
        self.debugger.check(points)
        return self._go(points)

    def step(self, unit: str = "instruction", count: int = 1) -> Stop:
        """Go on by `count` instructions of this warp, `block`s of it, or instructions of `any` warp."""
        if count < 1:
            raise BadBreakpoint(f"step(count={count}); allowed: at least 1")
        for _ in range(count):
            stop = self._go(Step(unit))
        return stop

    def finish(self) -> Any:
        """Go on to the end; gives what `call` returned. Raises what it raised."""
        ended = self._ended or self._await(())
        if not isinstance(ended, _Ended):
            return self.finish()
        if ended.error is not None:
            raise ended.error
        return ended.result

    def close(self) -> None:
        """Give the launch up, if it has not ended."""
        if self._thread is None or self._ended is not None:
            return
        self._leave()
        self._answers.put(STOP)
        while not isinstance(ended := self._stops.get(), _Ended):
            self._answers.put(STOP)
        self._take(ended)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _go(self, answer: Answer) -> Stop:
        if self._ended is not None:
            raise NeverReached(f"the launch has ended{self._ended.how()}")
        found = self._await(answer)
        if isinstance(found, Stop):
            return found
        if isinstance(found.error, BadBreakpoint):
            raise found.error
        missing = self.debugger.missing()
        if found.error is not None:
            raise NeverReached(f"{missing}; the launch ended{found.how()}") from found.error
        raise NeverReached(f"{missing}; {self.debugger.ending}")

    def _await(self, answer: Answer) -> Stop | _Ended:
        if self._thread is None:
            self._begin(answer)
        else:
            self._leave()
            self._answers.put(answer)
        found = self._stops.get()
        if isinstance(found, _Ended):
            self._take(found)
        else:
            self.stop = found
        return found

    def _leave(self) -> None:
        if self.stop is not None:
            self.stop.leave()
            self.stop = None

    def _take(self, ended: _Ended) -> None:
        self._ended, self.result = ended, ended.result
        assert self._thread is not None
        self._thread.join()

    # ---------------------------------------------------------------- the other thread
    def _begin(self, answer: Answer) -> None:
        self.debugger.start(answer)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._run), daemon=True, name="debugged launch")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._stops.put(_Ended(self._launch(), None))
        except BaseException as error:  # it is raised again on the thread that asks
            self._stops.put(_Ended(None, error))

    def _launch(self) -> Any:
        if self._backend is None:
            return self._call(self.debugger)
        before = self._backend.listeners
        self._backend.listeners = (*before, self.debugger)
        try:
            return self._call()
        finally:
            self._backend.listeners = before

    def _pause(self, stop: Stop) -> Answer:
        self._stops.put(stop)
        return self._answers.get()


class _Ended:
    """The call has returned, or raised."""

    def __init__(self, result: Any, error: BaseException | None) -> None:
        self.result = result
        self.error = error

    def how(self) -> str:
        """` normally`, or by what."""
        if self.error is None:
            return " normally"
        if isinstance(self.error, Stopped):
            return ": it was given up"
        return f" by {type(self.error).__name__}: {self.error}"
