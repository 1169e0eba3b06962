"""The door: run one entry of a PTX module on registered memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from emulator.errors import EmulatorError, LaunchError
from emulator.events import Bus, LaunchBegin, LaunchEnd, Listener
from emulator.machine.grid import Grid
from emulator.machine.layout import place_globals
from emulator.machine.pending import POLICIES
from emulator.machine.program import Blocks, Program
from emulator.machine.schedule import Schedule, digest
from emulator.machine.scheduler import Scheduler
from emulator.memory.globals import GlobalMemory
from emulator.ptx.module import Function, Module

Triple = tuple[int, int, int]
ARITHMETIC = ("fast", "exact")
ENGINES = ("numpy", "llvm")
KEPT = 64
"""Translated programs that are remembered."""

_PROGRAMS: dict[tuple[int, str, str], tuple[Module, Blocks]] = {}


@dataclass(frozen=True)
class Launch:
    """What a run reports. `instructions` counts warp-instructions; `by_warp` by warp index over all CTAs; `by_line`
    by PTX line; `output` is what printf printed; `seconds` is wall time of the run, translation excluded; `schedule` is
    what was decided, to be replayed (None under `in_order`, which decides nothing)."""

    kernel: str
    grid: Triple
    block: Triple
    cluster: Triple
    shared_bytes: int
    policy: str
    seed: int
    arithmetic: str
    instructions: int
    operations: int
    seconds: float
    translate_seconds: float
    output: str
    by_warp: dict[int, int] = field(default_factory=dict)
    by_line: dict[int, int] = field(default_factory=dict)
    schedule: Schedule | None = None


def run(
    module: Module,
    entry: str,
    grid: Triple,
    block: Triple,
    parameters: Sequence[bytes],
    memory: GlobalMemory,
    *,
    cluster: Triple = (1, 1, 1),
    shared_bytes: int = 0,
    policy: str = "in_order",
    seed: int = 0,
    arithmetic: str = "fast",
    listeners: Sequence[Listener] = (),
    watchdog: int = 2_000_000_000,
    multiprocessors: int = 148,
    engine: str = "llvm",
    schedule: Schedule | None = None,
) -> Launch:
    """Execute `entry` over the whole grid and return when it has ended.

    parameters: the bytes of each kernel parameter, in order and of the declared sizes. memory: the regions that the
    kernel may touch; outputs are written in place. policy: `in_order`, `latest`, `random` (with `seed`) or `replay`
    (with `schedule`): when asynchronous operations complete, who runs next and for how long (`machine.choices`).
    arithmetic: `fast` (float32 BLAS in matrix products) or `exact` (the hardware's rule). watchdog: warp-instructions,
    or asynchronous operations, after which `Watchdog` is raised. engine: `llvm` runs native code, `numpy` the readable
    reference; both give the same bits, counts and schedules. With listeners, and on x86 processors without AVX2, the
    reference runs: it alone reports every step.

    Raises LaunchError for an illegal configuration, ScheduleError for the schedule of another launch,
    UnknownInstruction before the first step, and at run time MemoryFault, IllegalInstruction, BarrierFault, Deadlock,
    Trap, Watchdog; these carry the `schedule` of the run up to there.
    """
    if policy not in POLICIES:
        raise LaunchError(f"policy {policy!r}: allowed {', '.join(POLICIES)}")
    if (policy == "replay") != (schedule is not None):
        raise LaunchError(f"policy {policy!r} with schedule={schedule}: `replay`, and only it, takes a schedule")
    if arithmetic not in ARITHMETIC:
        raise LaunchError(f"arithmetic {arithmetic!r}: allowed {', '.join(ARITHMETIC)}")
    if engine not in ENGINES:
        raise LaunchError(f"engine {engine!r}: allowed {', '.join(ENGINES)}")
    if schedule is not None:
        schedule.check(entry, digest(module.source), grid, block, cluster)
    started = time.perf_counter()
    exposed = any(getattr(listener, "reads_registers", False) for listener in listeners)
    program = translate(module, entry, bool(listeners), engine, exposed)
    translated = time.perf_counter()
    bus = Bus(listeners)
    with program.context() as context:
        state = Grid(
            program, grid, block, cluster, shared_bytes, memory, bus, policy, seed, arithmetic, multiprocessors,
            context, watchdog, schedule,
        )  # fmt: skip
        if bus.on:
            bus.publish(LaunchBegin(entry, grid, block, cluster, state))
        scheduler = Scheduler(state)
        with np.errstate(all="ignore"), _Placed(state, parameters):
            try:
                scheduler.run()
            except EmulatorError as error:
                error.schedule = _decided(state)
                raise
    if bus.on:
        bus.publish(LaunchEnd(entry, scheduler.instructions))
    return Launch(
        entry,
        grid,
        block,
        cluster,
        shared_bytes,
        policy,
        seed,
        arithmetic,
        scheduler.instructions,
        state.operations,
        time.perf_counter() - translated,
        translated - started,
        "".join(state.output),
        scheduler.warp_instructions,
        _by_line(program, state.counts),
        _decided(state),
    )


def translate(module: Module, entry: str, watched: bool = False, engine: str = "llvm", exposed: bool = False) -> Blocks:
    """The program of an entry; the latest modules are translated once for every engine. `watched`: it publishes every
    step; `exposed`: with all registers in the register file at each of them, for a listener that `reads_registers`."""
    kind = "exposed" if exposed else "watched" if watched else engine
    key = (id(module), entry, kind)
    # The module is remembered too, or another one could get its id.
    found = _PROGRAMS.pop(key, None) or (module, _translated(module, entry, kind))
    _PROGRAMS[key] = found
    if len(_PROGRAMS) > KEPT:
        del _PROGRAMS[next(iter(_PROGRAMS))]
    return found[1]


def _translated(module: Module, entry: str, kind: str) -> Blocks:
    if kind != "llvm":
        return Program(module, entry, kind != "numpy", kind == "exposed")
    # Not above: runs of the reference need not load LLVM.
    from emulator.machine.native.image import supported
    from emulator.machine.native.program import NativeProgram

    return NativeProgram(module, entry) if supported() else Program(module, entry)


def _decided(state: Grid) -> Schedule | None:
    """What a run has decided: the schedule it was given, or what its policy noted."""
    if state.policy in ("in_order", "replay"):
        return state.schedule
    module = state.program.module
    about = state.program.function.name, digest(module.source), state.grid, state.block, state.cluster
    return Schedule(*about, tuple(state.decisions))


class _Placed:
    """Parameters and module variables in memory for the time of a launch."""

    def __init__(self, state: Grid, parameters: Sequence[bytes]) -> None:
        self.state = state
        function = state.program.function
        _check_parameters(function, parameters)
        before = set(map(id, state.memory.regions))
        region = state.memory.allocate(max(function.parameter_bytes, 1), f"parameters of {function.name}", fill=0)
        for declared, given in zip(function.parameters, parameters, strict=True):
            place = region.address + declared.offset
            state.memory.view(place, declared.nbytes, write=True)[:] = np.frombuffer(given, np.uint8)
        region.writable = False
        state.parameters = region.address
        state.globals = place_globals(state.program.module, state.memory)
        self.regions = [r for r in state.memory.regions if id(r) not in before]

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for region in self.regions:
            self.state.memory.unregister(region)


def _check_parameters(function: Function, parameters: Sequence[bytes]) -> None:
    wanted = [p.nbytes for p in function.parameters]
    given = [len(p) for p in parameters]
    if wanted != given:
        raise LaunchError(f"{function.name} takes parameters of {wanted} bytes; given {given}")


def _by_line(program: Blocks, counts: Sequence[int]) -> dict[int, int]:
    lines: dict[int, int] = {}
    for block, count in enumerate(counts):
        if count:
            start = program.starts[block]
            for i in program.function.instructions[start : start + program.lengths[block]]:
                lines[i.line] = lines.get(i.line, 0) + count
    return lines
