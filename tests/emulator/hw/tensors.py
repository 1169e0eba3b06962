"""Cases of tensor copies with im2col maps and with interleaved channels: loads, stores, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.errors import IllegalInstruction
from tests.emulator.hw.case import Argument, Case, In, Map, Out
from tests.emulator.hw.clusters import SHARED, START
from tests.emulator.hw.copies import blank, dump

_WIDTH = {"u8": 1, "u16": 2, "f16": 2, "u32": 4, "bf16": 2}
IMAGE = 4096
"""Bytes of shared memory that come back from a load."""


def ramp(kind: str, count: int) -> np.ndarray:
    """Elements that tell where they come from."""
    plain = np.arange(1, count + 1)
    return (plain % 251 + 1 if kind == "u8" else plain).astype(f"u{_WIDTH[kind]}")


def packed(dims: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Byte strides of dimensions 1 upwards, without gaps."""
    strides, total = [], width
    for n in dims[:-1]:
        total *= n
        strides.append(total)
    return tuple(strides)


def _coordinates(values: tuple[int, ...]) -> str:
    return ", ".join(f"%r{20 + k}" for k in range(len(values)))


def _moves(values: tuple[int, ...]) -> str:
    return " ".join(f"mov.u32 %r{20 + k}, {v};" for k, v in enumerate(values))


