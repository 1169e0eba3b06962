"""mbarrier objects in shared memory (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import MemoryFault
from emulator.isa.memory import address_of
from emulator.isa.operands import write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_step
from emulator.isa.warplike import WarpLike, alike, ballot, first_lane, lanes_in, word_of
from emulator.memory.shared import split_address
from emulator.ptx.module import Address, Instruction, Sink
from emulator.units.mbarrier import Mbarrier, pending_count

_SPACE = "[.space:shared|shared::cta|shared::cluster]"
_ORDER = "[.sem:release|relaxed][.scope:cta|cluster]"


def barrier_at(warp: WarpLike, address: int) -> tuple[tuple[int, int], Mbarrier]:
    """((rank, offset), barrier) of a shared::cluster address."""
    rank, offset = split_address(address)
    return (rank, offset), warp.cluster.ctas[rank].mbarrier(offset)


def _lanes(warp: WarpLike, mask: np.ndarray, address: np.ndarray) -> Iterator[tuple[int, tuple[int, int], Mbarrier]]:
    shared = warp.shared(address)
    for lane in lanes_in(mask):
        yield lane, *barrier_at(warp, int(shared[lane]))


def _tell(
    warp: WarpLike, what: str, key: tuple[int, int], detail: int, lanes: int, barrier: Mbarrier, before: int
) -> None:
    """A step on a barrier that had completed `before` phases."""
    warp.progress()
    if warp.bus.on:
        ended = barrier.completions != before
        tell_step(warp, what, key, detail, lanes=lanes, phase=before, ended=ended)


@op(f"mbarrier.init{_SPACE}.b64", section="9.7.13.15.9")
def init(b: Any, i: Instruction, m: Modifiers) -> None:
    """Make an mbarrier that expects a number of arrivals per phase."""
    b.effect(_init, address_of(b, i.operands[0], m["space"]), b.operand(i, 1, "u32"))


def _init(warp: WarpLike, mask: np.ndarray, address: np.ndarray, count: np.ndarray) -> None:
    shared = warp.shared(address)
    for lane in lanes_in(mask):
        rank, offset = split_address(int(shared[lane]))
        cta = warp.cluster.ctas[rank]
        cta.shared.check_range(offset, 8, "mbarrier.init")
        if offset % 8:
            raise MemoryFault(f"mbarrier.init at shared offset {offset:#x}: a multiple of 8 is needed")
        cta.mbarriers[offset] = Mbarrier(int(count[lane]), offset)
        _tell(warp, "mbarrier.init", (rank, offset), int(count[lane]), 1 << lane, cta.mbarriers[offset], 0)


@op(f"mbarrier.inval{_SPACE}.b64", section="9.7.13.15.10")
def inval(b: Any, i: Instruction, m: Modifiers) -> None:
    """End an mbarrier; its word becomes visible in memory."""
    b.effect(_inval, address_of(b, i.operands[0], m["space"]))


def _inval(warp: WarpLike, mask: np.ndarray, address: np.ndarray) -> None:
    for lane, key, barrier in list(_lanes(warp, mask, address)):
        cta = warp.cluster.ctas[key[0]]
        cta.shared.bytes(key[1], 8)[:] = np.array([barrier.word()], np.uint64).view(np.uint8)
        cta.mbarriers.pop(key[1], None)
        _tell(warp, "mbarrier.inval", key, 0, 1 << lane, barrier, barrier.completions)


@op(f"mbarrier.kind:arrive|arrive_drop[.expect_tx][.noComplete]{_ORDER}{_SPACE}.b64", section="9.7.13.15.13")
@op(f"mbarrier.kind:arrive|arrive_drop.expect_tx{_ORDER}{_SPACE}.b64", section="9.7.13.15.13")
def arrive(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive; with expect_tx the operand is a byte count and the arrival count is one."""
    operands = list(i.operands)
    target = None if isinstance(operands[0], Address) else operands.pop(0)
    expect = ".expect_tx" in i.opcode
    number = b.source(operands[1], "u32") if len(operands) > 1 else b.const("u32", 1)
    address = address_of(b, operands[0], m["space"])
    if m["kind"] == "arrive" and not expect and (target is None or isinstance(target, Sink)):
        b.effect(_arrive_together, address, number)
        return
    token = b.effect(_arrive, address, number, m["kind"], expect, not m.get("noComplete"), out="u64")
    if target is not None and not isinstance(target, Sink):
        write(b, target, token, "u64")


