"""Shared-memory matrix descriptors of wgmma and tcgen05, turned into cached index arrays.

Bits of both: [0:13] start >> 4, [16:29] LBO >> 4, [32:45] SBO >> 4, [49:51] base offset. wgmma: [62:63] 0 no swizzle,
1 128B, 2 64B, 3 32B. tcgen05: [46:48] = 1, [52] LBO mode, [61:63] 0 none, 1 128B with 32B atomicity, 2 128B, 4 64B,
6 32B. With W the swizzle span, es the element size and kb = k * es, mb = row * es:

  K-major none        start + (row % 8) * 16 + (row / 8) * SBO + (kb / 16) * LBO + kb % 16
  K-major swizzled    start + (row % 8) * W + (row / 8) * SBO + kb
  MN-major none       start + mb % 16 + (mb / 16) * SBO + (k % 8) * 16 + (k / 8) * LBO
  MN-major swizzled   start + mb % W + (mb / W) * LBO + (k % 8) * W + (k / 8) * SBO      (k % 4, k / 4 at 32B atomicity)

and then the XOR of `swizzle`, on the absolute offset. 296 wgmma maps captured on an H200 agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction
from emulator.memory import swizzle as sw
from emulator.memory.shared import SharedMemory

I64 = NDArray[np.int64]
Bits = NDArray[Any]

_WGMMA = {0: sw.NONE, 1: sw.B128, 2: sw.B64, 3: sw.B32}
_TCGEN05 = {0: sw.NONE, 1: sw.B128_ATOM32, 2: sw.B128, 4: sw.B64, 6: sw.B32}
_RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class MatrixDescriptor:
    """Byte offsets `start`, `lbo`, `sbo`; `base_offset` 0..7 of the swizzle phase."""

    start: int
    lbo: int
    sbo: int
    base_offset: int
    swizzle: sw.Swizzle

    @classmethod
    def wgmma(cls, word: int) -> MatrixDescriptor:
        """Decode the 64-bit descriptor of wgmma.mma_async."""
        return cls._fields(word, _WGMMA[word >> 62 & 3])

    @classmethod
    def tcgen05(cls, word: int) -> MatrixDescriptor:
        """Decode the 64-bit descriptor of tcgen05.mma and tcgen05.cp; IllegalInstruction for reserved encodings."""
        layout = word >> 61 & 7
        if layout not in _TCGEN05:
            raise IllegalInstruction(f"matrix descriptor {word:#018x}: swizzle mode {layout}; allowed 0, 1, 2, 4, 6")
        if word >> 46 & 7 != 1:
            raise IllegalInstruction(f"matrix descriptor {word:#018x}: bits 46..48 are {word >> 46 & 7}, not 1")
        if word >> 52 & 1:
            raise IllegalInstruction(f"matrix descriptor {word:#018x}: absolute leading-dimension mode is sm_103a only")
        return cls._fields(word, _TCGEN05[layout])

    @classmethod
    def _fields(cls, word: int, pattern: sw.Swizzle) -> MatrixDescriptor:
        return cls(
            start=(word & 0x3FFF) << 4,
            lbo=(word >> 16 & 0x3FFF) << 4,
            sbo=(word >> 32 & 0x3FFF) << 4,
            base_offset=word >> 49 & 7,
            swizzle=pattern,
        )


@dataclass(frozen=True, eq=False)
class Operand:
    """Where a matrix of `rows` x `k` elements lies, as 16-byte granules of shared memory.

    granules int64: K-major [rows, k * bits / 128], each granule holding consecutive k of one row; MN-major
    [k, rows * bits / 128], each holding consecutive rows of one k. last: the highest granule.
    """

    rows: int
    k: int
    bits: int
    mn_major: bool
    granules: I64
    last: int

    def read(self, smem: SharedMemory) -> Bits:
        """Raw elements [rows, k], uint8/16/32; 4-bit elements stay packed, two a byte: uint8 [rows, k / 2].

        Raises MemoryFault when the matrix reaches beyond the end of shared memory.
        """
        if (self.last + 1) << 4 > smem.nbytes:
            smem.check_range(self.last << 4, 16, "matrix descriptor read")
        raw = smem.u128.take(self.granules).view(_RAW[max(1, self.bits // 8)])
        return raw.T if self.mn_major else raw

    def addresses(self) -> I64:
        """Byte offsets int64 [rows, k] of all elements (4-bit elements: of their byte)."""
        if self.mn_major:
            per = 128 // self.bits
            row = np.arange(self.rows)
            return (self.granules.T[row // per] << 4) + (row % per * self.bits // 8)[:, None]
        at = np.arange(self.k) * self.bits // 8
        return (self.granules[:, at // 16] << 4) + at % 16


@lru_cache(maxsize=1 << 14)
def operand(word: int, rows: int, k: int, bits: int, mn_major: bool, blackwell: bool) -> Operand:
    """The operand that a descriptor names: `rows` of M or N, `k` elements of `bits` (4, 8, 16, 32) each.

    Raises IllegalInstruction for reserved encodings, for 32B atomicity with K-major data, and for MN-major data of
    less than 8 bits.
    """
    descriptor = MatrixDescriptor.tcgen05(word) if blackwell else MatrixDescriptor.wgmma(word)
    if mn_major:
        if bits < 8:
            raise IllegalInstruction(f"MN-major operand of {bits}-bit elements")
        granules = _mn_major(descriptor, rows, k, bits)
    else:
        if descriptor.swizzle is sw.B128_ATOM32:
            raise IllegalInstruction("128B swizzle with 32B atomicity needs MN-major data")
        granules = _k_major(descriptor, rows, k * bits // 8)
    return Operand(rows, k, bits, mn_major, granules, int(granules.max(initial=0)))


def _k_major(d: MatrixDescriptor, rows: int, nbytes: int) -> I64:
    row = np.arange(rows, dtype=np.int64)[:, None]
    chunk = np.arange(nbytes // 16, dtype=np.int64)
    if d.swizzle is sw.NONE:
        plain = d.start + row % 8 * 16 + row // 8 * d.sbo + chunk * d.lbo
    else:
        plain = d.start + row % 8 * d.swizzle.span + row // 8 * d.sbo + chunk * 16
    return d.swizzle.apply(plain, d.base_offset) >> 4


def _mn_major(d: MatrixDescriptor, rows: int, k: int, bits: int) -> I64:
    kk = np.arange(k, dtype=np.int64)[:, None]
    mb = np.arange(rows * bits // 128, dtype=np.int64) * 16
    if d.swizzle is sw.NONE:
        plain = d.start + mb // 16 * d.sbo + kk % 8 * 16 + kk // 8 * d.lbo
    else:
        depth = 4 if d.swizzle is sw.B128_ATOM32 else 8
        span = d.swizzle.span
        plain = d.start + mb % span + mb // span * d.lbo + kk % depth * span + kk // depth * d.sbo
    return d.swizzle.apply(plain, d.base_offset) >> 4
