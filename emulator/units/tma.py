"""Tensor copies: cp.async.bulk.tensor and cp.reduce.async.bulk.tensor in tile, im2col, gather4 and scatter4 modes.

`check_load` and `check_store` say at issue what the hardware would refuse; the other functions move data at once, and
when a copy happens is the machine's choice. Rules measured on an H200: the inner
coordinate must be a multiple of 16 bytes; loads clip at the element and fill the rest; stores and reductions clip
dimension 0 at 16 bytes, not at the extent, and take no negative coordinate; element strides act on dimensions 1
upwards; with a swizzle, a row narrower than the span still takes a whole span of shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.box import Geometry
from emulator.memory.globals import GlobalMemory
from emulator.memory.im2col import Im2col, corner_bits
from emulator.memory.shared import SharedMemory
from emulator.memory.swizzle import tile_granules
from emulator.memory.tensormap import TensorMap
from emulator.units.formats import encode
from emulator.units.reductions import RAW, check, reduce_elements, reduce_values

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

__all__ = [
    "BoxData", "box_bytes", "check_im2col", "check_load", "check_store", "check_store_im2col", "granules",
    "load_box", "load_gather4", "load_im2col", "pixel_addresses", "pixels", "place", "reduce_box",
    "reduce_elements", "reduce_im2col", "row_addresses", "rows_inside", "store_box", "store_im2col",
    "store_scatter4",
]  # fmt: skip

SHARED_ALIGN = 128
OOB_NAN = 0x7FF7


def box_bytes(tmap: TensorMap) -> int:
    """Bytes that one copy adds to an mbarrier (complete_tx): the whole box as it lies in global memory, whatever part
    is out of range. Shared-memory padding does not count."""
    shape = tmap.geometry
    return shape.rows * shape.inner


@dataclass(frozen=True)
class BoxData:
    """A box on its way to shared memory: `data` uint8 [rows, held bytes]."""

    shape: Geometry
    data: U8


def place(box: BoxData, smem: SharedMemory, offset: int) -> I64:
    """Put a box at a shared offset (a multiple of 128), swizzled; gaps between rows keep their bytes. Returns the byte
    offsets of the 16-byte pieces written, int64 [rows * held / 16]. Raises MemoryFault outside shared memory."""
    where = granules(box.shape, smem, offset, box.data.shape[0])
    smem.u128[where] = box.data.view(np.complex128)
    return (where << 4).ravel()


def check_load(tmap: TensorMap, coords: Sequence[int], shared_offset: int) -> None:
    """What the hardware refuses when a load is issued: IllegalInstruction for the map, the number of coordinates or a
    misaligned inner one, MemoryFault for a shared address that is no multiple of 128."""
    _check_tile(tmap)
    _inner_start(tmap, coords, "load")
    _check_shared(shared_offset)


def check_store(tmap: TensorMap, coords: Sequence[int], shared_offset: int, op: str | None = None) -> None:
    """The same for stores and, with `op`, reductions: also negative coordinates, padded types, missing operations."""
    _check_tile(tmap)
    _check_write(tmap, coords, shared_offset, op)


def _check_write(tmap: TensorMap, coords: Sequence[int], shared_offset: int, op: str | None) -> None:
    what = "reduction" if op else "store"
    if op:
        check(op, tmap.element.name)
    if tmap.element.padded:
        raise IllegalInstruction(f"tensor {what} with element type {tmap.element.name}")
    _inner_start(tmap, coords, what)
    if min(coords) < 0:
        raise IllegalInstruction(f"tensor {what} at negative coordinates {tuple(coords)}")
    _check_shared(shared_offset)


def _check_tile(tmap: TensorMap) -> None:
    if tmap.im2col:
        raise IllegalInstruction("tensor copy in tile mode with a tensor map of im2col")


def _check_shared(offset: int) -> None:
    if offset % SHARED_ALIGN:
        raise MemoryFault(f"tensor copy at shared offset {offset:#x}: a multiple of {SHARED_ALIGN} is needed")


def granules(shape: Geometry, smem: SharedMemory, offset: int, rows: int) -> I64:
    """16-byte granules int64 [rows, held / 16] of a box at a shared offset, after alignment and bounds checks."""
    _check_shared(offset)
    smem.check_range(offset, shape.footprint + (rows - shape.rows) * shape.pitch, "tensor copy")
    return tile_granules(offset, rows, shape.held, shape.pitch, shape.swizzle)


def load_box(tmap: TensorMap, coords: Sequence[int], gmem: GlobalMemory) -> BoxData:
    """Read the box at signed element coordinates (dimension 0 first). Out-of-range elements are filled: zero, or with
    NaN fill the 16-bit pattern 0x7FF7 repeated. TF32 types are rounded to nearest even at bit 13.

    Raises IllegalInstruction for a wrong number of coordinates or a misaligned inner one, MemoryFault for elements
    that the map places outside every registered tensor.
    """
    shape = tmap.geometry
    first = _inner_start(tmap, coords, "load")
    inside = rows_inside(tmap, shape, coords)
    return _load_rows(tmap, shape, gmem, row_addresses(tmap, shape, coords, first), inside, first)


def load_im2col(tmap: TensorMap, coords: Sequence[int], offsets: Sequence[int], gmem: GlobalMemory) -> BoxData:
    """Read the pixels of an im2col map: they run through its bounding box from the given one on, dimension 1 fastest,
    then to the next image; what is read of each lies `offsets` further in the spatial dimensions: 16, 8 or 5 bits for
    one, two or three of them. Pixels outside the tensor are filled as in `load_box`."""
    places = pixels(tmap, coords)
    first = _inner_start(tmap, coords, "load")
    largest = (1 << corner_bits(tmap.rank)) - 1
    if max(offsets) > largest:
        raise IllegalInstruction(f"im2col copy at offsets {tuple(offsets)}; at most {largest} for rank {tmap.rank}")
    places += np.array([*offsets, 0], np.int64)
    addresses, inside = pixel_addresses(tmap, places, first)
    return _load_rows(tmap, tmap.geometry, gmem, addresses, None if inside.all() else inside, first)


def check_im2col(tmap: TensorMap, coords: Sequence[int], shared_offset: int = 0) -> Im2col:
    """IllegalInstruction unless the map is one of im2col and its first pixel lies in the bounding box; MemoryFault for
    a shared address that is no multiple of 128."""
    _check_shared(shared_offset)
    boxed = tmap.im2col
    if boxed is None:
        raise IllegalInstruction("im2col copy with a tensor map of tile mode")
    _inner_start(tmap, coords, "im2col copy")
    for d, (low, high) in enumerate(zip(boxed.lower, boxed.upper, strict=True), 1):
        if not low <= coords[d] < tmap.dims[d] + high:
            raise IllegalInstruction(
                f"im2col copy: coordinate {coords[d]} of dimension {d} is outside the bounding box, "
                f"{low}..{tmap.dims[d] + high - 1}"
            )
    return boxed


def pixels(tmap: TensorMap, coords: Sequence[int]) -> I64:
    """Coordinates of dimensions 1 upwards of the pixels of one copy, int64 [pixels, rank - 1]."""
    boxed = check_im2col(tmap, coords)
    at = list(coords[1:])
    found = np.empty((boxed.pixels, len(at)), np.int64)
    for row in found:
        row[:] = at
        at[0] += tmap.element_strides[1]
        for d, (low, high) in enumerate(zip(boxed.lower, boxed.upper, strict=True)):
            if at[d] < tmap.dims[d + 1] + high:
                break
            at[d] = low
            at[d + 1] += tmap.element_strides[d + 2]
    return found


def pixel_addresses(tmap: TensorMap, places: I64, first: int) -> tuple[I64, Mask]:
    """Byte addresses of pixels, and which of them lie inside the tensor; the others' addresses mean nothing."""
    inside: Mask = np.logical_and(places >= 0, places < np.array(tmap.dims[1:], np.int64)).min(axis=1)
    kept = np.where(inside[:, None], places, 0)
    return kept @ np.array(tmap.strides, np.int64) + _wrapped(tmap, tmap.address + first), inside


