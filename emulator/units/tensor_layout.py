"""Index maps of tensor memory: registers of tcgen05.ld and .st, accumulators of tcgen05.mma, lanes of tcgen05.cp.

Formulas of PTX "Data Movement Shape" and "Data Path Layout Organization" in the form that NVIDIA's CuTe layouts give
them; NVIDIA's own kernels pass with them, silicon has not been asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction
from emulator.memory.tmem import COLUMNS, TensorMemory

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
Bits = NDArray[Any]

SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
# Registers of one lane for .x1, and the largest .num.
_PER_STEP = {"32x32b": 1, "16x64b": 1, "16x32bx2": 1, "16x128b": 2, "16x256b": 4}


@dataclass(frozen=True, eq=False)
class RegisterMap:
    """Where register r of warp lane t lies, relative to the address: `lane`, `column` int64 [registers, 32].

    columns: how many columns from the first the access reaches. packed: a register holds the low halves of two columns,
    `column` and the next one.
    """

    registers: int
    columns: int
    lane: I64
    column: I64
    packed: bool
    straight: bool

    @property
    def height(self) -> int:
        """How many lanes of tensor memory the access reaches."""
        return 32 if self.straight else int(self.lane.max()) + 1

    def load(self, tensor: TensorMemory, lane0: int, column0: int) -> U32:
        """Registers uint32 [registers, 32] of tcgen05.ld."""
        words = tensor.words
        if self.straight:
            return words[lane0 : lane0 + 32, column0 : column0 + self.registers].T.copy()
        lane, column = self.lane + lane0, self.column + column0
        if not self.packed:
            return words[lane, column]
        return (words[lane, column] & np.uint32(0xFFFF)) | words[lane, column + 1] << np.uint32(16)

    def store(self, tensor: TensorMemory, lane0: int, column0: int, values: Sequence[U32] | U32) -> None:
        """tcgen05.st of registers, `registers` arrays uint32 [32]."""
        stacked = np.asarray(values, np.uint32)
        words = tensor.words
        if self.straight:
            words[lane0 : lane0 + 32, column0 : column0 + self.registers] = stacked.T
            return
        lane, column = self.lane + lane0, self.column + column0
        if not self.packed:
            words[lane, column] = stacked
            return
        words[lane, column] = stacked & np.uint32(0xFFFF)
        words[lane, column + 1] = stacked >> np.uint32(16)


@cache
def register_map(shape: str, num: int, half_split_offset: int = 0, packed16: bool = False) -> RegisterMap:
    """The map of `.shape.x<num>`; `half_split_offset` is the immediate of 16x32bx2 (columns between its halves);
    `packed16` is .pack::16b / .unpack::16b. Raises ValueError for shapes and counts that PTX does not have."""
    if shape not in SHAPES:
        raise ValueError(f"tcgen05 shape {shape!r}: allowed: {', '.join(SHAPES)}")
    per_step = _PER_STEP[shape]
    if num < 1 or num & (num - 1) or num * per_step > 128:
        raise ValueError(f"tcgen05 {shape}.x{num}: allowed: powers of two up to x{128 // per_step}")
    if not 0 <= half_split_offset < COLUMNS:
        raise ValueError(f"tcgen05 {shape}: halves {half_split_offset} columns apart; allowed: 0..{COLUMNS - 1}")
    t, r = np.arange(32)[None, :], np.arange(num * per_step)[:, None]
    step = 2 if packed16 else 1
    if shape == "32x32b":
        lane, column = t + 0 * r, (r + 0 * t) * step
    elif shape == "16x64b":
        lane, column = t // 4 + 8 * (t % 2) + 0 * r, (t // 2 % 2 + 2 * r) * step
    elif shape == "16x128b":
        lane, column = t // 4 + 8 * (r % 2), (t % 4 + 4 * (r // 2)) * step
    elif shape == "16x256b":
        lane, column = t // 4 + 8 * (r // 2 % 2), (r % 2 + 2 * (t % 4) + 8 * (r // 4)) * step
    else:
        lane, column = t % 16 + 0 * r, r * step + t // 16 * half_split_offset
    reach = int(column.max()) + step
    return RegisterMap(num * per_step, reach, lane, column, packed16, shape == "32x32b" and not packed16)


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of the accumulator of one CTA: all rows of the CTA times columns [first, last) of N lie in `lanes` (one a
    row; a slice where they are contiguous) and in tensor-memory columns 0 .. last - first. A in tensor memory and the
    scale factors of A lie in the same lanes."""

    first: int
    last: int
    lanes: Bits | slice
    index: I64


@cache
def accumulator(rows: int, n: int, pair: bool, weights: bool, lane0: int) -> tuple[Part, ...]:
    """Layout of D for `rows` = M rows of one CTA and N columns, at lane `lane0` of the address.

    PTX layouts A and D: 128 rows in 128 lanes. F (64 rows, one CTA): row r in lane r % 16 + 32 (r / 16), from lane 0
    or 16. B (64 rows of a pair) and E (64 rows, .ws): halves of N in lanes 0..63 and 64..127. G (32 rows, .ws):
    quarters of N in the four quarters of the lanes. Raises IllegalInstruction for a lane that it cannot start at.
    """
    half = rows == 64 and not pair and not weights
    if lane0 not in ((0, 16) if half else (0,)):
        raise IllegalInstruction(
            f"tcgen05.mma with {rows} rows a CTA: D or A at lane {lane0}; allowed: {'0, 16' if half else '0'}"
        )
    if half:
        row = np.arange(64)
        lanes = row % 16 + 32 * (row // 16) + lane0
        return (Part(0, n, lanes, lanes),)
    pieces = 128 // rows
    width = n // pieces
    return tuple(
        Part(i * width, (i + 1) * width, slice(i * rows, (i + 1) * rows), np.arange(i * rows, (i + 1) * rows))
        for i in range(pieces)
    )


@dataclass(frozen=True, eq=False)
class CopyShape:
    """tcgen05.cp: `rows` x `nbytes` of shared memory; `lanes` int64 [rows, copies] of every row."""

    rows: int
    nbytes: int
    lanes: I64


@cache
def copy_shape(shape: str, multicast: str | None) -> CopyShape:
    """Source rows and destination lanes of a tcgen05.cp. Raises IllegalInstruction for combinations that PTX lacks."""
    row = np.arange(128)[:, None]
    table = {
        ("128x256b", None): (128, 32, row),
        ("128x128b", None): (128, 16, row),
        ("4x256b", None): (4, 32, 32 * row[:4]),
        ("64x128b", "warpx2::02_13"): (64, 16, row[:64] + np.array([0, 64])),
        ("64x128b", "warpx2::01_23"): (64, 16, row[:64] % 32 + row[:64] // 32 * 64 + np.array([0, 32])),
        ("32x128b", "warpx4"): (32, 16, row[:32] + 32 * np.arange(4)),
    }
    if (shape, multicast) not in table:
        raise IllegalInstruction(f"tcgen05.cp.{shape} with multicast {multicast}: no such instruction")
    return CopyShape(*table[shape, multicast])
