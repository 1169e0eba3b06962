"""Bulk copies and their groups (PTX ISA 9.7.9.25.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.isa.memory import address_of, shared_memory
from emulator.isa.operands import immediate
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access, tell_group, tell_operation, tell_signal
from emulator.isa.warplike import WarpLike, lanes_in, multicast_ranks
from emulator.memory.shared import split_address
from emulator.ptx.module import Instruction
from emulator.units import bulk as unit


@op(
    "cp.async.bulk.dst:shared::cta|shared::cluster.global.mbarrier::complete_tx::bytes"
    "[.multicast::cluster][.L2::cache_hint]",
    section="9.7.9.25.4.1",
)
def load(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy bytes from global to shared memory."""
    multicast = b.operand(i, 4, "u16") if m["multicast_cluster"] else None
    _issue_load(b, i, "global", multicast)


@op("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", section="9.7.9.25.4.1")
def peer(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy bytes from this CTA's shared memory to a peer's."""
    _issue_load(b, i, "shared", None)


_PEER_REDUCTION = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"


@op(
    f"{_PEER_REDUCTION}.op:add.type:u32|s32|u64",
    f"{_PEER_REDUCTION}.op:min|max.type:u32|s32",
    f"{_PEER_REDUCTION}.op:inc|dec.type:u32",
    f"{_PEER_REDUCTION}.op:and|or|xor.type:b32",
    section="9.7.9.25.4.2",
)
def reduce_peer(b: Any, i: Instruction, m: Modifiers) -> None:
    """Reduce elements of this CTA's shared memory into a peer's."""
    _issue_load(b, i, "shared", None, (m["op"], m["type"]))


def _issue_load(b: Any, i: Instruction, space: str, multicast: Any, reduction: tuple[str, ...] = ()) -> None:
    places = [address_of(b, i.operands[k], s) for k, s in ((0, "shared"), (1, space), (3, "shared"))]
    b.effect(_load, *places, b.operand(i, 2, "u32"), multicast, space, reduction)


def _load(
    warp: WarpLike,
    mask: np.ndarray,
    destination: np.ndarray,
    source: np.ndarray,
    barrier: np.ndarray,
    size: np.ndarray,
    multicast: np.ndarray | None,
    space: str,
    reduction: tuple[str, ...],
) -> None:
    for lane in lanes_in(mask):
        rank, offset = split_address(int(destination[lane]))
        signal_rank, signal = split_address(int(barrier[lane]))
        targets = [(rank, signal_rank)]
        if multicast is not None:
            targets = [(r, r) for r in multicast_ranks(warp, int(multicast[lane]))]
        _start_load(warp, lane, int(source[lane]), int(size[lane]), space, offset, signal, targets, reduction)


def _start_load(
    warp: WarpLike,
    lane: int,
    start: int,
    size: int,
    space: str,
    offset: int,
    signal: int,
    targets: list[tuple[int, int]],
    reduction: tuple[str, ...],
) -> None:
    ctas = warp.cluster.ctas
    barriers = [ctas[r].mbarrier(signal) for _, r in targets]

    def complete(number: int) -> None:
        for (rank, signalled), barrier in zip(targets, barriers, strict=True):
            owner, at = split_address(start)
            if space == "global":
                unit.load(warp.memory, start, ctas[rank].shared, offset, size)
            else:
                unit.peer(ctas[owner].shared, at, ctas[rank].shared, offset, size, *reduction)
            if warp.bus.on:
                place = start if space == "global" else at
                tell_operation(warp, number, space, "read", np.array([place]), size, 0 if space == "global" else owner)
                kind = "atomic" if reduction else "write"
                tell_operation(warp, number, "shared", kind, np.array([offset]), size, rank)
            tell_signal(warp, number, "complete_tx", (signalled, signal), barrier, size)

    what = f"bulk copy of {size} bytes to {offset:#x}"
    warp.cluster.start(warp, "bulk", what, complete, None, tuple(barriers), lanes=1 << lane)


@op("cp.async.bulk.global.shared::cta.bulk_group[.L2::cache_hint]", section="9.7.9.25.4.1")
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy bytes from shared to global memory; belongs to the open bulk group."""
    _issue_store(b, i, unit.store, ())


@op("cp.async.bulk.global.shared::cta.bulk_group[.L2::cache_hint].cp_mask", section="9.7.9.25.4.1")
def store_some(b: Any, i: Instruction, m: Modifiers) -> None:
    """The same for those bytes of every 16 that a mask chooses."""
    _issue_store(b, i, unit.store_some, (), b.operand(i, len(i.operands) - 1, "u16"))


@op(
    "cp.reduce.async.bulk.global.shared::cta.bulk_group[.L2::cache_hint].op:add|min|max|and|or|xor|inc|dec[.noftz]"
    ".type:u32|s32|u64|s64|b32|b64|f16|bf16|f32|f64",
    section="9.7.9.25.4.2",
)
def reduce(b: Any, i: Instruction, m: Modifiers) -> None:
    """Reduce elements from shared into global memory; belongs to the open bulk group."""
    _issue_store(b, i, unit.reduce, (m["op"], m["type"]))


def _issue_store(b: Any, i: Instruction, write: Callable[..., None], more: tuple[str, ...], chosen: Any = None) -> None:
    target, source = address_of(b, i.operands[0], "global"), address_of(b, i.operands[1], "shared")
    b.effect(_store, target, source, b.operand(i, 2, "u32"), write, more, chosen)


def _store(
    warp: WarpLike,
    mask: np.ndarray,
    destination: np.ndarray,
    source: np.ndarray,
    size: np.ndarray,
    write: Callable[..., None],
    more: tuple[Any, ...],
    chosen: np.ndarray | None,
) -> None:
    for lane in lanes_in(mask):
        rank, offset = split_address(int(source[lane]))
        n = int(size[lane])
        place = (warp.cluster.ctas[rank].shared, offset, warp.memory, int(destination[lane]), n)
        rest = more if chosen is None else (int(chosen[lane]),)

        def complete(number: int, place: Any = place, rest: Any = rest, rank: int = rank) -> None:
            if warp.bus.on:
                tell_operation(warp, number, "shared", "read", np.array([place[1]]), place[4], rank)
                kind = "atomic" if write is unit.reduce else "write"
                tell_operation(warp, number, "global", kind, np.array([place[3]]), place[4])
            write(*place, *rest)

        what = f"bulk store of {n} bytes from {offset:#x}"
        operation = warp.cluster.start(warp, "bulk", what, complete, lanes=1 << lane, group="bulk")
        warp.async_groups.open["bulk"].append(operation)


@op("cp.async.bulk.commit_group", section="9.7.9.25.4.3")
def commit(b: Any, i: Instruction, m: Modifiers) -> None:
    """Close the open bulk group."""
    b.effect(commit_group, "bulk")


@op("cp.async.bulk.wait_group[.read]", section="9.7.9.25.4.4")
def wait(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait until at most N bulk groups are pending; reading and completing are one step here."""
    b.effect(wait_groups, "bulk", b.operand(i, 0, "u32"), *([True] if ".read" in i.opcode else []))


def commit_group(warp: WarpLike, mask: np.ndarray, kind: str) -> None:
    """Close the open group of a kind of copy."""
    warp.async_groups.commit(kind)
    if warp.bus.on:
        tell_group(warp, mask, "commit_group", kind)


def wait_groups(warp: WarpLike, mask: np.ndarray, kind: str, allowed: np.ndarray, reading: bool = False) -> None:
    """Complete all but the `allowed` youngest groups now: nothing has to be waited for longer than that."""
    left = int(allowed[int(mask.argmax())])
    for operation in warp.async_groups.pending(kind, left):
        if not operation.done:
            warp.cluster.in_flight.complete_through(operation)
    if warp.bus.on:
        tell_group(warp, mask, "wait_group.read" if reading else "wait_group", kind, left)


@op("st.bulk[.weak][.space:shared|shared::cta]", section="9.7.9.13")
def fill(b: Any, i: Instruction, m: Modifiers) -> None:
    """Zero bytes of shared memory."""
    if immediate(i.operands[2]) != 0:
        raise Unsupported(f"initial value {i.operands[2]}; the only one is 0")
    b.effect(_fill, address_of(b, i.operands[0], m["space"]), b.operand(i, 1, "u64"))


def _fill(warp: WarpLike, mask: np.ndarray, address: np.ndarray, size: np.ndarray) -> None:
    places = warp.shared(address)
    for lane in lanes_in(mask):
        rank, offset = split_address(int(places[lane]))
        nbytes = int(size[lane])
        if nbytes % 8 or nbytes > 1 << 24:
            raise IllegalInstruction(f"st.bulk of {nbytes} bytes: a multiple of 8 up to {1 << 24} is needed")
        shared_memory(warp, rank).bytes(offset, nbytes, "st.bulk")[:] = 0
        warp.progress()
        if warp.bus.on:
            tell_access(warp, "shared", "write", np.array([offset]), nbytes, rank, np.array([lane]))
