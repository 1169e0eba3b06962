"""Tensor copies by the TMA unit: cp.async.bulk.tensor and its reduction (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.isa.memory import address_of, items
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_operation, tell_signal
from emulator.isa.warplike import WarpLike, lanes_in, multicast_ranks
from emulator.memory.globals import GlobalMemory
from emulator.memory.shared import split_address
from emulator.memory.tensormap import TensorMap
from emulator.ptx.module import Instruction, TensorAddress
from emulator.units import footprint, tma

_DIM = "dim:1d|2d|3d|4d|5d"
_SPATIAL = "dim:3d|4d|5d"
_LOAD = f"cp.async.bulk.tensor.{_DIM}.dst:shared::cta|shared::cluster.global"
_SPATIAL_LOAD = f"cp.async.bulk.tensor.{_SPATIAL}.dst:shared::cta|shared::cluster.global"
_GATHER = "cp.async.bulk.tensor.2d.dst:shared::cta|shared::cluster.global"
_BARRIER = "mbarrier::complete_tx::bytes[.multicast::cluster]"
_GROUP = "group:cta_group::1|cta_group::2"
_MAPS: dict[bytes, TensorMap] = {}


def tensor_map(warp: WarpLike, address: int) -> TensorMap:
    """The tensor map at a generic address (parameter, global or constant memory), decoded once per content."""
    if address % 64:
        raise IllegalInstruction(f"tensor map at {address:#x}: the address must be a multiple of 64")
    raw = warp.memory.view(address, 128, what="tensor map").tobytes()
    if raw not in _MAPS:
        _MAPS[raw] = TensorMap.decode(raw)
    return _MAPS[raw]


def _operands(b: Any, operand: Any, count: int) -> tuple[Any, list[Any]]:
    if not isinstance(operand, TensorAddress) or len(operand.coords) != count:
        raise Unsupported(f"this copy needs [map, {{{count} coordinates}}]")
    return address_of(b, operand.map, None), [b.source(c, "s32") for c in operand.coords]


@op(f"{_LOAD}[.tile].{_BARRIER}[.L2::cache_hint][.{_GROUP}]", section="9.7.9.27.1.2")
@op(f"{_LOAD}[.tile].{_BARRIER}.{_GROUP}.L2::cache_hint", section="9.7.9.27.1.2")
def load(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy a box of a tensor to shared memory of one or several CTAs; each signals its barrier."""
    _issue_load(b, i, m, tma.load_box, int(m["dim"][0]))


