"""Which registers of an asynchronous operation an instruction may touch too early: found once per program, along every
path.

What is found here may lie on a path that no warp takes; the checker watches these instructions, and no others, while
the kernel runs. Register moves carry the state along: compilers pack the results of a load into pairs before they wait
for it, and the assembler makes no code of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulator.ptx.module import Address, Instruction, Label, LabelList, Operand, Reg, Vector
from emulator.ptx.registers import registers_of


@dataclass
class Hazards:
    """Of one kind of hazard. Sets of registers are words with a bit a slot. `opens`: instruction -> registers that are
    open after it; `closes`: instructions that close all of them; `moves`: instruction -> (sources, destinations) that
    it carries on; `suspects`: instruction -> registers that it touches and that may be open there; `start`: registers
    that are open at the start."""

    opens: dict[int, int]
    closes: frozenset[int]
    moves: dict[int, tuple[int, int]] = field(default_factory=dict)
    suspects: dict[int, int] = field(default_factory=dict)
    start: int = 0

    def after(self, n: int, state: int) -> int:
        """The open registers behind an instruction."""
        if n in self.closes:
            return 0
        if n in self.moves:
            sources, destinations = self.moves[n]
            return state | destinations if state & sources else state & ~destinations
        return state | self.opens.get(n, 0)


def slots(items: Any) -> int:
    """Registers as a word with a bit a slot."""
    word = 0
    for register in items:
        word |= 1 << register.slot
    return word


def touched(i: Instruction) -> int:
    """Every register that an instruction mentions."""
    found: list[Reg] = [] if i.guard is None else [i.guard]
    return slots(found + [r for o in i.operands for r in registers_of(o)])


def written(i: Instruction) -> int:
    """The registers that an instruction writes, if it writes any (the first operand of stores is an address)."""
    if not i.operands or isinstance(i.operands[0], Address):
        return 0
    return slots(registers_of(i.operands[0]))


def hazards(
    program: Any,
    opened: Callable[[Instruction], int],
    closes: Callable[[Instruction], bool],
    used: Callable[[Instruction], int] = touched,
    initially: bool = False,
    carried: bool = True,
) -> Hazards:
    """Follow the open registers through a program (`machine.program.Blocks`). opened: registers that an instruction
    opens; closes: whether it closes all; used: registers that it must not touch while they are open; initially: all are
    open at the start. carried: moves from register to register do neither, they carry the state on."""
    code = program.function.instructions
    found = Hazards(
        {n: word for n, i in enumerate(code) if (word := opened(i))},
        frozenset(n for n, i in enumerate(code) if closes(i)),
    )
    if not found.opens and not initially:
        return found
    if carried:
        found.moves = {n: move for n, i in enumerate(code) if (move := _move(i)) is not None}
    found.opens = {n: word for n, word in found.opens.items() if n not in found.moves}
    uses = [0 if n in found.moves else used(i) for n, i in enumerate(code)]
    entry = [0] * len(program.starts)
    if initially:
        for word in uses:
            found.start |= word
        entry[0] = found.start
    todo, seen = [0], {0}
    while todo:
        block = todo.pop()
        state = entry[block]
        start, end = program.bounds[block]
        for n in range(start, end):
            if uses[n] & state:
                found.suspects[n] = found.suspects.get(n, 0) | uses[n] & state
            state = found.after(n, state)
        for following in _successors(program, block):
            if following < len(entry) and (entry[following] | state != entry[following] or following not in seen):
                entry[following] |= state
                seen.add(following)
                todo.append(following)
    return found


def _move(i: Instruction) -> tuple[int, int] | None:
    """(sources, destinations) of a mov between registers."""
    if not i.opcode.startswith("mov.") or i.guard is not None or not _registers_only(i.operands[1]):
        return None
    return slots(registers_of(i.operands[1])), slots(registers_of(i.operands[0]))


def _registers_only(o: Operand) -> bool:
    return all(isinstance(x, Reg) for x in o.items) if isinstance(o, Vector) else isinstance(o, Reg)


def _successors(program: Any, block: int) -> list[int]:
    last = program.function.instructions[program.bounds[block][1] - 1]
    found = []
    for o in last.operands:
        if isinstance(o, Label):
            found.append(program.target(o))
        elif isinstance(o, LabelList):
            found += [program.target(x) for x in o.labels]
    head = last.opcode.split(".")[0]
    if last.guard is not None or head not in ("bra", "brx", "ret", "exit", "trap"):
        found.append(block + 1)
    return found
