"""The fifth-generation tensor core: tensor memory and its matrix products (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.events import TensorAllocation
from emulator.isa.memory import address_of, items
from emulator.isa.operands import immediate, write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access, tell_operation, tell_signal, tell_step
from emulator.isa.warplike import WarpLike, first_lane, lanes_in, multicast_ranks
from emulator.memory.shared import split_address
from emulator.ptx.module import Address, Instruction, Operand, Vector
from emulator.units import tcgen05 as unit
from emulator.units.footprint import Touch, copy_touches, mma_touches, register_words

_GROUP = "group:cta_group::1|cta_group::2"
_FULL = np.full(32, 0xFFFFFFFF, np.uint32)


def _ctas(warp: WarpLike, pair: bool) -> list[Any]:
    """The CTA itself, or both CTAs of its pair, even rank first."""
    if not pair:
        return [warp.cta]
    first = warp.cta.rank & ~1
    if first + 1 >= len(warp.cluster.ctas):
        raise IllegalInstruction(f"cta_group::2 in CTA rank {warp.cta.rank}: the cluster has no peer CTA")
    return warp.cluster.ctas[first : first + 2]


def _channel(warp: WarpLike, pair: bool) -> tuple[str, int]:
    """The pipe that orders tensor-core operations: one per CTA, or one per pair."""
    return ("tensor", _ctas(warp, pair)[0].rank)


def _static(operand: Operand) -> int:
    """An operand that must be an integer literal."""
    value = immediate(operand)
    if value is None:
        raise Unsupported(f"{operand} must be an integer literal")
    return value


# -------------------------------------------------------------------- allocation
@op(f"tcgen05.alloc.{_GROUP}.sync.aligned[.space:shared::cta].b32", section="9.7.16.7.1", starts_block=True)
def alloc(b: Any, i: Instruction, m: Modifiers) -> None:
    """Allocate columns of tensor memory; the address goes to shared memory; blocks while there is no room."""
    b.blocking(_alloc, address_of(b, i.operands[0], "shared"), b.operand(i, 1, "u32"), out="pred")


def _alloc(warp: WarpLike, mask: np.ndarray, address: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
    if warp.converge(mask, _FULL) is None:
        return None
    lane = first_lane(mask)
    count = int(columns[lane])
    column = warp.cta.tensor.alloc(count)
    if column is None:
        used = ", ".join(f"{n} at {c}" for c, n in warp.cta.tensor.allocations.items())
        return warp.wait(f"{count} columns of tensor memory (allocated: {used})", None)
    rank, offset = split_address(int(warp.shared(address)[lane]))
    warp.cluster.ctas[rank].shared.bytes(offset, 4, "tcgen05.alloc")[:] = np.array([column], np.uint32).view(np.uint8)
    warp.progress()
    if warp.bus.on:
        tell_access(warp, "shared", "write", np.array([offset]), 4, rank)
        warp.bus.publish(TensorAllocation(warp.id, warp.cta.rank, column, count, False, warp.at))
    return mask


@op(f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32", section="9.7.16.7.1", starts_block=True)
def dealloc(b: Any, i: Instruction, m: Modifiers) -> None:
    """Release exactly one allocation."""
    b.blocking(_dealloc, b.operand(i, 0, "u32"), b.operand(i, 1, "u32"), out="pred")


def _dealloc(warp: WarpLike, mask: np.ndarray, address: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
    if warp.converge(mask, _FULL) is None:
        return None
    lane = first_lane(mask)
    warp.cta.tensor.dealloc(int(address[lane]), int(columns[lane]))
    warp.progress()
    if warp.bus.on:
        column = int(address[lane]) & 0xFFFF
        warp.bus.publish(TensorAllocation(warp.id, warp.cta.rank, column, int(columns[lane]), True, warp.at))
    return mask


@op(f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned", section="9.7.16.7.1")
def relinquish(b: Any, i: Instruction, m: Modifiers) -> None:
    """This CTA will allocate no more."""
    b.effect(_relinquish)


def _relinquish(warp: WarpLike, mask: np.ndarray) -> None:
    warp.cta.tensor.relinquish()


# -------------------------------------------------------------------- loads and stores
_SHAPES = "shape:32x32b|16x64b|16x128b|16x256b|16x32bx2"
_COUNT = "num:x1|x2|x4|x8|x16|x32|x64|x128"


@op(f"tcgen05.ld.sync.aligned.{_SHAPES}.{_COUNT}[.pack::16b].b32", section="9.7.16.8.2", starts_block=True)
def load(b: Any, i: Instruction, m: Modifiers) -> None:
    """Registers from tensor memory."""
    targets = items(i.operands[0])
    half = _static(i.operands[2]) if m["shape"] == "16x32bx2" else 0
    index = unit.register_map(m["shape"], int(m["num"][1:]), half, m["pack_16b"])
    _check_registers(len(targets), index, m)
    address = address_of(b, i.operands[1], "shared")
    values = b.blocking(_load, address, index, out=["u32"] * len(targets))
    for target, value in zip(targets, values, strict=True):
        write(b, target, value, "u32")


@op(f"tcgen05.st.sync.aligned.{_SHAPES}.{_COUNT}[.unpack::16b].b32", section="9.7.16.8.3", starts_block=True)
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Registers to tensor memory."""
    halves = m["shape"] == "16x32bx2"
    half = _static(i.operands[1]) if halves else 0
    sources = items(i.operands[2 if halves else 1])
    index = unit.register_map(m["shape"], int(m["num"][1:]), half, m["unpack_16b"])
    _check_registers(len(sources), index, m)
    values = [b.source(s, "u32") for s in sources]
    b.blocking(_store, address_of(b, i.operands[0], "shared"), index, values, out="pred")