def _arrive_together(warp: WarpLike, mask: np.ndarray, address: np.ndarray, number: np.ndarray) -> None:
    """Arrivals whose tokens nobody reads: the lanes of one barrier arrive in one step."""
    shared = warp.shared(address)[mask]
    counts = number[mask]
    for place in np.unique(shared).tolist() if (shared != shared[0]).any() else [int(shared[0])]:
        key, barrier = barrier_at(warp, place)
        total, before = int(counts[shared == place].sum()), barrier.completions
        barrier.arrive(total)
        lanes = word_of(np.flatnonzero(mask)[shared == place].tolist()) if warp.bus.on else 0
        _tell(warp, "mbarrier.arrive", key, total, lanes, barrier, before)


def _arrive(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, number: np.ndarray, kind: str, expect: bool, complete: bool
) -> np.ndarray:
    tokens = np.zeros(32, np.uint64)
    told: list[tuple[Any, ...]] = []
    for lane, key, barrier in _lanes(warp, mask, address):
        n, before = int(number[lane]), barrier.completions
        if expect and kind == "arrive":
            tokens[lane] = barrier.arrive_expect_tx(n)
        elif expect:
            tokens[lane] = barrier.arrive_drop(1, n)
        elif kind == "arrive":
            tokens[lane] = barrier.arrive(n, complete)
        else:
            tokens[lane] = barrier.arrive_drop(n, 0, complete)
        told.append((key, before, barrier.completions != before, lane, n))
    warp.progress()
    if warp.bus.on:
        _tell_arrivals(warp, f"mbarrier.{kind}" + (".expect_tx" if expect else ""), told)
    return tokens


def _tell_arrivals(warp: WarpLike, what: str, told: list[tuple[Any, ...]]) -> None:
    """Arrivals (key, phase, ended, lane, number): those of consecutive lanes on one phase in one record."""
    while told:
        key, phase = told[0][:2]
        last = next((k for k, t in enumerate(told) if t[2] or t[:2] != (key, phase)), len(told) - 1)
        count = last + 1 if told[last][:2] == (key, phase) else last
        part, told = told[:count], told[count:]
        lanes, total, ended = word_of(t[3] for t in part), sum(t[4] for t in part), part[-1][2]
        tell_step(warp, what, key, total, lanes=lanes, phase=phase, ended=ended)


@op(f"mbarrier.kind:expect_tx|complete_tx[.relaxed][.scope:cta|cluster]{_SPACE}.b64", section="9.7.13.15.11")
def tx(b: Any, i: Instruction, m: Modifiers) -> None:
    """Change the number of bytes that the current phase still waits for."""
    b.effect(_tx, address_of(b, i.operands[0], m["space"]), b.operand(i, 1, "u32"), m["kind"])


def _tx(warp: WarpLike, mask: np.ndarray, address: np.ndarray, number: np.ndarray, kind: str) -> None:
    for lane, key, barrier in _lanes(warp, mask, address):
        n, before = int(number[lane]), barrier.completions
        barrier.expect_tx(n) if kind == "expect_tx" else barrier.complete_tx(n)
        _tell(warp, f"mbarrier.{kind}", key, n, 1 << lane, barrier, before)


@op(
    f"mbarrier.kind:try_wait|test_wait[.parity][.sem:acquire|relaxed][.scope:cta|cluster]{_SPACE}.b64",
    section="9.7.13.15.16",
    starts_block=True,
)
def wait(b: Any, i: Instruction, m: Modifiers) -> None:
    """Has the phase completed? try_wait suspends the warp; it may give up and answer False when nothing else can
    run."""
    phase = b.operand(i, 2, "u32" if m["parity"] else "u64")
    address = address_of(b, i.operands[1], m["space"])
    done = b.blocking(_wait, address, phase, m["parity"], m["kind"] == "try_wait", out="pred")
    write(b, i.operands[0], done, "pred")


