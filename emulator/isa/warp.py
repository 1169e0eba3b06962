"""Operations in which the lanes of a warp meet (PTX ISA 9.7.9.6, 9.7.13.9 to 9.7.13.14).

Each begins a block: the handler first waits until all live lanes that the member mask names are here. Then the
executing lanes are cut into sets that name the same members, and every set acts by itself. A lane that is not named by
its own member mask is undefined in PTX and takes no part here: it reads zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from emulator.builders.lanes import FULL, LANE, canonical_f32, fmax, fmax_nan, fmin, fmin_nan, some
from emulator.events import Choice
from emulator.isa.operands import arity, both, immediate, write
from emulator.isa.table import Modifiers, op
from emulator.isa.warplike import WarpLike, ballot, first_lane
from emulator.ptx.module import Instruction

_ONE = np.uint32(1)
_ZERO_WORDS = np.zeros(32, np.uint32)
_LOWEST = LANE == 0
_EVERYBODY = b"\xff" * 128
"""A member mask of all ones in every lane, as bytes: by far the most frequent one."""


def _sets(mask: np.ndarray, members: np.ndarray) -> Iterator[np.ndarray]:
    """The executing lanes that name the same members, and are named themselves, set by set."""
    if members.tobytes() == _EVERYBODY:
        yield mask
        return
    left = mask & ((members >> LANE & _ONE) != 0)
    while some(left):
        chosen = left & (members == members[first_lane(left)])
        yield chosen
        left = left & ~chosen


# ---------------------------------------------------------------- shfl
def _source_lanes(mode: str, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per lane: the lane it reads, and whether that lane was in range (out of range it reads itself)."""
    offset, clamp, segment = b & 31, c & 31, c >> 8 & 31
    top = LANE & segment | clamp & ~segment
    if mode == "up":
        lane = LANE.astype(np.int64) - offset
        valid = lane >= top
    else:
        if mode == "down":
            lane = LANE + offset
        elif mode == "bfly":
            lane = LANE ^ offset
        else:
            lane = LANE & segment | offset & ~segment
        valid = lane <= top
    return np.where(valid, lane, LANE).astype(np.intp), valid


