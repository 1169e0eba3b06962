"""Per-lane asynchronous copies: cp.async and st.async (PTX ISA 9.7.9.25.3, 9.7.9.12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction, MemoryFault
from emulator.isa.atomics import LEGAL, apply
from emulator.isa.bulk import commit_group, wait_groups
from emulator.isa.mbarrier import barrier_at
from emulator.isa.memory import address_of, items
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_operation, tell_signal, tell_step
from emulator.isa.warplike import WarpLike, ballot
from emulator.memory.shared import split_address
from emulator.ptx.module import Address, Instruction


@op(
    "cp.async.cop:ca|cg.space:shared|shared::cta.global[.L2::cache_hint][.prefetch:L2::64B|L2::128B|L2::256B]",
    section="9.7.9.25.3.1",
)
def copy(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy 4, 8 or 16 bytes per lane; a smaller source size zero-fills the rest."""
    size = b.operand(i, 2, "u32")
    given = b.operand(i, 3, "u32") if len(i.operands) > 3 and not m["L2_cache_hint"] else size
    b.effect(_copy, address_of(b, i.operands[0], "shared"), address_of(b, i.operands[1], "global"), size, given)


def _copy(
    warp: WarpLike, mask: np.ndarray, destination: np.ndarray, source: np.ndarray, size: np.ndarray, given: np.ndarray
) -> None:
    lanes = np.flatnonzero(mask).tolist()
    jobs = [(int(destination[k]), int(source[k]), int(size[k]), min(int(given[k]), int(size[k]))) for k in lanes]
    for to, start, n, _ in jobs:
        if n not in (4, 8, 16):
            raise IllegalInstruction(f"cp.async of {n} bytes; allowed: 4, 8, 16")
        if to % n or start % n:
            raise MemoryFault(f"cp.async of {n} bytes from {start:#x} to {to:#x}: both must be multiples of {n}")

    def complete(number: int) -> None:
        for to, start, n, present in jobs:
            rank, offset = split_address(to)
            target = warp.cluster.ctas[rank].shared.bytes(offset, n, "cp.async")
            target[present:] = 0
            if present:
                target[:present] = warp.memory.view(start, present, what="cp.async")
        if warp.bus.on:
            _tell_copy(warp, number, jobs, lanes)

    operation = warp.cluster.start(warp, "bulk", "cp.async", complete, lanes=ballot(mask), group="copy")
    warp.async_groups.open["copy"].append(operation)


def _tell_copy(warp: WarpLike, number: int, jobs: list[tuple[int, int, int, int]], lanes: list[int]) -> None:
    """Accesses by size, which may differ between lanes; cp.async belongs to the generic proxy."""
    who, table = np.array(lanes), np.array(jobs)
    for n in np.unique(table[:, 3]).tolist():
        if n:
            pick = table[:, 3] == n
            tell_operation(warp, number, "global", "read", table[pick, 1], n, 0, "generic", who[pick])
    keys = table[:, 2] << 8 | table[:, 0] >> 24
    for key in np.unique(keys).tolist():
        pick = keys == key
        places = table[pick, 0] & 0xFFFFFF
        tell_operation(warp, number, "shared", "write", places, key >> 8, key & 0xFF, "generic", who[pick])


@op("cp.async.commit_group", section="9.7.9.25.3.2")
def commit(b: Any, i: Instruction, m: Modifiers) -> None:
    """Close the open group of cp.async."""
    b.effect(commit_group, "copy")