def _wait(warp: WarpLike, mask: np.ndarray, address: np.ndarray, phase: np.ndarray, parity: bool, suspend: bool) -> Any:
    shared = warp.shared(address)
    lane = first_lane(mask)
    uniform = alike(shared, mask) and alike(phase, mask)
    answers = np.zeros(32, np.bool_)
    for n in [lane] if uniform else np.flatnonzero(mask).tolist():
        key, barrier = barrier_at(warp, int(shared[n]))
        wanted = int(phase[n])
        answers[n] = barrier.test_parity(wanted) if parity else barrier.test_token(wanted)
        if answers[n] and warp.bus.on:
            lanes = ballot(mask) if uniform else 1 << n
            parity_bit = (wanted if parity else wanted >> 63) & 1
            tell_step(warp, "mbarrier.wait", key, parity_bit, lanes=lanes, phase=barrier.completions)
    if uniform:
        answers[:] = answers[lane]
    if answers[lane] or answers.any():
        return answers
    if suspend and not warp.give_up:
        which = f"parity {wanted & 1}" if parity else "a token"
        return warp.wait(f"mbarrier {key[1]:#x} of CTA {key[0]}, {which}", barrier)
    # A polling loop must let the others run, or it would spin for the whole slice.
    warp.give_up, warp.yielding = False, True
    return answers


@op("mbarrier.pending_count.b64", section="9.7.13.15.17")
def pending(b: Any, i: Instruction, m: Modifiers) -> None:
    """Pending arrivals from a token."""
    write(b, i.operands[0], b.effect(_pending, b.operand(i, 1, "u64"), out="u32"), "u32")


def _pending(warp: WarpLike, mask: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.array([pending_count(int(t)) for t in tokens], np.uint32)


@op("mapa[.space:shared::cluster].type:u32|u64", section="9.7.9.23")
def mapa(b: Any, i: Instruction, m: Modifiers) -> None:
    """The address of the same variable in another CTA of the cluster."""
    type = m["type"]
    source = i.operands[1]
    base = address_of(b, source, m["space"]) if isinstance(source, Address) else b.source(source, type)
    rank = b.resize(b.operand(i, 2, "u32"), type)
    keep = 0xFFFFFF if type == "u32" else 0xFFFF_FFFF_00FF_FFFF
    moved = b.or_(b.and_(base, b.const(type, keep)), b.shl(rank, b.const("u32", 24)))
    write(b, i.operands[0], moved, type)


@op("getctarank[.space:shared::cluster].type:u32|u64", section="9.7.9.24")
def getctarank(b: Any, i: Instruction, m: Modifiers) -> None:
    """The rank of the CTA that owns a shared::cluster address."""
    source = b.operand(i, 1, m["type"])
    rank = b.and_(b.shr(source, b.const("u32", 24)), b.const(m["type"], 0xFF))
    write(b, i.operands[0], b.resize(rank, "u32"), "u32")


@op("nanosleep.u32", section="9.7.13.13")
def nanosleep(b: Any, i: Instruction, m: Modifiers) -> None:
    """Let others run; the warp's clock moves on."""
    b.effect(_nanosleep, b.operand(i, 0, "u32"))


def _nanosleep(warp: WarpLike, mask: np.ndarray, duration: np.ndarray) -> None:
    warp.yielding = True
    warp.slept += int(duration[int(mask.argmax())])


@op(
    "griddepcontrol.kind:wait|launch_dependents",
    "setmaxnreg.kind:inc|dec.sync.aligned.u32",
    "prefetch[.space:global|local].level:L1|L2|L2::evict_last|L2::evict_normal",
    "prefetchu.L1",
    "prefetch[.space:param|const].tensormap",
    "pmevent[.mask]",
    "applypriority.global.level:L2::evict_normal",
    "discard.global.level:L2",
    section="9.7",
    no_effect=True,
)
def nothing(b: Any, i: Instruction, m: Modifiers) -> None:
    """No functional effect: scheduling hints, register reallocation, prefetches; launches run one after another."""


@op(
    "createpolicy.kind:fractional|range|cvt[.level:L2][.prio:L2::evict_last|L2::evict_first|L2::evict_normal|L2::evict_unchanged]"
    "[.L2::evict_unchanged].b64",
    section="9.7.9.17",
)
def createpolicy(b: Any, i: Instruction, m: Modifiers) -> None:
    """A cache policy has no functional effect; its encoding is opaque and 0 here."""
    if len(i.operands) < 1:
        raise Unsupported("createpolicy needs a destination")
    write(b, i.operands[0], b.const("u64", 0), "u64")
