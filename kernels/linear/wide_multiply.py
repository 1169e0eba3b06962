"""Products of unpacked weights with activations in shared memory, which lie as TMA copies them with 128-byte swizzle.

Many tokens: wgmma m64nNk16, a warpgroup together, while the next weights are unpacked. Few: mma.sync m16n8k16, each
warp alone, its B operands loaded by ldmatrix. Both leave a thread the same sums: of columns 8 j + 2 t and 8 j + 2 t + 1
of row g, then of row g + 8.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int64, Uint32

from kernels.linear import ptx
from kernels.linear.wide_unpack import BLOCKS, Unpacking

DESCRIPTOR = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
"""K-major with 128-byte swizzle, 1024 bytes from eight tokens to the next eight (PTX: matrix descriptor)."""


class Multiplying(Unpacking):
    """The products of one copy of activations: four blocks of 16 k of all columns."""

    def products(self, sums: list, a: list, box) -> list:
        """sums plus the products of four A operands with the box; perhaps still under way."""
        if self.config.by_warp:
            return self.products_of_warp(sums, a, box)
        first = Int64(Uint32(box) >> 4) | Int64(DESCRIPTOR)
        return ptx.wgmma_bf16(sums, [(a[j], first + 2 * j) for j in range(BLOCKS)])

    def complete(self, sums: list) -> list:
        """The sums once their products are there."""
        return sums if self.config.by_warp else ptx.wgmma_wait(sums)

    def turned(self, row):
        """What the swizzle turns the places of a row by."""
        return row

    def products_of_warp(self, sums: list, a: list, box) -> list:
        """The same by mma.sync. Row r of eight tokens has its 16 bytes i at place i ^ r."""
        lane = cute.arch.lane_idx()
        place = box + lane % 8 * 128 + (lane // 8 ^ self.turned(lane % 8)) * 16
        found = list(sums)
        for tile in range(self.config.columns // 8):
            words = [word for pair in range(2) for word in ptx.load_matrices((place ^ (64 * pair)) + 1024 * tile)]
            d = found[4 * tile : 4 * tile + 4]
            for j in range(BLOCKS):
                d = ptx.mma_bf16(d, a[j], words[2 * j : 2 * j + 2])
            found[4 * tile : 4 * tile + 4] = d
        return found
