"""Runs one mutated kernel under a watchdog and says what came of it."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np

import emulator
from emulator.errors import BarrierFault, EmulatorError, IllegalInstruction, MemoryFault, Trap
from emulator.machine import launch
from emulator.memory.globals import GlobalMemory
from emulator.memory.im2col import Im2col
from emulator.memory.tensormap import TensorMap, element_type
from tests.emulator.fuzz.seeds import WORDS, Seed

STEPS = 3_000
"""Warp-instructions, and asynchronous operations, until the emulator's own watchdog; no seed needs a thousand."""

SECONDS = 20
"""Seconds of processor time until a case counts as a hang: a hundred times what the slowest seed takes."""

_FILLS = {
    "noise": np.random.default_rng(0).integers(0, 1 << 32, WORDS, np.uint32),
    "rows": np.arange(WORDS, dtype=np.uint32) * 16 % 512,
    "sparse": np.full(WORDS, 0x44444444, np.uint32),
    "zero": np.zeros(WORDS, np.uint32),
}

PLACED = (MemoryFault, IllegalInstruction, BarrierFault, Trap)
"""Run-time faults, which must say where."""


@dataclass(frozen=True)
class Case:
    """A kernel and its launch: what is needed to run it again. `flips` are (word, value) changes of the tensor map,
    `number` the last parameter, `drop` how many parameters are missing; `watched`: somebody listens to the events."""

    seed: Seed
    flips: tuple[tuple[int, int], ...] = ()
    number: int = 1
    shared_bytes: int = 0
    policy: str = "in_order"
    arithmetic: str = "fast"
    drop: int = 0
    watched: bool = False

    def with_text(self, text: str) -> Case:
        """The same launch of another text."""
        return replace(self, seed=replace(self.seed, text=text))


@dataclass(frozen=True)
class Outcome:
    """`kind`: `ok`, the name of an EmulatorError, or `bug` with the report of what went wrong."""

    kind: str
    message: str = ""
    output: bytes = field(default=b"", repr=False)


def _listen(record: Any) -> None:
    """Look at every field of an event."""
    repr(record)


class Hang(BaseException):
    """The case ran for too long. Not an Exception: nothing on the way may swallow it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Hang after so much processor time."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang(f"no end after {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _map(name: str, address: int, flips: tuple[tuple[int, int], ...]) -> bytes:
    """The tensor map of a seed, with changed words: 64 x 64 words with a box of 4 x 32, unless the seed is about pixels
    of 16 channels or about slices of 16 bytes."""
    if name == "pixels":
        boxed = Im2col((-1, -1), (-1, -1), 32)
        box, steps = (8, 1, 1, 1), (1, 1, 1, 1)
        made = TensorMap(address, element_type("u16"), (16, 8, 6, 3), (32, 256, 1536), box, steps, im2col=boxed)
    elif name == "slices":
        made = TensorMap(address, element_type("u32"), (16, 6, 3), (256, 1536), (8, 4, 2), (1, 1, 1), interleave=1)
    else:
        made = TensorMap(address, element_type("u32"), (64, 64), (256,), (4, 32), (1, 1))
    words = np.frombuffer(made.encode(), "<u4").copy()
    for word, value in flips:
        words[word % 32] ^= np.uint32(value & 0xFFFFFFFF)
    return words.tobytes()


def _parameters(case: Case, memory: GlobalMemory) -> list[bytes]:
    seed = case.seed
    buffers = []
    count = 2 if seed.given is None else sum(isinstance(g, int) for g in seed.given)
    for k in range(count):
        region = memory.allocate(4 * WORDS, f"buffer {k}", fill=0)
        region.views[4][:] = _FILLS[seed.fill]
        buffers.append(region.address)
    if seed.given is None:
        given = [a.to_bytes(8, "little") for a in buffers]
        given += [_map(seed.name, buffers[0], case.flips), (case.number & 0xFFFFFFFF).to_bytes(4, "little")]
    else:
        left = iter(buffers)
        given = [next(left).to_bytes(8, "little") if isinstance(g, int) else bytes(g) for g in seed.given]
    return given[: len(given) - case.drop] if case.drop else given


def run(case: Case, engine: str = "numpy") -> Outcome:
    """Parse, translate and launch; every outcome but success and an EmulatorError with its place is a bug."""
    seed = case.seed
    memory = GlobalMemory()
    parameters = _parameters(case, memory)
    regions = sorted(memory.regions, key=lambda r: r.name)
    try:
        with limited(SECONDS):
            module = emulator.parse(seed.text)
            emulator.run(
                module, seed.entry, (seed.grid * seed.cluster, 1, 1), (seed.block, 1, 1), parameters, memory,
                cluster=(seed.cluster, 1, 1), shared_bytes=case.shared_bytes, policy=case.policy, seed=1,
                arithmetic=case.arithmetic, watchdog=STEPS, engine=engine,
                listeners=[_listen] if case.watched else (),
            )  # fmt: skip
    except EmulatorError as error:
        return _judged(error, case)
    except (Exception, Hang):
        return Outcome("bug", traceback.format_exc(limit=-12))
    finally:
        launch._PROGRAMS.clear()  # nothing of a case stays
    left = [r for r in memory.regions if r not in regions]
    if left:
        return Outcome("bug", f"regions left behind: {', '.join(map(str, left))}")
    return Outcome("ok", "", b"".join(r.views[1].tobytes() for r in regions))


def _judged(error: EmulatorError, case: Case) -> Outcome:
    kind = type(error).__name__
    if isinstance(error, PLACED) and error.where is None:
        return Outcome("bug", f"{kind} without a place: {error}\n{traceback.format_exc(limit=-6)}")
    return Outcome(kind, str(error))