def load_gather4(tmap: TensorMap, coords: Sequence[int], gmem: GlobalMemory) -> BoxData:
    """tile::gather4: coords = (inner, row0, row1, row2, row3) of a 2-d map whose box has one row; gives 4 rows."""
    shape, first, rows = _four_rows(tmap, coords, "gather4")
    inside = (rows >= 0) & (rows < tmap.dims[1])
    addresses = _wrapped(tmap, tmap.address + first) + rows * tmap.strides[0]
    return _load_rows(tmap, shape, gmem, addresses, None if inside.all() else inside, first)


def _load_rows(
    tmap: TensorMap, shape: Geometry, gmem: GlobalMemory, addresses: I64, inside: Mask | None, first: int
) -> BoxData:
    extent = tmap.dims[0] * tmap.unit // 8
    low, high = max(0, -first), min(shape.inner, extent - first)
    whole = low == 0 and high == shape.inner
    if whole and inside is None:
        data = _read_granules(tmap, gmem, addresses, shape.inner)
    else:
        data = np.zeros((addresses.size, shape.inner), np.uint8)
        if tmap.nan_fill:
            data.view(np.uint16)[:] = OOB_NAN
        rows = addresses if inside is None else addresses[inside]
        kept = slice(None) if inside is None else inside
        if whole and rows.size:
            data[kept] = _read_granules(tmap, gmem, rows, shape.inner)
        elif high > low and rows.size:
            region = _region(gmem, rows + low, high - low, "tensor load", write=False)
            read = region.views[1].take((rows - region.address)[:, None] + np.arange(low, high))
            data[kept, low:high] = _rounded(tmap, read)
    return BoxData(shape, _pad(data, shape) if tmap.element.padded else data)


