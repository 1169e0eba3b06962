"""What the box of a tensor map looks like, apart from where it is: rows, distances, widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.memory.swizzle import Swizzle

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Geometry:
    """rows: number of box rows (runs along dimension 0), dimension 1 fastest; offsets int64 [rows, rank - 1]: element
    offsets of a row in dimensions 1 upwards, element strides applied; distance int64 [rows]: the same in bytes;
    inner: bytes of a row in global memory; held: bytes of a row in shared memory; pitch: bytes between rows there."""

    rows: int
    offsets: I64
    distance: I64
    inner: int
    held: int
    pitch: int
    swizzle: Swizzle

    @property
    def footprint(self) -> int:
        """Bytes of shared memory from the first row to the end of the last; a swizzled row may use all of its pitch."""
        return max(0, self.rows - 1) * self.pitch + (self.pitch if self.swizzle.mask else self.held)


def pixel_geometry(pixels: int, nbytes: int, rank: int, swizzle: Swizzle) -> Geometry:
    """Geometry of the pixels of an im2col map, `nbytes` of channels each. Where a pixel lies depends on coordinates, so
    offsets and distances are zero."""
    return Geometry(
        rows=pixels,
        offsets=np.zeros((pixels, rank - 1), np.int64),
        distance=np.zeros(pixels, np.int64),
        inner=nbytes,
        held=nbytes,
        pitch=max(nbytes, swizzle.span) if swizzle.mask else nbytes,
        swizzle=swizzle,
    )


def box_geometry(
    box: Sequence[int], steps: Sequence[int], strides: Sequence[int], bits: int, padded: bool, swizzle: Swizzle
) -> Geometry:
    """Geometry of a box (elements per dimension) with element strides `steps` (the first is ignored), byte `strides` of
    dimensions 1 upwards and `bits` a step of dimension 0; `padded` types hold one byte an element in shared memory."""
    counts = [-(-size // step) for size, step in zip(box[1:], steps[1:], strict=True)]
    rows = int(np.prod(counts, dtype=np.int64))
    offsets = np.zeros((rows, len(counts)), np.int64)
    grids = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in reversed(counts)), indexing="ij")
    for d, grid in enumerate(reversed(grids)):
        offsets[:, d] = grid.ravel() * steps[d + 1]
    inner = box[0] * bits // 8
    held = box[0] if padded else inner
    return Geometry(
        rows=rows,
        offsets=offsets,
        distance=offsets @ np.array(strides, np.int64),
        inner=inner,
        held=held,
        pitch=max(held, swizzle.span) if swizzle.mask else held,
        swizzle=swizzle,
    )
