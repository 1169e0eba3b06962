"""Which bytes and words a tcgen05 operation or a tensor copy touches, for the checkers; nothing here runs unless one
listens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emulator.memory.tensormap import TensorMap
from emulator.memory.tmem import split_address
from emulator.units import tma
from emulator.units.descriptors import operand
from emulator.units.instruction import InstrDescriptor
from emulator.units.tcgen05 import (
    OPERAND_BYTES,
    OPERAND_COLUMNS,
    Product,
    accumulator_parts,
    scale_column,
    smem_operand,
)
from emulator.units.tensor_layout import Part, RegisterMap, copy_shape

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Touch:
    """Accesses of one kind: `cta` 0 or 1 of the pair; space shared (`where`: byte offsets of 16-byte pieces) or tensor
    (`where`: lane << 16 | column of 32-bit words); `kind` read or write. `where` int64 [n], `nbytes` each."""

    cta: int
    space: str
    kind: str
    where: I64
    nbytes: int


def mma_touches(product: Product) -> tuple[Touch, ...]:
    """What an MMA reads (A, B, scale factors, D when it accumulates) and writes (D, without disabled lanes). The same
    product gives the same arrays."""
    off = product.disable_lanes
    return _mma_touches(product if off is None else replace(product, disable_lanes=tuple(off)))


@lru_cache(1 << 10)
def _mma_touches(product: Product) -> tuple[Touch, ...]:
    shape, form = product.shape, product.form
    group = 2 if form.pair else 1
    parts, column = accumulator_parts(product, shape)
    found: list[Touch] = []
    for cta in range(group):
        b = smem_operand(product.b, shape.n // group, shape.b, shape.mn_major_b, shape)
        found.append(_shared(cta, b.granules))
        if not form.a_from_tensor:
            a = smem_operand(product.a, shape.m // group, shape.a, shape.mn_major_a, shape)
            found.append(_shared(cta, a.granules))
        off = product.disable_lanes[4 * cta : 4 * cta + 4] if product.disable_lanes is not None else [0] * 4
        disabled = np.unpackbits(np.array(off, np.uint32).view(np.uint8), bitorder="little").astype(bool)
        for part in parts:
            if form.a_from_tensor:
                found.append(_tensor(cta, "read", part.index, split_address(product.a)[1], OPERAND_COLUMNS))
            if product.scales is not None:
                found += _scales(cta, product.scales, part, shape)
            lanes, width = part.index[~disabled[part.index]], part.last - part.first
            if product.enable:
                found.append(_tensor(cta, "read", part.index, column, width))
            found.append(_tensor(cta, "write", lanes, column, width))
    return tuple(found)


def _scales(cta: int, scales: tuple[int, int], part: Part, shape: InstrDescriptor) -> list[Touch]:
    """Words of the scale factors: A's in the lanes of its rows, B's in every quarter that the part uses."""
    at_a, at_b = (scale_column(s) for s in scales)
    row = np.arange(part.index.size)
    n = np.arange(part.last - part.first)
    quarters = np.unique(part.index // 32)[:, None]
    return [
        Touch(cta, "tensor", "read", part.index << 16 | at_a + row // 32, 4),
        Touch(cta, "tensor", "read", ((32 * quarters + n % 32) << 16 | at_b + n // 32).ravel(), 4),
    ]


@lru_cache(1 << 10)
def copy_touches(to_address: int, descriptor: int, shape: str, multicast: str | None = None) -> tuple[Touch, ...]:
    """What a tcgen05.cp reads from shared and writes to tensor memory in one CTA."""
    form = copy_shape(shape, multicast)
    lane, column = split_address(to_address)
    source = operand(descriptor, form.rows, form.nbytes, 8, False, True)
    return (
        _shared(0, source.granules),
        _tensor(0, "write", form.lanes.ravel() + lane, column, form.nbytes // (OPERAND_BYTES // OPERAND_COLUMNS)),
    )


@lru_cache(1 << 10)
def register_words(index: RegisterMap, lane: int, column: int) -> I64:
    """Tensor-memory addresses [registers, 32] (twice as many registers if packed) of a tcgen05.ld or .st."""
    first = ((index.lane + lane) << 16) | (index.column + column)
    return np.concatenate([first, first + 1]) if index.packed else first


# ---------------------------------------------------------------- tensor copies
def box_rows(tmap: TensorMap, coords: Sequence[int], write: bool = False) -> tuple[I64, int]:
    """Global byte addresses of the rows of a box that lie inside the tensor, and the bytes touched of each."""
    shape = tmap.geometry
    first = coords[0] * tmap.unit // 8
    addresses = tma.row_addresses(tmap, shape, coords, 0)
    return _clipped(tmap, addresses, tma.rows_inside(tmap, shape, coords), first, write)


def four_rows(tmap: TensorMap, coords: Sequence[int], write: bool = False) -> tuple[I64, int]:
    """The same for tile::gather4 and scatter4: inner coordinate and four rows."""
    rows = np.array(coords[1:], np.int64)
    inside = (rows >= 0) & (rows < tmap.dims[1])
    return _clipped(tmap, tmap.address + rows * tmap.strides[0], inside, coords[0] * tmap.unit // 8, write)


def pixel_rows(tmap: TensorMap, at: Sequence[int], write: bool = False) -> tuple[I64, int]:
    """The same for im2col: rank coordinates, of a load followed by rank - 2 offsets."""
    places = tma.pixels(tmap, at[: tmap.rank])
    if len(at) > tmap.rank:
        places = places + np.array([*at[tmap.rank :], 0], np.int64)
    addresses, inside = tma.pixel_addresses(tmap, places, 0)
    return _clipped(tmap, addresses, inside, at[0] * tmap.unit // 8, write)


def _clipped(
    tmap: TensorMap, addresses: I64, inside: NDArray[np.bool_] | None, first: int, write: bool
) -> tuple[I64, int]:
    """Inner bytes [first, first + box) clipped: loads at the extent, stores at the next multiple of 16 bytes."""
    extent = tmap.dims[0] * tmap.unit // 8
    if write:
        extent = -(-extent // 16) * 16
    low, high = max(first, 0), min(first + tmap.geometry.inner, extent)
    if high <= low:
        return np.empty(0, np.int64), 0
    return (addresses if inside is None else addresses[inside]) + low, high - low


def _shared(cta: int, granules: I64) -> Touch:
    return Touch(cta, "shared", "read", granules.ravel() << 4, 16)


def _tensor(cta: int, kind: str, lanes: I64, column: int, width: int) -> Touch:
    where = (lanes[:, None] << 16 | column + np.arange(width)).ravel()
    return Touch(cta, "tensor", kind, where, 4)