@cache
def _fixed_sources(mode: str, b: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    return _source_lanes(mode, *(np.full(32, x & 0xFFFFFFFF, np.uint32) for x in (b, c)))


def _exchanged(
    warp: WarpLike, mask: np.ndarray, a: np.ndarray, source: np.ndarray, valid: np.ndarray, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    if warp.converge(mask, members) is None:
        return None
    value = a.take(source)
    if mask is not FULL or members.tobytes() != _EVERYBODY:
        readable = mask.take(source) & ((members >> source.astype(np.uint32) & _ONE) != 0)
        value = np.where(readable, value, 0).astype(a.dtype)
    return value, valid


def _shuffle(
    warp: WarpLike, mask: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, members: np.ndarray, mode: str
) -> tuple[np.ndarray, np.ndarray] | None:
    source, valid = _source_lanes(mode, b, c)
    if warp.bus.on:
        warp.bus.publish(Choice(warp.id, source))
    return _exchanged(warp, mask, a, source, valid, members)


@op("shfl.sync.mode:up|down|bfly|idx.b32", section="9.7.9.6", starts_block=True)
def shuffle(b: Any, i: Instruction, m: Modifiers) -> None:
    """The value of another lane, and whether that lane was in range. A lane that does not execute reads as 0."""
    arity(i, 5)
    d, p = both(i.operands[0])
    a, members = b.operand(i, 1, "u32"), b.operand(i, 4, "u32")
    fixed = [immediate(o) for o in i.operands[2:4]]
    out = ("u32", "pred")
    if fixed[0] is not None and fixed[1] is not None:
        source, valid = _fixed_sources(m["mode"], fixed[0], fixed[1])
        value, valid = b.blocking(_exchanged, a, source, valid, members, out=out)
    else:
        operands = b.operand(i, 2, "u32"), b.operand(i, 3, "u32")
        value, valid = b.blocking(_shuffle, a, *operands, members, m["mode"], out=out)
    write(b, d, value)
    write(b, p, valid)


# ---------------------------------------------------------------- vote, match, elect
def _vote(warp: WarpLike, mask: np.ndarray, p: np.ndarray, members: np.ndarray, mode: str) -> np.ndarray | None:
    if warp.converge(mask, members) is None:
        return None
    result = np.zeros(32, np.bool_)
    for lanes in _sets(mask, members):
        yes, no = some(lanes & p), some(lanes & ~p)
        result[lanes] = {"all": not no, "any": yes, "uni": not (yes and no)}[mode]
    return result


def _ballot(warp: WarpLike, mask: np.ndarray, p: np.ndarray, members: np.ndarray) -> np.ndarray | None:
    if warp.converge(mask, members) is None:
        return None
    return _per_set(mask, members, lambda lanes: ballot(lanes & p))


def _per_set(mask: np.ndarray, members: np.ndarray, value: Callable[[np.ndarray], int]) -> np.ndarray:
    """One u32 for every set of lanes."""
    result = np.zeros(32, np.uint32)
    for lanes in _sets(mask, members):
        result[lanes] = value(lanes)
    return result


@op("vote.sync.mode:all|any|uni.pred", section="9.7.13.9", starts_block=True)
def vote(b: Any, i: Instruction, m: Modifiers) -> None:
    """A predicate over all members."""
    arity(i, 3)
    result = b.blocking(_vote, b.operand(i, 1, "pred"), b.operand(i, 2, "u32"), m["mode"], out="pred")
    write(b, i.operands[0], result)


@op("vote.sync.ballot.b32", section="9.7.13.9", starts_block=True)
def vote_ballot(b: Any, i: Instruction, m: Modifiers) -> None:
    """The predicates of all members as a word."""
    arity(i, 3)
    write(b, i.operands[0], b.blocking(_ballot, b.operand(i, 1, "pred"), b.operand(i, 2, "u32"), out="u32"))


def _match(
    warp: WarpLike, mask: np.ndarray, a: np.ndarray, members: np.ndarray, every: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    if warp.converge(mask, members) is None:
        return None
    words, agreed = np.zeros(32, np.uint32), np.zeros(32, np.bool_)
    for lanes in _sets(mask, members):
        equal = a[:, None] == np.where(lanes, a, a[first_lane(lanes)])[None, :]
        if every:
            agreed[lanes] = equal[first_lane(lanes)].all()
            words[lanes] = ballot(lanes) if agreed[first_lane(lanes)] else 0
        else:
            words[lanes] = np.packbits(equal & lanes, axis=1, bitorder="little").view(np.uint32)[lanes, 0]
    return words, agreed


@op("match.mode:any|all.sync.type:b32|b64", section="9.7.13.10", starts_block=True)
def match(b: Any, i: Instruction, m: Modifiers) -> None:
    """any: the members with the same value; all: the members if all values are equal, and whether they are."""
    arity(i, 3)
    a, members = b.operand(i, 1, "u" + m["type"][1:]), b.operand(i, 2, "u32")
    every = m["mode"] == "all"
    words, agreed = b.blocking(_match, a, members, every, out=("u32", "pred"))
    d, p = both(i.operands[0])
    write(b, d, words)
    if every:
        write(b, p, agreed)


def _elect(warp: WarpLike, mask: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    if warp.converge(mask, members) is None:
        return None
    if mask is FULL and members.tobytes() == _EVERYBODY:
        return _ZERO_WORDS, _LOWEST
    leader = _per_set(mask, members, first_lane)
    return leader, mask & (leader == LANE) & ((members >> LANE & _ONE) != 0)


@op("elect.sync", section="9.7.13.14", starts_block=True)
def elect(b: Any, i: Instruction, m: Modifiers) -> None:
    """The lowest executing member, and whether this lane is it."""
    arity(i, 2)
    leader, chosen = b.blocking(_elect, b.operand(i, 1, "u32"), out=("u32", "pred"))
    d, p = both(i.operands[0])
    write(b, d, leader)
    write(b, p, chosen)


@op("activemask.b32", section="9.7.13.11")
def active_mask(b: Any, i: Instruction, m: Modifiers) -> None:
    """The executing lanes as a word."""
    arity(i, 1)
    write(b, i.operands[0], b.pure("lane_word", "u32", b.mask()))


# ---------------------------------------------------------------- redux
_FOLDS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _reduce(warp: WarpLike, mask: np.ndarray, a: np.ndarray, members: np.ndarray, name: str) -> np.ndarray | None:
    if warp.converge(mask, members) is None:
        return None
    result = np.zeros_like(a)
    for lanes in _sets(mask, members):
        result[lanes] = _FOLDS[name].reduce(a[lanes])
    return result


def _reduce_float(
    warp: WarpLike, mask: np.ndarray, a: np.ndarray, members: np.ndarray, name: str, magnitude: bool, nan: bool
) -> np.ndarray | None:
    """The lanes folded in halves; lanes outside a set hold a copy of one inside."""
    if warp.converge(mask, members) is None:
        return None
    fold = {("min", False): fmin, ("min", True): fmin_nan, ("max", False): fmax, ("max", True): fmax_nan}[name, nan]
    values = np.abs(a.view(np.float32)) if magnitude else a.view(np.float32)
    result = np.zeros(32, np.uint32)
    for lanes in _sets(mask, members):
        rest = np.where(lanes, values, values[first_lane(lanes)])
        while rest.size > 1:
            rest = fold(rest[: rest.size // 2], rest[rest.size // 2 :])
        result[lanes] = canonical_f32(rest).view(np.uint32)[0]
    return result


@op(
    "redux.sync.op:add|min|max.type:u32|s32",
    "redux.sync.op:and|or|xor.type:b32",
    section="9.7.13.12",
    starts_block=True,
)
def reduce(b: Any, i: Instruction, m: Modifiers) -> None:
    """An integer reduction over all members."""
    arity(i, 3)
    a = b.operand(i, 1, "s32" if m["type"] == "s32" else "u32")
    write(b, i.operands[0], b.blocking(_reduce, a, b.operand(i, 2, "u32"), m["op"], out=a.type))


@op("redux.sync.op:min|max[.abs][.NaN].f32", section="9.7.13.12", starts_block=True)
def reduce_float(b: Any, i: Instruction, m: Modifiers) -> None:
    """A float reduction over all members; -0 < +0; NaN loses unless `.NaN`."""
    arity(i, 3)
    a, members = b.operand(i, 1, "u32"), b.operand(i, 2, "u32")
    result = b.blocking(_reduce_float, a, members, m["op"], m["abs"], m["NaN"], out="u32")
    write(b, i.operands[0], result)