@op(
    "tcgen05.ld.red.sync.aligned.shape:32x32b.num:x2|x4|x8|x16|x32|x64|x128.op:min|max[.abs][.NaN].type:f32",
    "tcgen05.ld.red.sync.aligned.shape:32x32b.num:x2|x4|x8|x16|x32|x64|x128.op:min|max.type:u32|s32",
    section="9.7.16.8.3",
    starts_block=True,
)
def load_reduce(b: Any, i: Instruction, m: Modifiers) -> None:
    """Registers from tensor memory, and their minimum or maximum per lane (sm_103a, sm_110a)."""
    targets = items(i.operands[0])
    index = unit.register_map(m["shape"], int(m["num"][1:]))
    _check_registers(len(targets), index, m)
    values = b.blocking(_load, address_of(b, i.operands[2], "shared"), index, out=["u32"] * len(targets))
    typed = [b.bits(v, m["type"]) for v in values]
    if m.get("abs"):
        typed = [b.fabs(v) for v in typed]
    result = typed[0]
    for value in typed[1:]:
        if m["type"] == "f32":
            result = (b.fmin if m["op"] == "min" else b.fmax)(result, value, m["NaN"])
        else:
            result = (b.min if m["op"] == "min" else b.max)(result, value)
    for target, value in zip(targets, values, strict=True):
        write(b, target, value, "u32")
    write(b, i.operands[1], b.bits(result, "u32"), "u32")


def _check_registers(given: int, index: unit.RegisterMap, m: Modifiers) -> None:
    if given != index.registers:
        raise Unsupported(f"{m['shape']}.{m['num']} moves {index.registers} registers, {given} are given")


def _base(warp: WarpLike, mask: np.ndarray, address: np.ndarray, index: unit.RegisterMap, what: str) -> tuple[int, int]:
    """First lane and column of an access. A warp reaches only its quarter of the lanes; lane 0 means that quarter."""
    lane, column = int(address[first_lane(mask)]) >> 16, int(address[first_lane(mask)]) & 0xFFFF
    quarter = 32 * (warp.index % 4)
    if lane // 32 == 0 and quarter:
        lane += quarter
    if lane // 32 * 32 != quarter:
        raise IllegalInstruction(
            f"{what} at lane {lane}: warp {warp.index} reaches lanes {quarter}..{quarter + 31} (its index modulo 4)"
        )
    if lane + index.height > quarter + 32:
        raise IllegalInstruction(f"{what} of {index.height} lanes from lane {lane} on: the last one is {quarter + 31}")
    warp.cta.tensor.check_columns(column, index.columns, what)
    return lane, column


def _load(warp: WarpLike, mask: np.ndarray, address: np.ndarray, index: unit.RegisterMap) -> np.ndarray | None:
    if warp.converge(mask, _FULL) is None:
        return None
    lane, column = _base(warp, mask, address, index, "tcgen05.ld")
    if warp.bus.on:
        where = register_words(index, lane, column)
        tell_access(warp, "tensor", "read", where, 4, warp.cta.rank, proxy="tensor")
    return index.load(warp.cta.tensor, lane, column)


