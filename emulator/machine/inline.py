"""Calls of functions that the module defines, expanded in place (PTX ISA 7.1, 9.7.12.5).

A parameter that is passed in a `.param` variable of the caller's frame *is* that variable: the callee's names for its
parameters are replaced by it. A register or literal gets a variable of its own. Every expansion has its own registers
and local variables; shared variables of a function exist once. `ret` becomes a branch behind the expansion, where
diverged lanes meet again.

What cannot be expanded stays a `call`, which the instruction set refuses with the reason: recursion, calls through a
register, functions that the module only declares (`vprintf` and `__assertfail` are built in).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.ptx.module import (
    Address,
    Function,
    Imm,
    Instruction,
    Label,
    LabelList,
    Module,
    Not,
    Operand,
    Pair,
    Parameter,
    Reg,
    Sink,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)

MAX_INSTRUCTIONS = 1 << 20
"""A longer expansion is left unexpanded: call trees can grow exponentially."""

_OWN = ("local", "param")


def inline_calls(module: Module, function: Function) -> Function:
    """The function with every call expanded that can be; itself if there is none."""
    return _Inliner(module).flat(function, ())


class _Inliner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.known: dict[str, Function] = {}

    def flat(self, function: Function, callers: tuple[str, ...]) -> Function:
        """`function` without calls of functions other than its callers."""
        if not any(i.opcode.startswith("call") for i in function.instructions):
            return function
        if function.name in self.known:
            return self.known[function.name]
        expansion = _Expansion(function)
        for i in function.instructions:
            callee = self._callee(i, (*callers, function.name))
            if callee is None or len(expansion.out) + len(callee.instructions) > MAX_INSTRUCTIONS:
                expansion.keep(i)
            else:
                expansion.expand(i, callee)
        result = expansion.finish()
        if all(self._callee_name(i) is None for i in result.instructions):
            self.known[function.name] = result
        return result

    def _callee_name(self, i: Instruction) -> str | None:
        """The function of this module that an instruction calls."""
        if not i.opcode.startswith("call") or len(i.operands) < 3 or not isinstance(i.operands[1], Symbol):
            return None
        found = self.module.functions.get(i.operands[1].name)
        return None if found is None or found.extern or found.entry else found.name

    def _callee(self, i: Instruction, callers: tuple[str, ...]) -> Function | None:
        name = self._callee_name(i)
        return None if name is None or name in callers else self.flat(self.module.functions[name], callers)


@dataclass
class _Expansion:
    """A caller being rewritten. `out`: (instruction, whether its labels are the caller's own)."""

    caller: Function
    out: list[tuple[Instruction, bool]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    copies: int = 0

    def __post_init__(self) -> None:
        self.types = list(self.caller.register_types)
        self.names = list(self.caller.register_names)
        self.variables = list(self.caller.variables)

    def keep(self, i: Instruction) -> None:
        """An instruction of the caller as it is."""
        self.places.append(len(self.out))
        self.out.append((i, True))

    def expand(self, call: Instruction, callee: Function) -> None:
        """The body of `callee` instead of a call."""
        self.places.append(len(self.out))
        returns, _, arguments, *_ = call.operands
        if not isinstance(returns, Vector) or not isinstance(arguments, Vector):
            raise ValueError(f"call without lists of returns and arguments: {call.text}")
        if not (
            self._fit(callee.returns, returns.items, True) and self._fit(callee.parameters, arguments.items, False)
        ):
            # Nothing sensible can be expanded; the call stays and is refused.
            self.out.append((call, True))
            return
        self.copies += 1
        symbols = self._variables(callee)
        given = zip(callee.parameters, arguments.items, strict=True)
        before = [self._pass(p, o, symbols, call, "st") for p, o in given]
        taken = zip(callee.returns, returns.items, strict=True)
        after = [self._pass(p, o, symbols, call, "ld") for p, o in taken]
        slot = len(self.types)
        self.types += callee.register_types
        self.names += [f"{name}${self.copies}" for name in callee.register_names]
        guard = [call] if call.guard is not None else []
        moves = [x for x in before if x is not None]
        base = len(self.out) + len(guard) + len(moves)
        end = base + len(callee.instructions)
        results = [x for x in after if x is not None]
        past = Label(f"{callee.name}$end", end + len(results))
        for i in guard:
            skip = replace(i, opcode="bra", operands=(past,), guard_negated=not i.guard_negated)
            self.out.append((skip, False))
        self.out += [(replace(x, guard=None, guard_negated=False), False) for x in moves]
        meet = Label(f"{callee.name}$return", end)
        for i in callee.instructions:
            self.out.append((self._moved(i, slot, symbols, base, meet), False))
        self.out += [(replace(x, guard=None, guard_negated=False), False) for x in results]

    def _fit(self, formal: tuple[Parameter, ...], actual: tuple[Operand, ...], returned: bool) -> bool:
        """Whether there is an argument of the right size for every parameter."""
        sizes = {v.name: v.nbytes for v in self.variables if v.space == "param"}

        def fits(p: Parameter, o: Operand) -> bool:
            if isinstance(o, Symbol):
                return sizes.get(o.name) == p.nbytes
            if isinstance(o, Reg):
                return o.type != "pred" and p.nbytes in (1, 2, 4, 8)
            return isinstance(o, Sink) if returned else isinstance(o, Imm) and p.nbytes in (1, 2, 4, 8)

        return len(formal) == len(actual) and all(fits(p, o) for p, o in zip(formal, actual, strict=True))

    def _variables(self, callee: Function) -> dict[str, str]:
        """New names for the callee's variables, which the caller gets."""
        symbols: dict[str, str] = {}
        here = {v.name for v in self.variables}
        for v in callee.variables:
            unique = f"{v.name}${self.copies}" if v.space in _OWN else f"{callee.name}${v.name}"
            symbols[v.name] = unique
            if unique not in here:
                self.variables.append(replace(v, name=unique))
        return symbols

    def _pass(
        self, formal: Parameter, actual: Operand, symbols: dict[str, str], call: Instruction, move: str
    ) -> Instruction | None:
        """Bind a parameter to the caller's variable, or to one of its own that an `ld` or `st` connects."""
        if isinstance(actual, Symbol):
            symbols[formal.name] = actual.name
            return None
        unique = f"{formal.name}${self.copies}"
        symbols[formal.name] = unique
        self.variables.append(Variable(unique, "param", formal.align, formal.nbytes))
        if not isinstance(actual, (Reg, Imm)):
            return None
        place = Address(Symbol(unique), 0)
        operands = (place, actual) if move == "st" else (actual, place)
        return replace(call, opcode=f"{move}.param.b{8 * formal.nbytes}", operands=operands)

    def _moved(self, i: Instruction, slot: int, symbols: dict[str, str], base: int, meet: Label) -> Instruction:
        """An instruction of the callee at its new place."""
        guard = None if i.guard is None else self._register(i.guard, slot)
        if i.opcode.split(".")[0] == "ret":
            return replace(i, opcode="bra", operands=(meet,), guard=guard)

        def moved(o: Operand) -> Operand:
            if isinstance(o, Reg):
                return self._register(o, slot)
            if isinstance(o, Symbol):
                return Symbol(symbols.get(o.name, o.name))
            if isinstance(o, Label):
                return Label(o.name, o.index + base)
            return _map(o, moved)

        return replace(i, operands=tuple(moved(o) for o in i.operands), guard=guard)

    def _register(self, r: Reg, slot: int) -> Reg:
        return Reg(f"{r.name}${self.copies}", r.type, r.slot + slot)

    def finish(self) -> Function:
        """The rewritten caller; its own labels now point to the new places."""
        self.places.append(len(self.out))

        def moved(o: Operand) -> Operand:
            return Label(o.name, self.places[o.index]) if isinstance(o, Label) else _map(o, moved)

        instructions = tuple(
            replace(i, operands=tuple(moved(o) for o in i.operands)) if own and _has_labels(i) else i
            for i, own in self.out
        )
        return replace(
            self.caller,
            instructions=instructions,
            register_types=tuple(self.types),
            register_names=tuple(self.names),
            variables=tuple(self.variables),
        )


def _has_labels(i: Instruction) -> bool:
    return any(isinstance(o, (Label, LabelList)) for o in i.operands)


def _map(o: Operand, apply: Callable[[Any], Any]) -> Operand:
    """A composite operand with its parts changed."""
    if isinstance(o, Address):
        return Address(apply(o.base), o.offset)
    if isinstance(o, TensorAddress):
        return TensorAddress(apply(o.map), tuple(apply(c) for c in o.coords))
    if isinstance(o, Vector):
        return Vector(tuple(apply(x) for x in o.items))
    if isinstance(o, Pair):
        return Pair(apply(o.first), apply(o.second))
    if isinstance(o, Not):
        return Not(apply(o.operand))
    if isinstance(o, LabelList):
        return LabelList(tuple(apply(x) for x in o.labels))
    return o
