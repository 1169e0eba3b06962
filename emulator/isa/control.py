"""Control flow: branches, returns, traps, calls of vprintf (PTX ISA 9.7.12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import Trap
from emulator.isa.printf import vprintf
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
    """Only vprintf can be called: `call (ret), vprintf, (format, arguments)`."""
    names = [o for o in i.operands if isinstance(o, Symbol)]
    if not names or names[0].name != "vprintf":
        raise Unsupported(f"call of {names[0].name if names else 'a pointer'}; only vprintf can be called")
    returns, arguments = i.operands[0], i.operands[-1]
    if not isinstance(returns, Vector) or not isinstance(arguments, Vector) or len(arguments.items) != 2:
        raise Unsupported("vprintf takes (format, arguments) and returns one value")
    places = [b.source(o, "u64") for o in (*arguments.items, *returns.items)]
    b.effect(vprintf, *places)