def _rounded(tmap: TensorMap, read: U8) -> U8:
    """Bytes as they arrive: TF32 types round what is read, but not the fill."""
    return encode("tf32", read.view(np.float32)).view(np.uint8) if tmap.element.tf32 else read


def _read_granules(tmap: TensorMap, gmem: GlobalMemory, addresses: I64, nbytes: int) -> U8:
    """Rows of `nbytes` (a multiple of 16) at 16-byte aligned addresses: uint8 [n, nbytes]."""
    region = _region(gmem, addresses, nbytes, "tensor load", write=False)
    granules = (addresses - region.origins[16]) >> 4
    return _rounded(tmap, region.views[16].take(granules[:, None] + np.arange(nbytes >> 4)).view(np.uint8))


def _pad(data: U8, shape: Geometry) -> U8:
    """Spread groups of 16 elements over 16 bytes each; the padding is not written by the hardware, so it is poison."""
    rows = data.shape[0]
    groups = shape.held // 16
    out = np.full((rows, groups, 16), 0xFF, np.uint8)
    out[:, :, : shape.inner // groups] = data.reshape(rows, groups, -1)
    return out.reshape(rows, shape.held)


def store_box(tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory) -> None:
    """Write the box at a shared offset to global memory; whole 16-byte pieces of a row are written up to the one that
    holds the last element in range.

    Raises IllegalInstruction like `load_box`, and for negative coordinates and 4- or 6-bit padded types.
    """
    _put_box(tmap, coords, smem, offset, gmem, None)


def reduce_box(
    tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory, op: str
) -> None:
    """`global = global op shared` element by element; ranges and clipping as in `store_box`, operations as in
    `reductions`. An operation that the type does not have raises IllegalInstruction."""
    _put_box(tmap, coords, smem, offset, gmem, op)


def store_im2col(tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory) -> None:
    """Write the pixels of an im2col map (`.im2col_no_offs`); see `check_store_im2col` for what the hardware refuses."""
    _putpixels(tmap, coords, smem, offset, gmem, None)


def reduce_im2col(
    tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory, op: str
) -> None:
    """`global = global op shared` on the pixels of an im2col map."""
    _putpixels(tmap, coords, smem, offset, gmem, op)


def check_store_im2col(tmap: TensorMap, coords: Sequence[int], shared_offset: int, op: str | None = None) -> None:
    """What the hardware refuses of a store or reduction: what `check_store` says, a first pixel outside the bounding
    box, and a bounding box that reaches beyond the tensor."""
    _check_write(tmap, coords, shared_offset, op)
    boxed = check_im2col(tmap, coords)
    if min(boxed.lower) < 0 or max(boxed.upper) > 0:
        raise IllegalInstruction(
            f"im2col store with a bounding box from {boxed.lower} to {boxed.upper}: it must lie inside the tensor"
        )


def _putpixels(
    tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory, op: str | None
) -> None:
    check_store_im2col(tmap, coords, offset, op)
    shape, first = tmap.geometry, _inner_start(tmap, coords, "store")
    data = smem.u128.take(granules(shape, smem, offset, shape.rows)).view(np.uint8)
    addresses, inside = pixel_addresses(tmap, pixels(tmap, coords), first)
    _put_rows(tmap, shape, gmem, addresses, inside, first, data, op)


def store_scatter4(tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory) -> None:
    """tile::scatter4: four rows of shared memory go to rows coords[1:5] of a 2-d map, at inner coordinate coords[0]."""
    shape, first, rows = _four_rows(tmap, coords, "scatter4")
    if first < 0 or (rows < 0).any():
        raise IllegalInstruction(f"tensor store at negative coordinates {tuple(coords)}")
    data = smem.u128.take(granules(shape, smem, offset, 4)).view(np.uint8)
    inside = rows < tmap.dims[1]
    addresses = _wrapped(tmap, tmap.address + first) + rows * tmap.strides[0]
    _put_rows(tmap, shape, gmem, addresses, None if inside.all() else inside, first, data, None)


def _put_box(
    tmap: TensorMap, coords: Sequence[int], smem: SharedMemory, offset: int, gmem: GlobalMemory, op: str | None
) -> None:
    check_store(tmap, coords, offset, op)
    shape = tmap.geometry
    first = _inner_start(tmap, coords, "store")
    data = smem.u128.take(granules(shape, smem, offset, shape.rows)).view(np.uint8)
    addresses = row_addresses(tmap, shape, coords, first)
    _put_rows(tmap, shape, gmem, addresses, rows_inside(tmap, shape, coords), first, data, op)


def _put_rows(
    tmap: TensorMap,
    shape: Geometry,
    gmem: GlobalMemory,
    addresses: I64,
    inside: Mask | None,
    first: int,
    data: U8,
    op: str | None,
) -> None:
    extent = -(-tmap.dims[0] * tmap.unit // 128) * 16
    width = min(shape.inner, extent - first)
    if inside is not None:
        addresses, data = addresses[inside], data[inside]
    if width <= 0 or not addresses.size:
        return
    region = _region(gmem, addresses, width, "tensor reduction" if op else "tensor store", write=True)
    if op is None:
        granules = (addresses - region.origins[16]) >> 4
        region.views[16][granules[:, None] + np.arange(width >> 4)] = data.view(np.complex128)[:, : width >> 4]
        return
    raw = RAW[tmap.element.name]
    size = np.dtype(raw).itemsize
    place = ((addresses - region.origins[size]) // size)[:, None] + np.arange(width // size)
    view = region.views[size]
    view[place] = reduce_values(op, tmap.element.name, view[place], data[:, :width].view(raw))


def _four_rows(tmap: TensorMap, coords: Sequence[int], what: str) -> tuple[Geometry, int, I64]:
    shape = tmap.geometry
    if tmap.rank != 2 or tmap.box[1] != 1 or len(coords) != 5:
        raise IllegalInstruction(
            f"tile::{what} needs a 2-d tensor map with a box of one row and 5 coordinates, "
            f"not rank {tmap.rank}, box {tmap.box}, {len(coords)} coordinates"
        )
    return shape, _inner_start(tmap, [coords[0], 0], what), np.array(coords[1:], np.int64)


def _inner_start(tmap: TensorMap, coords: Sequence[int], what: str) -> int:
    """Byte offset of the inner coordinate, after checking it."""
    _ = tmap.geometry
    if len(coords) != tmap.rank:
        raise IllegalInstruction(f"tensor {what}: {len(coords)} coordinates for a rank-{tmap.rank} tensor map")
    bits = coords[0] * tmap.unit
    unit = 128 * tmap.element.bits if tmap.element.padded else 128
    if bits % unit:
        raise IllegalInstruction(
            f"tensor {what}: inner coordinate {coords[0]} of {tmap.element.name} is {bits / 8:g} bytes; "
            f"it must be a multiple of {unit // 8} bytes"
        )
    return bits // 8


def row_addresses(tmap: TensorMap, shape: Geometry, coords: Sequence[int], first: int) -> I64:
    """Byte addresses of the rows of a box, `first` bytes into each, inside the tensor or not."""
    return shape.distance + _wrapped(
        tmap, tmap.address + first + sum(c * s for c, s in zip(coords[1:], tmap.strides, strict=True))
    )


def _wrapped(tmap: TensorMap, address: int) -> int:
    """Virtual addresses have 57 bits, and host code puts no more into a map: a base that was moved below zero, so that
    large coordinates lead back into the tensor, comes round. What a wild map gives is in no tensor, but is a number."""
    bits = 57 if tmap.address < 1 << 57 else 64
    return (address + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def rows_inside(tmap: TensorMap, shape: Geometry, coords: Sequence[int]) -> Mask | None:
    """bool [rows]: which box rows lie inside the tensor in dimensions 1 upwards; None when all do."""
    inside: Mask | None = None
    for d in range(1, tmap.rank):
        if coords[d] < 0 or coords[d] + tmap.box[d] > tmap.dims[d]:
            position = shape.offsets[:, d - 1] + coords[d]
            here = (position >= 0) & (position < tmap.dims[d])
            inside = here if inside is None else inside & here
    return inside


def _region(gmem: GlobalMemory, addresses: I64, nbytes: int, what: str, write: bool) -> Any:
    """The region that holds [a, a + nbytes) of every address; MemoryFault for the first one outside."""
    low, high = int(addresses.min()), int(addresses.max())
    region = gmem.find(low, high + nbytes - low)
    if region is None:
        for address in addresses.tolist():
            gmem.view(address, nbytes, write=write, what=what)
        raise gmem.fault(f"{what} (rows lie in several tensors)", low, high + nbytes - low)
    if write and not region.writable:
        raise MemoryFault(f"{what} of {nbytes} bytes at {low:#x} goes to read-only {region}")
    return region
