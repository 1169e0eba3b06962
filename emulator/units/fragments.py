"""How the matrices of mma.sync and wgmma lie in the registers of one warp (PTX ISA 9.7.14.5, 9.7.14.6, 9.7.15.5).

Lane = 4 g + t. A row of A, or a column of B, is a run of words, whatever the element type:

  A     register i   row g + 8 (i % 2), word t + 4 (i / 2)        (8 rows: register 0, word t)
  B     register i   column g, word t + 4 i
  C, D  register j   row g + 8 (j / 2 % 2), column 8 (j / 4) + 2 t + j % 2; f16 holds two columns in a register
  sparse metadata    one 4-bit code for two stored elements (tf32: one), low code first; see `positions`

A warp of a warpgroup holds 16 of the 64 rows of wgmma's D and A in just this way. Words captured on an H200 agree,
except where `positions` says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction

Bits = NDArray[Any]
I64 = NDArray[np.int64]


def _stacked(registers: Sequence[Bits] | Bits) -> Bits:
    return registers if isinstance(registers, np.ndarray) else np.stack(registers)


def matrix_a(registers: Sequence[Bits] | Bits) -> Bits:
    """Words [16 rows, 2 n] of n registers of 32 lanes; one register holds 8 rows of 4 words."""
    stacked = _stacked(registers)
    if len(registers) == 1:
        return stacked.reshape(8, 4)
    return stacked.reshape(-1, 2, 8, 4).transpose(1, 2, 0, 3).reshape(16, -1)


def matrix_b(registers: Sequence[Bits] | Bits) -> Bits:
    """Words [8 columns, 4 n] of n registers of 32 lanes."""
    return _stacked(registers).reshape(-1, 8, 4).transpose(1, 0, 2).reshape(8, -1)


def accumulator(registers: Sequence[Bits] | Bits, halves: bool = False) -> Bits:
    """C [rows, columns] of registers of 32 lanes: 16 rows of n / 2 columns a register pair, or 8 rows of two registers.
    `halves`: registers of two f16 each."""
    stacked = _stacked(registers)
    if halves:
        pairs = stacked.view(np.uint16).reshape(-1, 2, 8, 4, 2)
        return pairs.transpose(1, 2, 0, 3, 4).reshape(16, -1)
    if len(registers) == 2:
        return stacked.reshape(2, 8, 4).transpose(1, 2, 0).reshape(8, 8)
    return stacked.reshape(-1, 2, 2, 8, 4).transpose(1, 3, 0, 4, 2).reshape(16, -1)


def registers_of(matrix: Bits) -> Bits:
    """The inverse of `accumulator`: [n registers, 32]; a uint16 matrix is packed two to a register."""
    if matrix.dtype == np.uint16:
        pairs = matrix.reshape(2, 8, -1, 4, 2).transpose(2, 0, 1, 3, 4)
        return np.ascontiguousarray(pairs).view(np.uint32).reshape(-1, 32)
    if matrix.shape[0] == 8:
        return np.ascontiguousarray(matrix.reshape(8, 4, 2).transpose(2, 0, 1)).reshape(2, 32)
    parts = matrix.reshape(2, 8, -1, 4, 2).transpose(2, 0, 4, 1, 3)
    return np.ascontiguousarray(parts).reshape(-1, 32)


@cache
def _places(codes: int, selector: int, by_row: bool) -> tuple[I64, Bits]:
    """Lane and shift [16 rows, codes] of every metadata code.

    Codes of 16- and 32-bit types (`by_row` False) lie in two lanes that hold both rows g and g + 8, those of 8- and
    4-bit types in lanes of one row each. Captured: 8 codes not by row, 16 codes by row. The half-length forms (4 codes
    not by row in the one lane that the selector names, 8 codes by row in the two lanes) follow the same pattern; PTX
    shows them in figures only.
    """
    row, code = np.arange(16)[:, None], np.arange(codes)[None, :]
    g, h = row % 8, row // 8
    if by_row:
        lane = 4 * g + h + (2 * (code // 8) if codes == 16 else 2 * selector)
        return lane, (4 * (code % 8) + 0 * row).astype(np.uint32)
    lane = 4 * g + (2 * selector + code // 4 if codes == 8 else selector + 0 * code)
    return lane, (16 * h + 4 * (code % 4)).astype(np.uint32)


def selectors(codes: int, by_row: bool) -> int:
    """How many values the sparsity selector of such metadata may take."""
    return 1 if codes == 16 else 4 if codes == 4 else 2


def positions(metadata: Bits, selector: int, bits: int, stored: int, ordered: bool) -> I64:
    """Logical column of every stored element of A: int64 [16, stored].

    metadata uint32 [32 lanes]; `bits` of an element (4: pairs of elements stay together); `stored` elements a row.
    Raises IllegalInstruction for codes that PTX leaves undefined: two equal positions, descending ones when `ordered`,
    and for 32-bit elements anything but 0x4 and 0xE.
    """
    unit = stored // 2 if bits == 4 else stored
    codes = unit if bits == 32 else unit // 2
    lane, shift = _places(codes, selector, bits <= 8)
    code = metadata[lane] >> shift & np.uint32(15)
    low, high = (code & 3).astype(np.int64), (code >> 2).astype(np.int64)
    bad = ~np.isin(code, (4, 14)) if bits == 32 else (low >= high if ordered else low == high)
    if bad.any():
        row, at = (int(x) for x in np.argwhere(bad)[0])
        raise IllegalInstruction(f"sparse metadata code {int(code[row, at]):#x} for row {row}, group {at} is undefined")
    if bits == 32:
        return 2 * np.arange(codes) + low // 2
    found = 4 * np.arange(codes)[None, :, None] + np.stack([low, high], -1)
    found = found.reshape(16, -1)
    if bits == 4:
        found = (2 * found[:, :, None] + np.arange(2)).reshape(16, -1)
    return found


def spread(values: Bits, where: I64) -> Bits:
    """A sparse matrix [rows, stored] as a dense one [rows, 2 stored] with zeros, for integer products."""
    out = np.zeros((values.shape[0], 2 * values.shape[1]), values.dtype)
    out[np.arange(values.shape[0])[:, None], where] = values
    return out
