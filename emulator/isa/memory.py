"""Loads, stores, atomics and reductions of single lanes (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.builders.lanes import FULL
from emulator.isa.operands import write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access
from emulator.memory.spaces import SHARED_WINDOW
from emulator.ptx.module import Address, Imm, Instruction, Operand, Sink, Symbol, Vector
from emulator.ptx.types import TYPES

SPACES = "const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster"
_HINTS = (
    "[.cop:ca|cg|cs|lu|cv|wb|wt][.nc][.l1:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate]"
    "[.l2:L2::evict_normal|L2::evict_first|L2::evict_last][.L2::cache_hint][.prefetch:L2::64B|L2::128B|L2::256B]"
)
_TYPES = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16|f32|f64"
_SEMANTICS = "[.sem:weak|volatile|relaxed|acquire|release|mmio][.scope:cta|cluster|gpu|sys]"


def is_shared(space: str | None) -> bool:
    """True for the shared spaces."""
    return space is not None and space.startswith("shared")


def address_of(b: Any, operand: Operand, space: str | None) -> Any:
    """An address operand as u32 (shared spaces) or u64 lanes."""
    if not isinstance(operand, Address):
        raise Unsupported(f"{operand} is not an address")
    wide = isinstance(operand.base, (Symbol, Imm)) or TYPES[operand.base.type].bits == 64
    if is_shared(space) and isinstance(operand.base, (Symbol, Imm)):
        wide = False
    value = b.source(operand, "u64" if wide else "u32")
    return b.resize(value, "u32" if is_shared(space) else "u64")


def items(operand: Operand) -> list[Operand]:
    """The elements of a vector operand, or the operand itself."""
    return list(operand.items) if isinstance(operand, Vector) else [operand]


@op(f"ld{_SEMANTICS}[.space:{SPACES}]{_HINTS}[.vec:v2|v4|v8].type:{_TYPES}", section="9.7.9.8")
def load(b: Any, i: Instruction, m: Modifiers) -> None:
    """Load one element or a vector of them per lane."""
    targets = items(i.operands[0])
    count, width = len(targets), TYPES[m["type"]].bytes
    if m["vec"] and int(m["vec"][1:]) != count:
        raise Unsupported(f"{m['vec']} needs {m['vec'][1:]} destinations, not {count}")
    address = address_of(b, i.operands[1], m["space"])
    if m["type"] == "b128":
        _load128(b, targets, address, m["space"])
        return
    raw = f"u{8 * width}"
    values = b.effect(_load, address, m["space"], width, count, out=[raw] * count)
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, Sink):
            write(b, target, value, "s" + raw[1:] if m["type"].startswith("s") else raw)


def _load128(b: Any, targets: list[Operand], address: Any, space: str | None) -> None:
    halves = b.effect(_load, address, space, 8, 2 * len(targets), out=["u64"] * 2 * len(targets))
    for k, target in enumerate(targets):
        if not isinstance(target, Sink):
            b.write128(target, halves[2 * k], halves[2 * k + 1])


def _load(warp: Any, mask: np.ndarray, address: np.ndarray, space: str | None, width: int, count: int) -> Any:
    """[count] raw arrays of 32 lanes; lanes outside the mask read as zero."""
    if mask is FULL:
        return _read(warp, address, None, space, width, count)
    lanes = np.flatnonzero(mask)
    found = _read(warp, address[lanes], lanes, space, width, count)
    out = np.zeros((count, 32), found.dtype)
    out[:, lanes] = found
    return out


def _read(
    warp: Any, address: np.ndarray, lanes: np.ndarray | None, space: str | None, width: int, count: int
) -> np.ndarray:
    if is_shared(space) or (space is None and int(address[0]) >= SHARED_WINDOW):
        return _read_shared(warp, warp.shared(address), lanes, width, count)
    if warp.bus.on:
        tell_access(warp, "global", "read", address, width * count, 0, lanes)
    if count == 1:
        return warp.memory.load(address, width, lanes)[None]
    return warp.memory.load_vector(address, width, count, lanes)


def _read_shared(warp: Any, address: np.ndarray, lanes: np.ndarray | None, width: int, count: int) -> np.ndarray:
    ranks = address >> np.uint32(24)
    first = int(ranks[0])
    if len(warp.cluster.ctas) == 1 or not (ranks != first).any():
        offsets = (address & np.uint32(0xFFFFFF)).astype(np.int64)
        memory = shared_memory(warp, first)
        if warp.bus.on:
            tell_access(warp, "shared", "read", offsets, width * count, first, lanes)
        if count == 1:
            return memory.load(offsets, width, lanes)[None]
        return memory.load_vector(offsets, width, count, lanes)
    out = np.zeros((count, address.size), f"u{width}")
    for rank in np.unique(ranks).tolist():
        pick = np.flatnonzero(ranks == rank)
        out[:, pick] = _read_shared(warp, address[pick], pick if lanes is None else lanes[pick], width, count)
    return out


def shared_memory(warp: Any, rank: int) -> Any:
    """Shared memory of a CTA of the warp's cluster."""
    return warp.cluster.ctas[rank].shared


@op(f"st{_SEMANTICS}[.space:{SPACES}]{_HINTS}[.vec:v2|v4|v8].type:{_TYPES}", section="9.7.9.11")
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Store one element or a vector of them per lane."""
    sources = items(i.operands[1])
    if m["vec"] and int(m["vec"][1:]) != len(sources):
        raise Unsupported(f"{m['vec']} needs {m['vec'][1:]} values, not {len(sources)}")
    address = address_of(b, i.operands[0], m["space"])
    if m["type"] == "b128":
        values = [half for s in sources for half in b.read128(s)]
    else:
        values = [b.source(s, f"u{TYPES[m['type']].bits}") for s in sources]
    b.effect(_store, address, m["space"], values)


def _store(warp: Any, mask: np.ndarray, address: np.ndarray, space: str | None, values: tuple[np.ndarray, ...]) -> None:
    lanes = None
    if mask is not FULL:
        lanes = np.flatnonzero(mask)
        address, values = address[lanes], tuple(v[lanes] for v in values)
    warp.progress()
    if is_shared(space) or (space is None and int(address[0]) >= SHARED_WINDOW):
        _write_shared(warp, warp.shared(address), lanes, values)
        return
    if warp.bus.on:
        width = values[0].itemsize * len(values)
        tell_access(warp, "global", "write", address, width, 0, lanes)
    if len(values) == 1:
        warp.memory.store(address, values[0], lanes)
    else:
        warp.memory.store_vector(address, np.stack(values), lanes)


def _write_shared(warp: Any, address: np.ndarray, lanes: np.ndarray | None, values: tuple[np.ndarray, ...]) -> None:
    ranks = address >> np.uint32(24)
    for rank in {int(ranks[0])} if len(warp.cluster.ctas) == 1 else np.unique(ranks).tolist():
        pick = slice(None) if len(warp.cluster.ctas) == 1 else np.flatnonzero(ranks == rank)
        offsets = (address[pick] & np.uint32(0xFFFFFF)).astype(np.int64)
        memory = shared_memory(warp, rank)
        who = lanes[pick] if lanes is not None else pick if isinstance(pick, np.ndarray) else None
        if warp.bus.on:
            width = values[0].itemsize * len(values)
            tell_access(warp, "shared", "write", offsets, width, rank, who)
        if len(values) == 1:
            memory.store(offsets, values[0][pick], who)
        else:
            memory.store_vector(offsets, np.stack([v[pick] for v in values]), who)
