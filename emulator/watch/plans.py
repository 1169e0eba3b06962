"""What the checker of uninitialised values does at every static instruction, worked out once for a kernel."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from emulator.ptx.module import Reg
from emulator.watch.definedness import Cell, DependenceBuilder, Effect, Trace, Traced, Write, slots_of, traced

RULES = {
    "memory._load": ("load", ()),
    "memory._store": ("store", ("values",)),
    "matrix._load": ("load", ()),
    "matrix._store": ("store", ("values",)),
    "tcgen05._load": ("load", ()),
    "tcgen05._store": ("store", ("values",)),
    "atomics._update": ("atomic", ("sources",)),
    "warp._exchanged": ("exchange", ("a",)),
    "warp._shuffle": ("exchange", ("a",)),
    "warp._vote": ("meet", ("p",)),
    "warp._ballot": ("meet", ("p",)),
    "warp._match": ("meet", ("a",)),
    "warp._reduce": ("meet", ("a",)),
    "warp._reduce_float": ("meet", ("a",)),
    "matrix._move": ("meet", ("a",)),
    "mma._multiply": ("product", ("a", "b", "c")),
    "mma._multiply_double": ("product", ("a", "b", "c")),
    "wgmma._issue": ("group product", ()),
}
"""Handlers whose results depend on what they are given: the rule, and the arguments that only pass values on. All other
arguments of handlers are used by the machine, and results of all other handlers are defined."""

_WORDS = {
    "address": "an address",
    "where": "the address of a tensor map",
    "coords": "the coordinates of a copy",
    "destination": "the destination of a copy",
    "source": "the source of a copy",
    "barrier": "the address of a barrier",
    "size": "a number of bytes",
    "descriptor": "a descriptor",
    "enable": "the accumulate predicate of a matrix product",
    "phase": "the phase that is waited for",
    "columns": "a number of columns",
    "members": "a member mask",
    "multicast": "a multicast mask",
    "number": "a count",
    "count": "a count",
}


@dataclass(frozen=True, eq=False)
class Use:
    """Registers that the machine needs at this instruction, and what for."""

    slots: tuple[int, ...]
    kind: str
    what: str


@dataclass(frozen=True, eq=False)
class Plan:
    """watched: registers whose definedness matters here; targets: those that are written; `rule` says how the results
    follow (`` for from the operands, lane by lane), `effect` is the handler that the rule is about. settled: with
    everything watched defined the results are, before the handler has run. branch: it transfers control."""

    watched: tuple[int, ...]
    targets: tuple[int, ...]
    writes: tuple[Write, ...]
    guard: int | None
    uses: tuple[Use, ...]
    rule: str
    effect: Effect | None
    settled: bool
    branch: bool = False

    def data(self, name: str) -> list[Traced]:
        """The values in an argument of the handler."""
        return traced(self.effect.arguments.get(name)) if self.effect is not None else []


class Plans:
    """The plans of one program, made block by block when first asked for."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self._builder = DependenceBuilder()
        self.made: list[Plan | None] = [None] * len(program.function.instructions)

    def make(self, index: int) -> Plan:
        """The plan of static instruction `index`."""
        program, builder = self._program, self._builder
        block = bisect_right(program.starts, index) - 1
        program.build_block(builder, block, [])
        start, end = program.bounds[block]
        for n in range(start, end):
            i = program.function.instructions[n]
            self.made[n] = _plan(builder.traces[n], i.guard, i.opcode)
        builder.traces.clear()
        plan = self.made[index]
        assert plan is not None
        return plan


def _plan(trace: Trace, guard: Reg | None, opcode: str) -> Plan:
    uses = [_use(d.whole, "uninitialised branch", "the target of a branch") for d in trace.decisions]
    rule, effect, data = _rule(trace.effects)
    if opcode.startswith("selp."):
        rule = "choice"
    for e in trace.effects:
        passed = RULES.get(e.handler, ("", ()))[1]
        for name, argument in e.arguments.items():
            if name not in passed:
                uses += [_use_of(name, value, opcode) for value in traced(argument)]
    uses = [use for use in uses if use.slots]
    read: set[int] = set()
    for write in trace.writes:
        read.update(slots_of(frozenset().union(*write.cells)))
    for value in data:
        read.update(slots_of(value.whole))
    for use in uses:
        read.update(use.slots)
    if guard is not None:
        read.add(guard.slot)
    if rule == "group product" and effect is not None:
        read.update(effect.arguments["into"])
        if isinstance(effect.arguments["a"], tuple):
            read.update(effect.arguments["a"])
    targets = tuple(dict.fromkeys(w.slot for w in trace.writes))
    slot = None if guard is None else guard.slot
    settled = rule not in ("load", "atomic")
    branch = opcode.split(".")[0] in ("bra", "brx", "ret", "exit")
    return Plan(tuple(sorted(read)), targets, tuple(trace.writes), slot, tuple(uses), rule, effect, settled, branch)


def _rule(effects: list[Effect]) -> tuple[str, Effect | None, list[Traced]]:
    """The rule, its effect, and the values that are only passed on."""
    for effect in effects:
        if effect.handler in RULES:
            rule, names = RULES[effect.handler]
            data = [value for e in effects for name in names for value in traced(e.arguments.get(name))]
            return rule, effect, data
    return "", None, []


def _use(cell: Cell, kind: str, what: str) -> Use:
    return Use(tuple(slots_of(cell)), kind, what)


def _use_of(name: str, value: Traced, opcode: str) -> Use:
    kind = "uninitialised address" if name in ("address", "destination", "source") else "uninitialised operand"
    return _use(value.whole, kind, _WORDS.get(name, f"operand `{name}` of {opcode.split('.')[0]}"))
