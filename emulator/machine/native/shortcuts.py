"""Native code in front of handlers: printed where a handler would be called, it does the work if nothing is unusual.

A shortcut gets the builder, the handler's arguments and the places of its results; it answers None where it does not
apply. It may print straight code only, and must not make values whole or canonical: what it prints is not seen by code
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emulator.builders.llvm_values import LANES, VECTOR, Kept, Shortcut, W
from emulator.builders.sources import WIDTH
from emulator.isa import barrier, mbarrier, memory, tcgen05, warp

_EVERYBODY = 0xFFFFFFFF
_L32, _L64, _MASK = (f"<{LANES} x {kind}>" for kind in ("i32", "i64", "i1"))


def _place(b: Any, kept: Kept) -> str:
    return str(b.address("%scratch", kept.offset))


# ---------------------------------------------------------------- loads and stores
def _called(b: Any, name: str, address: W, more: Sequence[tuple[str, str]]) -> tuple[str, Kept, int]:
    """A call of a function that calls Python itself: what it answers, and where it leaves address and lanes then."""
    kept, guard = b.frame.reserve(address.type), b.frame.reserve("pred").offset
    number = len(b.frame.effects)
    back = (("i32", str(number)), ("i64", str(kept.offset)), ("i64", str(guard)))
    return b.call(name, "i1", ("ptr", "%state"), address, ("i32", b.mask_word()), *more, *back), kept, guard


def _access(b: Any, kind: str, space: str | None, address: W, width: int, count: int, buffer: Kept) -> Any:
    where = "shared" if address.type == "u32" else "generic" if space is None else "global"
    more = (("i64", str(count)), ("i32", str(width * count)), ("ptr", _place(b, buffer)))
    return _called(b, f"{kind}_{where}_{width}", address, more)


def _load(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, space, width, count = arguments
    if memory.is_shared(space) != (address.type == "u32"):
        return None
    done, kept, guard = _access(b, "load", space, address, width, count, results[0])
    return Shortcut(done, (kept, space, width, count), guard)


def _store(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, space, values = arguments
    if memory.is_shared(space) != (address.type == "u32"):
        return None
    written = tuple(b.keep(v) for v in values)
    width = WIDTH[values[0].type] // 8
    done, kept, guard = _access(b, "store", space, address, width, len(written), written[0])
    return Shortcut(done, (kept, space, written), guard)


# ---------------------------------------------------------------- tensor memory
def _tensor(b: Any, name: str, address: W, index: Any, buffer: Kept) -> tuple[str, Kept, int]:
    where = "null"
    if not index.straight:
        words = (index.lane * 512 + index.column).ravel().tolist()
        text = f"[{len(words)} x i32] [{', '.join(f'i32 {w}' for w in words)}], align 64"
        known = b.frame.globals
        where = next((f"@{label}" for label, value in known.items() if value == text), f"@map.{len(known)}")
        known[where[1:]] = text
    more = (("i32", str(index.columns)), ("ptr", where), ("i64", str(index.registers)), ("ptr", _place(b, buffer)))
    return _called(b, name, address, more)


def _tensor_load(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, index = arguments
    if index.packed:
        return None
    done, kept, guard = _tensor(b, "load_tensor", address, index, results[0])
    return Shortcut(done, (kept, index), guard)


def _tensor_store(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, index, values = arguments
    if index.packed:
        return None
    written = tuple(b.keep(v) for v in values)
    done, kept, guard = _tensor(b, "store_tensor", address, index, written[0])
    return Shortcut(done, (kept, index, written), guard)


# ---------------------------------------------------------------- mbarriers
def _barrier(b: Any, name: str, address: W, *more: Any) -> str:
    return str(b.call(name, "i1", ("ptr", "%state"), address, ("i32", b.mask_word()), *more))


def _wait(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, phase, parity, _ = arguments
    if address.type != "u32":
        return None
    wide = f"zext {b.text(phase)} to {_L64}" if phase.type == "u32" else f"or {b.text(phase)}, zeroinitializer"
    done = _barrier(b, "barrier_wait", address, (_L64, b.raw(wide)), ("i1", str(bool(parity)).lower()))
    b.store(W("splat (i1 true)", "pred"), "%scratch", results[0].offset)
    return Shortcut(done, arguments)


def _arrive_together(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, number = arguments
    return Shortcut(_barrier(b, "barrier_arrive", address, number), arguments) if address.type == "u32" else None


def _change(b: Any, address: W, number: W, sign: int, arrive: bool, out: str) -> str:
    more = (("i32", str(sign)), ("i1", str(arrive).lower()), ("ptr", out))
    return _barrier(b, "barrier_change", address, number, *more)


def _arrive(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, number, kind, expect, complete = arguments
    if address.type != "u32" or kind != "arrive" or not complete:
        return None
    out = _place(b, results[0])
    if expect:
        return Shortcut(_change(b, address, number, -1, True, out), arguments)
    return Shortcut(_barrier(b, "barrier_arrive_tokens", address, number, ("ptr", out)), arguments)


def _tx(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    address, number, kind = arguments
    if address.type != "u32":
        return None
    return Shortcut(_change(b, address, number, -1 if kind == "expect_tx" else 1, False, "null"), arguments)


# ---------------------------------------------------------------- lanes that meet
def _whole(b: Any) -> str:
    """All live lanes are here."""
    return str(b.raw(f"icmp ne i64 {b.word('whole')}, 0"))


def _named(members: Any) -> bool:
    return isinstance(members, W) and members.constant == _EVERYBODY


def _put(b: Any, kept: Kept, name: str) -> None:
    b.store(W(name, kept.type), "%scratch", kept.offset)


def _put_scalar(b: Any, kept: Kept, scalar: str) -> None:
    if kept.type == "pred":
        chosen = f"select i1 {scalar}, {_MASK} splat (i1 true), {_MASK} zeroinitializer"
        _put(b, kept, b.raw(chosen))
    else:
        _put(b, kept, b.splat(scalar, kept.type).name)


def _lead(b: Any) -> str:
    return str(b.raw(f"call i32 @llvm.cttz.i32(i32 {b.mask_word()}, i1 false)"))


def _elect(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    if not _named(arguments[0]):
        return None
    lead = _lead(b)
    _put_scalar(b, results[0], lead)
    low = b.raw(f"and i32 {lead}, 31")
    chosen = b.raw(f"shl i32 1, {low}")
    _put(b, results[1], b.raw(f"bitcast i32 {chosen} to {_MASK}"))
    return Shortcut(_whole(b), arguments)


def _word_of(b: Any, p: W) -> str:
    """The executing lanes in which a predicate holds, as a word."""
    return str(b.raw(f"and i32 {b.raw(f'bitcast {b.text(p)} to i32')}, {b.mask_word()}"))


def _vote(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    p, members, mode = arguments
    if not _named(members):
        return None
    yes = _word_of(b, p)
    some, every = b.raw(f"icmp ne i32 {yes}, 0"), b.raw(f"icmp eq i32 {yes}, {b.mask_word()}")
    none = b.raw(f"icmp eq i32 {yes}, 0")
    answer = {"all": every, "any": some, "uni": b.raw(f"or i1 {none}, {every}")}[mode]
    _put_scalar(b, results[0], answer)
    return Shortcut(_whole(b), arguments)


def _ballot(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    if not _named(arguments[1]):
        return None
    _put_scalar(b, results[0], _word_of(b, arguments[0]))
    return Shortcut(_whole(b), arguments)


def _exchanged(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    a, source, valid, members = arguments
    if not _named(members):
        return None
    picks = ", ".join(f"i32 {int(s)}" for s in source)
    kind, mask = VECTOR[a.type], b.mask()
    value = b.raw(f"shufflevector {b.text(a)}, {kind} poison, {_L32} <{picks}>")
    here = b.raw(f"shufflevector {b.text(mask)}, {_MASK} poison, {_L32} <{picks}>")
    _put(b, results[0], b.raw(f"select {_MASK} {here}, {kind} {value}, {kind} zeroinitializer"))
    ranges = ", ".join(f"i1 {str(bool(v)).lower()}" for v in np.asarray(valid))
    _put(b, results[1], f"<{ranges}>")
    return Shortcut(_whole(b), arguments)


def _warp_sync(b: Any, arguments: Sequence[Any], results: tuple[Kept, ...]) -> Shortcut | None:
    _put(b, results[0], b.name(b.mask()))
    return Shortcut(_whole(b), arguments)


SHORTCUTS: dict[Callable[..., Any], Callable[..., Shortcut | None]] = {
    memory._load: _load,
    memory._store: _store,
    tcgen05._load: _tensor_load,
    tcgen05._store: _tensor_store,
    mbarrier._wait: _wait,
    mbarrier._arrive_together: _arrive_together,
    mbarrier._arrive: _arrive,
    mbarrier._tx: _tx,
    warp._elect: _elect,
    warp._vote: _vote,
    warp._ballot: _ballot,
    warp._exchanged: _exchanged,
    barrier._warp_sync: _warp_sync,
}
