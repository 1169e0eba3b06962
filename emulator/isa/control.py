"""Control flow: branches, returns, traps, calls of built-in functions (PTX ISA 9.7.12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import Trap
from emulator.isa.printf import assertfail, vprintf
from emulator.isa.table import Modifiers, op
from emulator.ptx.module import Instruction, Label, LabelList, Symbol, Vector


@op("bra[.uni]", section="9.7.12.2", ends_block=True)
def bra(b: Any, i: Instruction, m: Modifiers) -> None:
    """Branch of the executing lanes."""
    target = i.operands[0]
    if not isinstance(target, Label):
        raise Unsupported(f"branch target {target}")
    b.branch(target.index)


@op("brx.idx[.uni]", section="9.7.12.3", ends_block=True)
def brx(b: Any, i: Instruction, m: Modifiers) -> None:
    """Branch through a table of labels; an index past its end is undefined and faults here."""
    table = i.operands[1]
    if not isinstance(table, LabelList):
        raise Unsupported(f"branch table {table}")
    b.jump(b.operand(i, 0, "u32"), tuple(label.index for label in table.labels))


@op("ret[.uni]", "exit", section="9.7.12.6", ends_block=True)
def leave(b: Any, i: Instruction, m: Modifiers) -> None:
    """End of the lanes (an entry returns to nobody)."""
    b.exit()


@op("trap", "brkpt", section="9.7.19.5")
def trap(b: Any, i: Instruction, m: Modifiers) -> None:
    """Abort the launch."""
    b.effect(_trap)


def _trap(warp: Any, mask: np.ndarray) -> None:
    raise Trap(f"the kernel executed trap in lanes {np.flatnonzero(mask).tolist()}")


@op("call[.uni]", section="9.7.12.5")
def call(b: Any, i: Instruction, m: Modifiers) -> None:
    """What was not expanded in place: the built-in functions vprintf and __assertfail."""
    returns, callee, arguments = i.operands[:3]
    if not isinstance(callee, Symbol):
        raise Unsupported("a call through a register: functions have no addresses here")
    known = {"vprintf": (1, 2, vprintf), "__assertfail": (0, 5, assertfail)}.get(callee.name)
    if known is None:
        raise Unsupported(
            f"call of {callee.name}: it is recursive, declared but not defined in this module, or called with the "
            "wrong arguments"
        )
    results, count, handler = known
    if not isinstance(returns, Vector) or not isinstance(arguments, Vector) or len(arguments.items) != count:
        raise Unsupported(f"{callee.name} takes {count} arguments")
    if len(returns.items) != results:
        raise Unsupported(f"{callee.name} returns {results} values")
    places = [b.source(o, "u64") for o in (*arguments.items, *returns.items)]
    b.effect(handler, *places)
