"""Bulk copies: whole multiples of 16 bytes between global memory and the shared memories of a cluster."""

from __future__ import annotations

import numpy as np

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.globals import GlobalMemory
from emulator.memory.shared import SharedMemory
from emulator.units.reductions import reduce_elements

ALIGN = 16


def check(what: str, nbytes: int, *places: int) -> None:
    """Raise IllegalInstruction unless the size is a multiple of 16, MemoryFault unless the addresses are."""
    if nbytes < 0 or nbytes % ALIGN:
        raise IllegalInstruction(f"{what} of {nbytes} bytes: the size must be a multiple of {ALIGN}")
    for place in places:
        if place % ALIGN:
            raise MemoryFault(f"{what} at {place:#x}: the address must be a multiple of {ALIGN}")


def load(memory: GlobalMemory, address: int, target: SharedMemory, offset: int, nbytes: int) -> None:
    """Global to shared memory."""
    check("bulk copy", nbytes, address, offset)
    target.bytes(offset, nbytes, "bulk copy")[:] = memory.view(address, nbytes, what="bulk copy read")


def peer(
    source: SharedMemory, start: int, target: SharedMemory, offset: int, nbytes: int, op: str = "", kind: str = ""
) -> None:
    """Shared memory of one CTA to that of another: copied, or with `op` reduced on elements of PTX type `kind`."""
    check("bulk copy", nbytes, start, offset)
    into, given = target.bytes(offset, nbytes, "bulk copy"), source.bytes(start, nbytes, "bulk copy")
    into[:] = reduce_elements(op, kind, into, given) if op else given


def store(source: SharedMemory, offset: int, memory: GlobalMemory, address: int, nbytes: int) -> None:
    """Shared to global memory."""
    check("bulk copy", nbytes, address, offset)
    target = memory.view(address, nbytes, write=True, what="bulk copy write")
    target[:] = source.bytes(offset, nbytes, "bulk copy")


def store_some(source: SharedMemory, offset: int, memory: GlobalMemory, address: int, nbytes: int, chosen: int) -> None:
    """Shared to global memory; bit i of the 16-bit `chosen` says whether byte i of every 16 is copied."""
    check("bulk copy", nbytes, address, offset)
    target = memory.view(address, nbytes, write=True, what="bulk copy write")
    pick = np.tile([bool(chosen >> i & 1) for i in range(ALIGN)], nbytes // ALIGN)
    target[pick] = source.bytes(offset, nbytes, "bulk copy")[pick]


def reduce(
    source: SharedMemory, offset: int, memory: GlobalMemory, address: int, nbytes: int, op: str, kind: str
) -> None:
    """`global = global op shared` on elements of PTX type `kind`."""
    check("bulk reduction", nbytes, address, offset)
    target = memory.view(address, nbytes, write=True, what="bulk reduction")
    target[:] = reduce_elements(op, kind, target, source.bytes(offset, nbytes, "bulk reduction"))
