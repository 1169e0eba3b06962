"""Which bytes and words a tcgen05 operation touches, for the checkers; nothing here runs unless one listens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.memory.tmem import split_address
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
from emulator.units.tensor_layout import Part, copy_shape

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


def mma_touches(product: Product) -> list[Touch]:
    """What an MMA reads (A, B, scale factors, D when it accumulates) and writes (D, without disabled lanes)."""
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
    return found


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


def copy_touches(to_address: int, descriptor: int, shape: str, multicast: str | None = None) -> list[Touch]:
    """What a tcgen05.cp reads from shared and writes to tensor memory in one CTA."""
    form = copy_shape(shape, multicast)
    lane, column = split_address(to_address)
    source = operand(descriptor, form.rows, form.nbytes, 8, False, True)
    return [
        _shared(0, source.granules),
        _tensor(0, "write", form.lanes.ravel() + lane, column, form.nbytes // (OPERAND_BYTES // OPERAND_COLUMNS)),
    ]


def _shared(cta: int, granules: I64) -> Touch:
    return Touch(cta, "shared", "read", granules.ravel() << 4, 16)


def _tensor(cta: int, kind: str, lanes: I64, column: int, width: int) -> Touch:
    where = (lanes[:, None] << 16 | column + np.arange(width)).ravel()
    return Touch(cta, "tensor", kind, where, 4)