def load(name: str, tmap: Map, at: tuple[int, ...], offsets: tuple[int, ...] = ()) -> Case:
    """The first bytes of shared memory behind one copy, and the bytes that the barrier has counted."""
    mode = "im2col" if offsets else "tile"
    behind = f", {{{', '.join(f'%h{k}' for k in range(len(offsets)))}}}" if offsets else ""
    shifts = " ".join(f"mov.u16 %h{k}, {v};" for k, v in enumerate(offsets))
    geometry = tmap.pixels or 0
    nbytes = tmap.box[0] * _WIDTH[tmap.kind] * geometry if geometry else _tile_bytes(tmap)
    body = f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; {blank(IMAGE // 4)} bar.sync 0; {_moves(at)} {shifts}
mov.b64 %rd3, p2; cvta.param.u64 %rd3, %rd3; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], {nbytes};
@%p1 cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
[%r5], [%rd3, {{{_coordinates(at)}}}], [%r4]{behind};
W: mbarrier.try_wait.parity.shared.b64 %p9, [%r4], 0; @!%p9 bra W; {dump(IMAGE // 4)} ret;"""
    count = _elements(tmap)
    return Case(name, body, (Out(IMAGE), In(ramp(tmap.kind, count)), tmap), before=SHARED)


def _tile_bytes(tmap: Map) -> int:
    unit = 16 * tmap.interleave if tmap.interleave else _WIDTH[tmap.kind]
    outer = [-(-n // s) for n, s in zip(tmap.box[1:], (tmap.steps or (1,) * len(tmap.box))[1:], strict=True)]
    if tmap.interleave:
        outer[-2] = 1
    return int(tmap.box[0] * unit * np.prod(outer))


def _elements(tmap: Map) -> int:
    return (tmap.strides[-1] * tmap.dims[-1]) // _WIDTH[tmap.kind]


def store(name: str, tmap: Map, at: tuple[int, ...], op: str = "") -> Case:
    """The whole tensor behind one store, or reduction, of a ramp in shared memory."""
    mode = "im2col_no_offs" if tmap.pixels else "tile"
    what = f"cp.reduce.async.bulk.tensor.{len(at)}d" if op else f"cp.async.bulk.tensor.{len(at)}d"
    count = _elements(tmap)
    source = np.arange(IMAGE // _WIDTH[tmap.kind]).astype(f"u{_WIDTH[tmap.kind]}") + 40001
    arguments: tuple[Argument, ...] = (Out(count * _WIDTH[tmap.kind], ramp(tmap.kind, count)), In(source))
    tmap = Map(0, *(getattr(tmap, f) for f in list(Map.__dataclass_fields__)[1:]))
    body = f"""{START} ld.param.u64 %rd4, [p1]; {_moves(at)} mov.b64 %rd3, p2; cvta.param.u64 %rd3, %rd3;
mad.lo.u32 %r7, %r1, 4, %r5; mad.wide.u32 %rd5, %r1, 4, %rd4; mov.u32 %r8, 0;
FILL: ld.global.u32 %r9, [%rd5]; st.shared.u32 [%r7], %r9; add.u32 %r7, %r7, 128; add.u64 %rd5, %rd5, 128;
add.u32 %r8, %r8, 128; setp.lt.u32 %p9, %r8, {IMAGE}; @%p9 bra FILL; fence.proxy.async.shared::cta; bar.sync 0;
@!%p1 ret; {what}.global.shared::cta{"." + op if op else ""}.{mode}.bulk_group [%rd3, {{{_coordinates(at)}}}], [%r5];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;"""
    return Case(name, body, (*arguments, tmap), before=SHARED)


def _pixels(kind: str = "u16", dims: tuple[int, ...] = (16, 8, 6, 3), **changes: Any) -> Map:
    """An im2col map of 3 x 3 filters with a border of one, 8 channels and 16 pixels a copy, unless changed."""
    spatial = len(dims) - 2
    given = {"box": (8, *(1,) * (len(dims) - 1)), "pixels": 16, "lower": (-1,) * spatial, "upper": (-1,) * spatial}
    return Map(1, kind, dims, packed(dims, _WIDTH[kind]), **{**given, **changes})


def _channels(n: int, rank: int = 4) -> tuple[int, ...]:
    return (n, *(1,) * (rank - 1))


_FIVE = (16, 5, 4, 3, 2)
_LOADS = [
    load("im2col", _pixels(), (0, -1, -1, 0), (0, 0)),
    load("im2col at an offset", _pixels(), (8, -1, -1, 0), (2, 1)),
    load("im2col over the end of a row and an image", _pixels(pixels=64), (0, 5, 2, 0), (1, 2)),
    load("im2col behind the last image", _pixels(pixels=64), (0, 4, 3, 2), (0, 0)),
    load("im2col before the first image", _pixels(pixels=100), (0, 0, -1, -1), (1, 1)),
    load("im2col without a border", _pixels(lower=(0, 0), upper=(0, 0), pixels=48), (0, 0, 0, 1), (0, 0)),
    load("im2col of a smaller box", _pixels(lower=(2, 1), upper=(1, 2), pixels=40), (0, 2, 1, 0), (0, 0)),
    load("im2col with strides", _pixels(steps=(1, 2, 2, 1), pixels=20), (0, -1, -1, 0), (1, 2)),
    load("im2col with strides off the grid", _pixels(steps=(1, 3, 2, 1), pixels=20), (0, 1, 0, 0), (1, 0)),
    load("im2col with a stride of images", _pixels(steps=(1, 1, 1, 2), pixels=120), (0, 0, 0, 0), (1, 1)),
    load("im2col, channels cut off", _pixels(dims=(24, 8, 6, 3), box=_channels(16)), (16, 0, 0, 0), (0, 0)),
    load("im2col, 32B swizzle", _pixels(box=_channels(16), swizzle=1, pixels=32), (0, -1, -1, 0), (2, 0)),
    load("im2col, narrow rows and 64B swizzle", _pixels(box=_channels(16), swizzle=2), (0, -1, 0, 0), (1, 1)),
    load("im2col, 128B swizzle", _pixels(dims=(64, 8, 6, 3), box=_channels(64), swizzle=3), (0, -1, -1, 0), (1, 2)),
    load("im2col, NaN fill", _pixels("f16", nan_fill=True), (8, -1, -1, 2), (0, 0)),
    load("im2col of words", _pixels("u32", dims=(8, 8, 6, 3), box=_channels(4)), (4, -1, -1, 0), (1, 0)),
    load("im2col of bytes", _pixels("u8", dims=(32, 8, 6, 3), box=_channels(16)), (16, -1, -1, 0), (0, 1)),
    load("im2col in one dimension", _pixels(dims=(16, 10, 3), pixels=24, lower=(-2,), upper=(1,)), (8, 3, 1), (1,)),
    load("im2col in three dimensions", _pixels(dims=_FIVE, pixels=64), (0, 1, 2, 0, 0), (1, 2, 1)),
    load(
        "im2col in three dimensions with strides",
        _pixels(dims=_FIVE, pixels=48, steps=(1, 2, 1, 2, 1), lower=(0, -1, -2), upper=(1, 0, -1)),
        (8, 0, -1, -2, 0),
        (2, 1, 0),
    ),
]


def _slices(kind: str, interleave: int, dims: tuple[int, ...], box: tuple[int, ...], **changes: Any) -> Map:
    """A map of channels in slices of 16 or 32 bytes."""
    given = {"interleave": interleave, "swizzle": interleave - 1, **changes}
    return Map(1, kind, dims, packed(dims, 16 * interleave), box, **given)


_LOADS += [
    load("slices of 16 bytes", _slices("u16", 1, (16, 6, 4), (8, 4, 2)), (4, 1, 1)),
    load("slices of 16 bytes, cut off", _slices("u16", 1, (16, 6, 4), (8, 16, 2)), (12, 5, 3)),
    load("slices of 16 bytes, before the start", _slices("u32", 1, (16, 6, 4), (8, 1, 2)), (-4, 2, -1)),
    load("slices of 16 bytes, no such channels", _slices("u16", 1, (16, 6, 4), (8, 4, 2)), (0, 6, 0)),
    load("slices of 16 bytes, four dimensions", _slices("u16", 1, (8, 5, 6, 2), (8, 3, 4, 2)), (2, 1, 3, 0)),
    load("slices of 16 bytes, five dimensions", _slices("u8", 1, (8, 5, 3, 6, 2), (16, 3, 2, 4, 1)), (0, 1, 1, 3, 1)),
    load(
        "slices of 16 bytes, strides", _slices("u16", 1, (16, 9, 6, 2), (8, 6, 2, 2), steps=(1, 2, 1, 1)), (8, 1, 1, 0)
    ),
    load("slices of 16 bytes, NaN fill", _slices("f16", 1, (16, 6, 4), (8, 4, 2), nan_fill=True), (10, 4, 3)),
    load("slices of 32 bytes", _slices("u16", 2, (16, 6, 4), (16, 4, 2)), (4, 1, 1)),
    load("slices of 32 bytes, cut off", _slices("u32", 2, (16, 6, 4), (8, 40, 4)), (10, 3, 2)),
]
_WHOLE = {"lower": (0, 0), "upper": (0, 0)}
_STORES = [
    store("im2col store", _pixels(**_WHOLE, pixels=48), (0, 0, 0, 1)),
    store("im2col store over the end", _pixels(**_WHOLE, pixels=64), (8, 3, 2, 2)),
    store(
        "im2col store, channels cut off",
        _pixels(dims=(24, 8, 6, 3), box=_channels(16), **_WHOLE),
        (16, 1, 1, 1),
    ),
    store("im2col store with strides", _pixels(**_WHOLE, steps=(1, 2, 2, 1)), (0, 0, 0, 0)),
    store("im2col store of a smaller box", _pixels(lower=(0, 0), upper=(-1, -1)), (0, 0, 0, 0)),
    store("im2col store of a box that begins inside", _pixels(lower=(1, 0), upper=(0, 0)), (0, 1, 0, 0)),
    store("im2col reduction", _pixels("u32", dims=(8, 8, 6, 3), box=_channels(4), **_WHOLE), (4, 6, 5, 0), "add"),
    store("slices of 16 bytes stored", _slices("u16", 1, (16, 6, 4), (8, 4, 2)), (4, 1, 1)),
    store("slices of 16 bytes stored, cut off", _slices("u16", 1, (16, 6, 4), (8, 4, 2)), (12, 5, 3)),
    store("slices of 32 bytes reduced", _slices("u32", 2, (16, 6, 4), (8, 4, 2)), (4, 3, 1), "add"),
]
CASES = [*_LOADS, *_STORES]

_TILES = Map(1, "u16", (16, 8, 6, 3), packed((16, 8, 6, 3), 2), (8, 4, 2, 1))
REFUSED = [
    (load("im2col outside the box", _pixels(), (0, 7, 0, 0), (0, 0)), IllegalInstruction),
    (load("im2col before the box", _pixels(), (0, -2, 0, 0), (0, 0)), IllegalInstruction),
    (load("im2col between granules", _pixels(), (4, 0, 0, 0), (0, 0)), IllegalInstruction),
    (load("im2col copy with a map of tiles", _TILES, (0, 0, 0, 0), (0, 0)), IllegalInstruction),
    (load("copy of a tile with a map of im2col", _pixels(), (0, 0, 0, 0)), IllegalInstruction),
    (store("im2col store of a larger box", _pixels(lower=(0, 0), upper=(1, 1)), (0, 0, 0, 0)), IllegalInstruction),
    (store("im2col store before the first image", _pixels(**_WHOLE), (0, 0, 0, -1)), IllegalInstruction),
]
"""(case, the emulator's error)."""