def _store(
    warp: WarpLike, mask: np.ndarray, address: np.ndarray, index: unit.RegisterMap, values: tuple[np.ndarray, ...]
) -> np.ndarray | None:
    if warp.converge(mask, _FULL) is None:
        return None
    lane, column = _base(warp, mask, address, index, "tcgen05.st")
    index.store(warp.cta.tensor, lane, column, values)
    warp.progress()
    if warp.bus.on:
        where = register_words(index, lane, column)
        tell_access(warp, "tensor", "write", where, 4, warp.cta.rank, proxy="tensor")
    return mask


@op(
    "tcgen05.kind:wait::ld|wait::st.sync.aligned",
    "tcgen05.kind:fence::before_thread_sync|fence::after_thread_sync",
    section="9.7.16.8.4",
    no_effect=True,
)
def order(b: Any, i: Instruction, m: Modifiers) -> None:
    """Loads and stores of tensor memory complete at issue here; checkers hear of the wait or fence."""
    if b.watched:
        b.effect(_order, "tcgen05." + m["kind"])


def _order(warp: WarpLike, mask: np.ndarray, what: str) -> None:
    tell_step(warp, what, (warp.cta.rank, warp.index), mask=mask)


# -------------------------------------------------------------------- commit and copy
@op(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one[.space:shared::cluster][.multicast::cluster].b64",
    section="9.7.16.12.1",
)
def commit(b: Any, i: Instruction, m: Modifiers) -> None:
    """Arrive on an mbarrier when all earlier tensor-core operations have completed."""
    multicast = b.operand(i, 1, "u16") if m["multicast_cluster"] else None
    b.effect(_commit, address_of(b, i.operands[0], "shared"), multicast, m["group"] == "cta_group::2")


def _commit(warp: WarpLike, mask: np.ndarray, address: np.ndarray, multicast: np.ndarray | None, pair: bool) -> None:
    for lane in lanes_in(mask):
        rank, offset = split_address(int(warp.shared(address)[lane]))
        ranks = [rank]
        if multicast is not None:
            ranks = multicast_ranks(warp, int(multicast[lane]))
        barriers = tuple(warp.cluster.ctas[r].mbarrier(offset) for r in ranks)

        keys = [(r, offset) for r in ranks]

        def complete(number: int, keys: Any = keys, barriers: tuple[Any, ...] = barriers) -> None:
            for key, barrier in zip(keys, barriers, strict=True):
                tell_signal(warp, number, "arrive", key, barrier, 1)

        channel = _channel(warp, pair)
        warp.cluster.start(warp, "tensor", "tcgen05.commit", complete, channel, barriers, lanes=1 << lane)


