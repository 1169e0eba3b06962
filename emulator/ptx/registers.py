"""The registers that an operand names."""

from __future__ import annotations

from emulator.ptx.module import Address, Not, Operand, Pair, Reg, TensorAddress, Vector


def registers_of(operand: Operand) -> list[Reg]:
    """All registers inside an operand, addresses and vectors included."""
    found: list[Reg] = []
    todo: list[Operand] = [operand]
    while todo:
        o = todo.pop()
        if isinstance(o, Reg):
            found.append(o)
        elif isinstance(o, Address):
            todo.append(o.base)
        elif isinstance(o, TensorAddress):
            todo += [o.map, *o.coords]
        elif isinstance(o, Vector):
            todo += o.items
        elif isinstance(o, Pair):
            todo += [o.first, o.second]
        elif isinstance(o, Not):
            todo.append(o.operand)
    return found