@op(f"{_GATHER}.tile::gather4.{_BARRIER}[.L2::cache_hint][.{_GROUP}]", section="9.7.9.27.1.2")
@op(f"{_GATHER}.tile::gather4.{_BARRIER}.{_GROUP}.L2::cache_hint", section="9.7.9.27.1.2")
def gather(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy four rows of a two-dimensional tensor."""
    _issue_load(b, i, m, tma.load_gather4, 5)


@op(f"{_SPATIAL_LOAD}.im2col.{_BARRIER}[.L2::cache_hint]", section="9.7.9.27.1.2")
def load_pixels(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy pixels of a tensor, at an offset from a bounding box, to shared memory."""
    offsets = items(i.operands[3])
    rank = int(m["dim"][0])
    if len(offsets) != rank - 2:
        raise Unsupported(f"{len(offsets)} offsets; {m['dim']} needs {rank - 2}")
    _issue_load(b, i, m, _read_pixels, rank, [b.source(o, "u16") for o in offsets])


def _read_pixels(tmap: TensorMap, at: list[int], memory: GlobalMemory) -> tma.BoxData:
    """`at`: rank coordinates, then rank - 2 offsets."""
    rank = len(at) // 2 + 1
    return tma.load_im2col(tmap, at[:rank], at[rank:], memory)


def _issue_load(
    b: Any, i: Instruction, m: Modifiers, read: Callable[..., Any], count: int, offsets: Sequence[Any] = ()
) -> None:
    where, coords = _operands(b, i.operands[1], count)
    coords += [b.resize(o, "s32") for o in offsets]
    destination, barrier = (address_of(b, i.operands[k], "shared") for k in (0, 2))
    multicast = b.operand(i, 4 if offsets else 3, "u16") if m["multicast_cluster"] else None
    pair = m.get("group") == "cta_group::2"
    b.effect(_load, destination, where, coords, barrier, multicast, pair, read)


def _load(
    warp: WarpLike,
    mask: np.ndarray,
    destination: np.ndarray,
    where: np.ndarray,
    coords: Sequence[np.ndarray],
    barrier: np.ndarray,
    multicast: np.ndarray | None,
    pair: bool,
    read: Callable[..., Any],
) -> None:
    for lane in lanes_in(mask):
        tmap = tensor_map(warp, int(where[lane]))
        at = [int(c[lane]) for c in coords]
        rank, offset = split_address(int(destination[lane]))
        if read is tma.load_box:
            tma.check_load(tmap, at, offset)
        elif read is _read_pixels:
            tma.check_im2col(tmap, at[: len(at) // 2 + 1], offset)
        signal_rank, signal = split_address(int(barrier[lane]))
        if multicast is None:
            targets = [(rank, signal_rank)]
        else:
            # Every destination signals the barrier at the same offset of its own CTA; with cta_group::2, of the CTA of
            # its pair that has the parity of the given barrier address.
            ranks = multicast_ranks(warp, int(multicast[lane]))
            targets = [(r, (r & ~1) | (signal_rank & 1) if pair else r) for r in ranks]
        what = f"tensor load of {_tensor_at(warp.memory, tmap.address)} at {tuple(at)} to {offset:#x}"
        reading = partial(read, tmap, at, warp.memory)
        _start_load(warp, lane, what, reading, partial(_ROWS[read], tmap, at), offset, signal, targets)


def _tensor_at(memory: GlobalMemory, address: int) -> str:
    """The name of the tensor that a map begins in."""
    return next((r.name for r in memory.regions if r.address <= address < r.end), f"{address:#x}")


_ROWS: dict[Callable[..., Any], Callable[..., Any]] = {
    tma.load_box: footprint.box_rows,
    tma.load_gather4: footprint.four_rows,
    _read_pixels: footprint.pixel_rows,
    tma.store_box: partial(footprint.box_rows, write=True),
    tma.reduce_box: partial(footprint.box_rows, write=True),
    tma.store_scatter4: partial(footprint.four_rows, write=True),
    tma.store_im2col: partial(footprint.pixel_rows, write=True),
    tma.reduce_im2col: partial(footprint.pixel_rows, write=True),
}
"""For checkers: which bytes of global memory a copy touches."""


def _start_load(
    warp: WarpLike,
    lane: int,
    what: str,
    read: Callable[[], tma.BoxData],
    rows: Callable[[], tuple[np.ndarray, int]],
    offset: int,
    signal: int,
    targets: list[tuple[int, int]],
) -> None:
    ctas = warp.cluster.ctas
    barriers = [ctas[r].mbarrier(signal) for _, r in targets]

    def complete(number: int) -> None:
        box = read()
        if warp.bus.on:
            tell_operation(warp, number, "global", "read", *rows())
        for (rank, signalled), barrier in zip(targets, barriers, strict=True):
            written = tma.place(box, ctas[rank].shared, offset)
            if warp.bus.on:
                tell_operation(warp, number, "shared", "write", written, 16, rank)
            nbytes = box.data.shape[0] * box.shape.inner
            tell_signal(warp, number, "complete_tx", (signalled, signal), barrier, nbytes)

    warp.cluster.start(warp, "tma", what, complete, None, tuple(barriers), lanes=1 << lane)


_STORE = "global.shared::cta"


@op(f"cp.async.bulk.tensor.{_DIM}.{_STORE}[.tile].bulk_group[.L2::cache_hint]", section="9.7.9.27.1.2")
def store(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy a box from shared memory to a tensor; belongs to the open bulk group."""
    _issue_store(b, i, int(m["dim"][0]), tma.store_box, "write")


@op(f"cp.async.bulk.tensor.2d.{_STORE}.tile::scatter4.bulk_group[.L2::cache_hint]", section="9.7.9.27.1.2")
def scatter(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy four rows to a two-dimensional tensor."""
    _issue_store(b, i, 5, tma.store_scatter4, "write")


@op(
    f"cp.reduce.async.bulk.tensor.{_DIM}.{_STORE}.op:add|min|max|inc|dec|and|or|xor[.tile].bulk_group[.L2::cache_hint]",
    section="9.7.9.27.1.3",
)
def reduce(b: Any, i: Instruction, m: Modifiers) -> None:
    """Reduce a box from shared memory into a tensor; belongs to the open bulk group."""
    _issue_store(b, i, int(m["dim"][0]), tma.reduce_box, "atomic", m["op"])


@op(f"cp.async.bulk.tensor.{_SPATIAL}.{_STORE}.im2col_no_offs.bulk_group[.L2::cache_hint]", section="9.7.9.27.1.2")
def store_pixels(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy pixels from shared memory to a tensor; belongs to the open bulk group."""
    _issue_store(b, i, int(m["dim"][0]), tma.store_im2col, "write")


@op(
    f"cp.reduce.async.bulk.tensor.{_SPATIAL}.{_STORE}.op:add|min|max|inc|dec|and|or|xor.im2col_no_offs.bulk_group"
    "[.L2::cache_hint]",
    section="9.7.9.27.1.3",
)
def reduce_pixels(b: Any, i: Instruction, m: Modifiers) -> None:
    """Reduce pixels from shared memory into a tensor; belongs to the open bulk group."""
    _issue_store(b, i, int(m["dim"][0]), tma.reduce_im2col, "atomic", m["op"])


def _issue_store(b: Any, i: Instruction, count: int, write: Callable[..., None], kind: str, *more: str) -> None:
    where, coords = _operands(b, i.operands[0], count)
    b.effect(_store, where, coords, address_of(b, i.operands[1], "shared"), write, kind, more)


def _store(
    warp: WarpLike,
    mask: np.ndarray,
    where: np.ndarray,
    coords: Sequence[np.ndarray],
    source: np.ndarray,
    write: Callable[..., None],
    kind: str,
    more: tuple[str, ...],
) -> None:
    for lane in lanes_in(mask):
        tmap = tensor_map(warp, int(where[lane]))
        at = [int(c[lane]) for c in coords]
        rank, offset = split_address(int(source[lane]))
        if write in (tma.store_im2col, tma.reduce_im2col):
            tma.check_store_im2col(tmap, at, offset, *more)
        elif write is not tma.store_scatter4:
            tma.check_store(tmap, at, offset, *more)
        complete = _store_step(warp, tmap, at, rank, offset, write, kind, more)
        what = f"tensor {kind} from {offset:#x}"
        operation = warp.cluster.start(warp, "tma", what, complete, lanes=1 << lane, group="bulk")
        warp.async_groups.open["bulk"].append(operation)


def _store_step(
    warp: WarpLike,
    tmap: TensorMap,
    at: list[int],
    rank: int,
    offset: int,
    write: Callable[..., None],
    kind: str,
    more: tuple[str, ...],
) -> Callable[[int], None]:
    """What happens when a store completes: shared memory is read then, not at issue."""
    shared = warp.cluster.ctas[rank].shared

    def complete(number: int) -> None:
        if warp.bus.on:
            count = 4 if write is tma.store_scatter4 else tmap.geometry.rows
            read = tma.granules(tmap.geometry, shared, offset, count) << 4
            tell_operation(warp, number, "shared", "read", read.ravel(), 16, rank)
            tell_operation(warp, number, "global", kind, *_ROWS[write](tmap, at))
        write(tmap, at, shared, offset, warp.memory, *more)

    return complete


@op(
    f"cp.async.bulk.prefetch.tensor.{_DIM}.L2.global[.tile][.L2::cache_hint]",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4[.L2::cache_hint]",
    f"cp.async.bulk.prefetch.tensor.{_SPATIAL}.L2.global.im2col[.L2::cache_hint]",
    "cp.async.bulk.prefetch.L2.global[.L2::cache_hint]",
    section="9.7.9.27.1.5",
    no_effect=True,
)
def prefetch(b: Any, i: Instruction, m: Modifiers) -> None:
    """A prefetch to L2 has no functional effect."""