@op(
    f"tcgen05.cp.{_GROUP}.shape:128x256b|4x256b|128x128b[.format:b8x16.b6x16_p32|b8x16.b4x16_p64]", section="9.7.16.9.2"
)
@op(
    f"tcgen05.cp.{_GROUP}.shape:64x128b.multicast:warpx2::02_13|warpx2::01_23[.format:b8x16.b6x16_p32|b8x16.b4x16_p64]",
    section="9.7.16.9.2",
)
@op(
    f"tcgen05.cp.{_GROUP}.shape:32x128b.multicast:warpx4[.format:b8x16.b6x16_p32|b8x16.b4x16_p64]", section="9.7.16.9.2"
)
def copy(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy from shared to tensor memory, in the order of the tensor core's pipe."""
    b.effect(
        _copy,
        address_of(b, i.operands[0], "shared"),
        b.operand(i, 1, "u64"),
        m["group"] == "cta_group::2",
        m["shape"],
        m.get("multicast"),
        m["format"],
    )


def _copy(
    warp: WarpLike,
    mask: np.ndarray,
    address: np.ndarray,
    descriptor: np.ndarray,
    pair: bool,
    shape: str,
    multicast: str | None,
    format: str | None,
) -> None:
    ctas = _ctas(warp, pair)
    for lane in lanes_in(mask):
        to, source = int(address[lane]), int(descriptor[lane])

        def complete(number: int, to: int = to, source: int = source) -> None:
            for cta in ctas:
                unit.execute_copy(cta.shared, cta.tensor, to, source, shape, multicast, format)
                if warp.bus.on:
                    _tell_touches(warp, number, copy_touches(to, source, shape, multicast), [cta])

        warp.cluster.start(warp, "tensor", "tcgen05.cp", complete, _channel(warp, pair), lanes=1 << lane)


def _tell_touches(warp: WarpLike, number: int, touches: Iterable[Touch], ctas: list[Any]) -> None:
    for t in touches:
        tell_operation(warp, number, t.space, t.kind, t.where, t.nbytes, ctas[t.cta].rank, "tensor")


# -------------------------------------------------------------------- matrix products
_KINDS = "kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8"
_COLLECT = "[.collector:collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard]"
_COLLECT_B = (
    "[.collector:"
    + "|".join(f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard"))
    + "]"
)


@op(f"tcgen05.mma[.ws].{_GROUP}.{_KINDS}{_COLLECT}", section="9.7.16.10.9.1")
@op(f"tcgen05.mma.ws.{_GROUP}.{_KINDS}{_COLLECT_B}", section="9.7.16.10.9.3")
def mma(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = A B (+ D) with A from shared or tensor memory."""
    weights = ".ws." in i.opcode
    rest = list(i.operands[4:])
    disable = None
    if rest and isinstance(rest[0], Vector):
        disable = [b.source(x, "u32") for x in items(rest.pop(0))]
    enable = b.source(rest.pop(0), "pred") if rest else b.const("pred", 1)
    if rest and weights and _static(rest.pop(0)):
        raise Unsupported("zero-column mask descriptors other than 0, which masks nothing")
    scale = _static(rest[0]) if rest else 0
    _issue(b, i, m, enable, weights=weights, disable=disable, scale=scale, scales=None, block=None)


@op(
    f"tcgen05.mma.{_GROUP}.kind:kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4.block_scale"
    f"[.block:scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32]{_COLLECT}",
    section="9.7.16.10.9.1",
)
def mma_block_scaled(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = (A scaleA)(B scaleB) (+ D) with the scales in tensor memory."""
    scales = [address_of(b, i.operands[k], "shared") for k in (4, 5)]
    _issue(b, i, m, b.operand(i, 6, "pred"), weights=False, disable=None, scale=0, scales=scales, block=m["block"])


def _issue(
    b: Any,
    i: Instruction,
    m: Modifiers,
    enable: Any,
    *,
    weights: bool,
    disable: Any,
    scale: int,
    scales: Any,
    block: str | None,
) -> None:
    from_tensor = isinstance(i.operands[1], Address)
    a = address_of(b, i.operands[1], "shared") if from_tensor else b.operand(i, 1, "u64")
    static = unit.Form(
        m["kind"].removeprefix("kind::"), m["group"] == "cta_group::2", weights, from_tensor, scale, block
    )
    b.effect(
        _mma,
        static,
        address_of(b, i.operands[0], "shared"),
        a,
        b.operand(i, 2, "u64"),
        b.operand(i, 3, "u32"),
        enable,
        disable,
        scales,
    )


def _mma(
    warp: WarpLike,
    mask: np.ndarray,
    form: unit.Form,
    d: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    descriptor: np.ndarray,
    enable: np.ndarray,
    disable: tuple[np.ndarray, ...] | None,
    scales: tuple[np.ndarray, ...] | None,
) -> None:
    ctas = _ctas(warp, form.pair)
    places = [(cta.shared, cta.tensor) for cta in ctas]
    mode = warp.cluster.grid.arithmetic
    for lane in lanes_in(mask):
        off = None if disable is None else [int(x[lane]) for x in disable]
        sf = None if scales is None else (int(scales[0][lane]), int(scales[1][lane]))
        product = unit.Product(
            form, int(d[lane]), int(a[lane]), int(b[lane]), int(descriptor[lane]), bool(enable[lane]), off, sf
        )
        unit.check(product, places)

        def complete(number: int, product: unit.Product = product) -> None:
            if warp.bus.on:
                _tell_touches(warp, number, mma_touches(product), ctas)
            unit.execute_mma(product, places, mode)

        what, channel = f"tcgen05.mma to {int(d[lane]):#x}", _channel(warp, form.pair)
        warp.cluster.start(warp, "tensor", what, complete, channel, lanes=1 << lane)
