"""Matrices between shared memory and the registers of a warp: ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15 to
9.7.14.5.17).

A row of a matrix is 16 bytes of shared memory whose address one lane gives: lane 8 i + r (16 i + r) for row r of
matrix i. Lane 4 g + t holds word t of row g; `.trans` transposes the elements first. 16 x 16 matrices of bytes come
transposed, eight columns a register; 16 x 8 matrices of bytes are stored transposed from the fragment of an
accumulator. Narrow elements are unpacked into the low bits of a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.isa.memory import address_of, items, shared_memory
from emulator.isa.operands import write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access
from emulator.isa.warplike import WarpLike, whole_warp
from emulator.memory.shared import split_address
from emulator.ptx.module import Instruction
from emulator.units.narrow import unpack_padded

_SPACE = "[.space:shared|shared::cta]"
_NARROW = {"b4x16_p64": 4, "b6x16_p32": 6}


# ---------------------------------------------------------------- fragments
def _plain(rows: np.ndarray) -> np.ndarray:
    """Rows uint8 [8 n, 16] -> registers [n, 32]."""
    return rows.view(np.uint32).reshape(-1, 32)


def _transposed16(rows: np.ndarray) -> np.ndarray:
    """The same for transposed 8 x 8 matrices of 16-bit elements."""
    elements = rows.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(elements).view(np.uint32).reshape(-1, 32)


def _transposed8(rows: np.ndarray) -> np.ndarray:
    """Rows uint8 [16 n, 16] of 16 x 16 matrices -> registers [2 n, 32] of their transposes."""
    elements = rows.reshape(-1, 16, 16).transpose(0, 2, 1)
    return np.ascontiguousarray(elements).view(np.uint32).reshape(-1, 32)


def _rows_plain(registers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 16)


def _rows_transposed16(registers: np.ndarray) -> np.ndarray:
    elements = registers.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(elements).view(np.uint8).reshape(-1, 16)


def _rows_transposed8(registers: np.ndarray) -> np.ndarray:
    """Registers [n, 32]: byte 2 h + p of lane 4 g + t is element (g + 8 h, 2 t + p) of a 16 x 8 matrix, whose transpose
    has 8 rows of 16 bytes."""
    parts = registers.view(np.uint8).reshape(-1, 8, 4, 2, 2)  # matrix, g, t, h, p
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 3, 1)).reshape(-1, 16)


# ---------------------------------------------------------------- ldmatrix
@op(
    f"ldmatrix.sync.aligned.shape:m8n8.num:x1|x2|x4[.trans]{_SPACE}.type:b16",
    f"ldmatrix.sync.aligned.shape:m16n16.num:x1|x2.trans{_SPACE}.type:b8",
    f"ldmatrix.sync.aligned.shape:m16n16.num:x1|x2.trans{_SPACE}.b8x16.source:b6x16_p32|b4x16_p64",
    f"ldmatrix.sync.aligned.shape:m8n16.num:x1|x2|x4{_SPACE}.b8x16.source:b6x16_p32|b4x16_p64",
    section="9.7.14.5.15",
    starts_block=True,
)
def load(b: Any, i: Instruction, m: Modifiers) -> None:
    """Load one, two or four matrices."""
    targets, number = items(i.operands[0]), int(m["num"][1:])
    square = m["shape"] == "m16n16"
    if len(targets) != number * (2 if square else 1):
        raise Unsupported(f"{len(targets)} registers; {m['shape']}.{m['num']} fills {number * (2 if square else 1)}")
    arrange = _transposed8 if square else _transposed16 if m.get("trans") else _plain
    bits, rows = _NARROW.get(m.get("source") or "", 8), number * (16 if square else 8)
    address = address_of(b, i.operands[1], m["space"])
    values = b.blocking(_load, address, arrange, rows, bits, out=["u32"] * len(targets))
    for target, value in zip(targets, values, strict=True):
        write(b, target, value, "u32")


def _load(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, arrange: Any, rows: int, bits: int
) -> np.ndarray | None:
    place = _rows_at(warp, mask, address, rows, "ldmatrix", "read")
    if place is None:
        return None
    memory, offsets = place
    raw = memory.load(offsets, 16, np.arange(rows)).view(np.uint8).reshape(rows, 16)
    return arrange(raw if bits == 8 else unpack_padded(raw, bits))


def _rows_at(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, rows: int, what: str, kind: str
) -> tuple[Any, np.ndarray] | None:
    """(shared memory, offsets of the rows), or None while lanes are missing."""
    if whole_warp(warp, mask, what) is None:
        return None
    places = warp.shared(address)[:rows]
    ranks = places >> np.uint32(24)
    if (ranks != ranks[0]).any():
        raise IllegalInstruction(f"{what}: rows in the shared memory of several CTAs")
    rank, _ = split_address(int(places[0]))
    offsets = (places & np.uint32(0xFFFFFF)).astype(np.int64)
    if warp.bus.on:
        tell_access(warp, "shared", kind, offsets, 16, rank, np.arange(rows))
    return shared_memory(warp, rank), offsets


# ---------------------------------------------------------------- stmatrix
@op(
    f"stmatrix.sync.aligned.shape:m8n8.num:x1|x2|x4[.trans]{_SPACE}.type:b16",
    f"stmatrix.sync.aligned.shape:m16n8.num:x1|x2|x4.trans{_SPACE}.type:b8",
    section="9.7.14.5.16",
    starts_block=True,
)
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Store one, two or four matrices."""
    sources, number = items(i.operands[1]), int(m["num"][1:])
    if len(sources) != number:
        raise Unsupported(f"{len(sources)} registers; {m['num']} stores {number}")
    arrange = _rows_transposed8 if m["type"] == "b8" else _rows_transposed16 if m["trans"] else _rows_plain
    values = [b.source(s, "u32") for s in sources]
    b.blocking(_store, address_of(b, i.operands[0], m["space"]), arrange, values, out="pred")


def _store(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, arrange: Any, values: tuple[np.ndarray, ...]
) -> np.ndarray | None:
    count = 8 * len(values)
    place = _rows_at(warp, mask, address, count, "stmatrix", "write")
    if place is None:
        return None
    memory, offsets = place
    raw = arrange(np.stack(values))
    memory.store(offsets, raw.view(np.complex128).ravel(), np.arange(count))
    warp.progress()
    return mask


# ---------------------------------------------------------------- movmatrix
@op("movmatrix.sync.aligned.m8n8.trans.b16", section="9.7.14.5.17", starts_block=True)
def move(b: Any, i: Instruction, m: Modifiers) -> None:
    """Transpose an 8 x 8 matrix of 16-bit elements across the warp."""
    write(b, i.operands[0], b.blocking(_move, b.operand(i, 1, "u32"), out="u32"), "u32")


def _move(warp: WarpLike, mask: np.ndarray, a: np.ndarray) -> np.ndarray | None:
    if whole_warp(warp, mask, "movmatrix") is None:
        return None
    return _transposed16(np.ascontiguousarray(a).view(np.uint8).reshape(8, 16))[0]
