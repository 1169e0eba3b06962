"""atom and red: read-modify-write, lane after lane (PTX ISA 9.7.13.4, 9.7.13.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.isa.memory import address_of, is_shared, items, shared_memory
from emulator.isa.operands import write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access
from emulator.memory.spaces import SHARED_WINDOW
from emulator.ptx.module import Instruction, Sink
from emulator.ptx.types import TYPES
from emulator.units.reductions import reduce_values

_SEM, _SCOPE = "[.sem:relaxed|acquire|release|acq_rel]", "[.scope:cta|cluster|gpu|sys]"
_SPACE = "[.space:global|shared|shared::cta|shared::cluster]"
_WHERE = f"{_SEM}{_SCOPE}{_SPACE}"
# NVVM writes the scope behind the space, and ptxas takes it.
_TURNED = f"{_SEM}{_SPACE}{_SCOPE}"
_INTEGER = "op:add|min|max|and|or|xor|exch|inc|dec"
LEGAL = {
    "add": "u32 s32 u64 s64 f32 f64 f16 bf16 f16x2 bf16x2",
    "min": "u32 s32 u64 s64 f16 bf16 f16x2 bf16x2",
    "max": "u32 s32 u64 s64 f16 bf16 f16x2 bf16x2",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "exch": "b32 b64",
    "cas": "b16 b32 b64",
    "inc": "u32",
    "dec": "u32",
}
# Two's complement: a signed sum has the bits of the unsigned one.
_KIND = {("add", "s64"): "u64"}


_ATOM = f".{_INTEGER}|cas[.noftz][.L2::cache_hint].type:b16|b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64"


@op(f"atom{_WHERE}{_ATOM}", f"atom{_TURNED}{_ATOM}", section="9.7.13.4")
def atom(b: Any, i: Instruction, m: Modifiers) -> None:
    """Atomic operation; the old value is the result."""
    bits = _checked(m)
    sources = [b.operand(i, k, f"u{bits}") for k in range(2, 4 if m["op"] == "cas" else 3)]
    address = address_of(b, i.operands[1], m["space"])
    old = b.effect(_update, address, m["space"], m["op"], m["type"], sources, out=f"u{bits}")
    if not isinstance(i.operands[0], Sink):
        write(b, i.operands[0], old, f"u{bits}")


_RED = f".{_INTEGER}[.noftz][.L2::cache_hint][.vec:v2|v4|v8].type:b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64"


@op(f"red{_WHERE}{_RED}", f"red{_TURNED}{_RED}", section="9.7.13.5")
def red(b: Any, i: Instruction, m: Modifiers) -> None:
    """Atomic operation without a result; a vector updates consecutive elements one by one."""
    bits = _checked(m)
    if m["op"] == "exch":
        raise Unsupported("red has no exch")
    address = address_of(b, i.operands[0], m["space"])
    for k, source in enumerate(items(i.operands[1])):
        place = b.add(address, b.const(address.type, k * bits // 8)) if k else address
        b.effect(_update, place, m["space"], m["op"], m["type"], [b.source(source, f"u{bits}")], out=f"u{bits}")


def _checked(m: Modifiers) -> int:
    if m["type"] not in LEGAL[m["op"]].split():
        raise Unsupported(f"{m['op']} on {m['type']}; allowed: {LEGAL[m['op']]}")
    return TYPES[m["type"]].bits


def _update(
    warp: Any,
    mask: np.ndarray,
    address: np.ndarray,
    space: str | None,
    name: str,
    type: str,
    sources: tuple[np.ndarray, ...],
) -> np.ndarray:
    width = sources[0].itemsize
    out = np.zeros(32, sources[0].dtype)
    warp.progress()
    for lane in np.flatnonzero(mask).tolist():
        at = int(address[lane])
        shared = is_shared(space) or (space is None and at >= SHARED_WINDOW)
        rank, place = _place(at) if shared else (-1, at)
        view = _view(warp, rank, place, width, lane).view(out.dtype)
        out[lane] = view[0]
        view[0] = apply(name, type, out[lane], *(s[lane] for s in sources), shared=shared)
    if warp.bus.on:
        _tell(warp, address, np.flatnonzero(mask), space, width)
    return out


def _tell(warp: Any, address: np.ndarray, lanes: np.ndarray, space: str | None, width: int) -> None:
    """One record for every memory that the lanes touch."""
    touched: dict[int, list[tuple[int, int]]] = {}
    for lane in lanes.tolist():
        at = int(address[lane])
        shared = is_shared(space) or (space is None and at >= SHARED_WINDOW)
        rank, place = _place(at) if shared else (-1, at)
        touched.setdefault(rank, []).append((place, lane))
    for rank, pairs in touched.items():
        places, who = np.array(pairs).T
        kind = "global" if rank < 0 else "shared"
        tell_access(warp, kind, "atomic", places.astype(np.uint64), width, max(rank, 0), who)


def _place(address: int) -> tuple[int, int]:
    """Rank and offset of an address of shared memory, generic or not."""
    where = address - SHARED_WINDOW if address >= SHARED_WINDOW else address
    return where >> 24, where & 0xFFFFFF


def _view(warp: Any, rank: int, place: int, width: int, lane: int) -> np.ndarray:
    """The bytes that one lane updates, of shared memory or (rank -1) of global; checks bounds and alignment."""
    if rank >= 0:
        memory = shared_memory(warp, rank)
        memory.load(np.array([place]), width, np.array([lane]))
        return memory.bytes(place, width)
    warp.memory.load(np.array([place], np.uint64), width, np.array([lane]))
    return warp.memory.view(place, width, write=True)


def _double_sum(old: Any, x: Any) -> Any:
    """IEEE sum of two f64 patterns; a NaN operand comes out quiet, rather the first."""
    a, b = old.view(np.float64), x.view(np.float64)
    for pattern, value in ((old, a), (x, b)):
        if np.isnan(value):
            return pattern | np.uint64(1 << 51)
    return (a + b).view(np.uint64)


def apply(name: str, type: str, old: Any, x: Any, swap: Any = None, *, shared: bool = True) -> Any:
    """The new raw value of one element of `type`. In global memory the L2 cache adds: f32 with subnormals flushed, f64
    with NaN as `reduce_values` has it; in shared memory the multiprocessor does, by IEEE's rules (H200)."""
    if name == "cas":
        return swap if old == x else old
    if type in ("f16x2", "bf16x2"):
        half = type[:-2]
        low = apply(name, half, np.uint16(old & 0xFFFF), np.uint16(x & 0xFFFF))
        high = apply(name, half, np.uint16(old >> 16), np.uint16(x >> 16))
        return np.uint32(int(low) | int(high) << 16)
    if name == "exch":
        return x
    if name == "add" and type == "f64" and shared:
        return _double_sum(old, x)
    if name == "add" and type == "f32" and not shared:
        type = "f32ftz"
    kind = _KIND.get((name, type), type.replace("b", "u") if type[0] == "b" and type != "bf16" else type)
    return reduce_values(name, kind, np.array([old]), np.array([x]))[0]