@op("cp.async.wait_group", section="9.7.9.25.3.3")
def wait(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait until at most N groups of cp.async are pending."""
    b.effect(wait_groups, "copy", b.operand(i, 0, "u32"))


@op("cp.async.wait_all", section="9.7.9.25.3.3")
def wait_all(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait for every cp.async of the warp, committed or not."""
    b.effect(commit_group, "copy")
    b.effect(wait_groups, "copy", b.const("u32", 0))


@op("cp.async.mbarrier.arrive[.noinc][.space:shared|shared::cta].b64", section="9.7.13.15.14")
def arrive(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive on an mbarrier when the lane's earlier cp.async have completed."""
    b.effect(_arrive, address_of(b, i.operands[0], "shared"), m["noinc"])


def _arrive(warp: WarpLike, mask: np.ndarray, address: np.ndarray, noinc: bool) -> None:
    groups = warp.async_groups
    before = [o for g in (*groups.committed["copy"], groups.open["copy"]) for o in g if not o.done]
    shared = warp.shared(address)
    found = [barrier_at(warp, int(shared[k])) for k in np.flatnonzero(mask).tolist()]
    barriers = [barrier for _, barrier in found]
    if not noinc:
        for barrier in barriers:
            barrier.pending += 1

    def complete(number: int) -> None:
        for operation in before:
            if not operation.done:
                warp.cluster.in_flight.complete_through(operation)
        for key, barrier in found:
            tell_signal(warp, number, "arrive", key, barrier, 1)

    if warp.bus.on:
        tell_step(warp, "cp.async.mbarrier.arrive", found[0][0], int(noinc), mask=mask)
    warp.cluster.start(warp, "bulk", "cp.async.mbarrier.arrive", complete, None, tuple(barriers), lanes=ballot(mask))


@op(
    "st.async[.sem:weak|relaxed][.scope:cluster][.space:shared::cluster].mbarrier::complete_tx::bytes[.vec:v2|v4]"
    ".type:b32|b64|u32|u64|s32|s64|f32|f64",
    section="9.7.9.12",
)
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Store to a peer's shared memory and signal its barrier."""
    if not isinstance(i.operands[2], Address):
        raise Unsupported("st.async needs a barrier address")
    values = [b.source(v, f"u{m['type'][1:]}") for v in items(i.operands[1])]
    b.effect(_store, address_of(b, i.operands[0], "shared"), values, address_of(b, i.operands[2], "shared"))


def _store(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, values: tuple[np.ndarray, ...], barrier: np.ndarray
) -> None:
    for lane in np.flatnonzero(mask).tolist():
        rank, offset = split_address(int(address[lane]))
        data = np.concatenate([v[lane : lane + 1] for v in values]).view(np.uint8)
        if offset % data.size:
            raise MemoryFault(f"st.async at shared offset {offset:#x}: a multiple of {data.size} is needed")
        key, signal = barrier_at(warp, int(barrier[lane]))

        def complete(
            number: int,
            rank: int = rank,
            offset: int = offset,
            data: np.ndarray = data,
            key: tuple[int, int] = key,
            signal: Any = signal,
        ) -> None:
            warp.cluster.ctas[rank].shared.bytes(offset, data.size, "st.async")[:] = data
            if warp.bus.on:
                tell_operation(warp, number, "shared", "write", np.array([offset]), data.size, rank)
            tell_signal(warp, number, "complete_tx", key, signal, data.size)

        warp.cluster.start(warp, "bulk", f"st.async to {offset:#x}", complete, None, (signal,), lanes=1 << lane)


@op(
    "red.async.relaxed.cluster[.space:shared::cluster].mbarrier::complete_tx::bytes.op:inc|dec|min|max|add|and|or|xor"
    ".type:u32|s32|u64|b32",
    section="9.7.13.7",
)
def reduce(b: Any, i: Instruction, m: Modifiers) -> None:
    """Atomic operation on a peer's shared memory that signals its barrier."""
    name, type = m["op"], m["type"]
    if type not in LEGAL[name].split() or (type == "u64" and name != "add"):
        raise Unsupported(f"red.async {name} on {type}")
    value = b.operand(i, 1, f"u{type[1:]}")
    places = [address_of(b, i.operands[k], "shared") for k in (0, 2)]
    b.effect(_reduce, *places, value, name, type)


def _reduce(
    warp: WarpLike,
    mask: np.ndarray,
    address: np.ndarray,
    barrier: np.ndarray,
    value: np.ndarray,
    name: str,
    type: str,
) -> None:
    for lane in np.flatnonzero(mask).tolist():
        rank, offset = split_address(int(address[lane]))
        if offset % value.itemsize:
            raise MemoryFault(f"red.async at {offset:#x}: a multiple of {value.itemsize} is needed")
        target = warp.cluster.ctas[rank].shared.bytes(offset, value.itemsize, "red.async").view(value.dtype)
        key, signal = barrier_at(warp, int(barrier[lane]))

        def complete(
            number: int,
            target: Any = target,
            x: Any = value[lane],
            place: tuple[int, int] = (rank, offset),
            key: tuple[int, int] = key,
            signal: Any = signal,
        ) -> None:
            target[0] = apply(name, type, target[0], x)
            if warp.bus.on:
                tell_operation(warp, number, "shared", "atomic", np.array([place[1]]), target.nbytes, place[0])
            tell_signal(warp, number, "complete_tx", key, signal, target.nbytes)

        warp.cluster.start(warp, "bulk", f"red.async to {offset:#x}", complete, None, (signal,), lanes=1 << lane)
