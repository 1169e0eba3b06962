"""Packed weights in shared memory to A operands of wgmma in registers: BF16 pairs, their block scales applied.

E2M1 times its E4M3 block scale has six significant bits, so it is a BF16 exactly and the block scales cost one
multiplication for two weights and token-independent work alone: w reads as w 2^-126, the scale s becomes s 2^119, their
product w s 2^-7. MXFP4: w 2^-2, then times 2^(e - 127), subnormal where it must be. E4M3 is a BF16 as it is; its scale
multiplies the sums of every 128 k. Powers of two return with alpha (`RETURNED`).
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Boolean, Uint32

from kernels.linear import ptx
from kernels.linear.layout import BF16_MASK, F16_SIGN
from kernels.linear.wide_config import BOX_K, WideConfig
from kernels.shared.configured import Configured
from kernels.shared.ptx import to_bf16x2

BLOCKS = BOX_K // 16
"""Blocks of 16 k that are unpacked at a time: the products that one copy of activations takes part in."""
POWERS = {104: 0x7380, 124: 0x7D80, 127: 0x7F00}
"""Powers of two as BF16."""
RETURNED = {"nvfp4": 128.0, "mxfp4": 4.0, "fp8": 1.0}
"""What sums have to be multiplied by."""


def power_pair(exponent: int) -> Uint32:
    """2^exponent in both halves of a word."""
    return Uint32(POWERS[exponent] * 0x10001)


class Unpacking(Configured):
    """What one lane makes of its part of a unit. `at`: where the first tile of the warp has the unit; `segment`: the
    segment of K that the lane's words belong to; `other`: with two segments in the same words, which of them."""

    config: WideConfig

    def operands(self, at, segment, other: int, half: int) -> list:
        """A operands of four blocks of a half unit: pairs of (row g, row g + 8) x (k 2 t, 2 t + 1 and 2 t + 8,
        2 t + 9)."""
        if self.config.weights == "fp8":
            return self.unpack_e4m3(self.load_e4m3(at, segment, half), other)
        return self.unpack(self.load(at, segment, half), other)

    def bases(self, at, segment) -> list:
        """Where the tiles of this lane have the unit, and its row in them: one tile, or that of rows g and that of
        rows g + 8."""
        c = self.config
        lane = cute.arch.lane_idx()
        if c.segments == 4:
            return [(at + lane // 8 * c.run_bytes, lane // 4 % 2 * 4 + segment)]
        return [(at + tile * c.run_bytes, lane // 4) for tile in range(c.together)]

    def rows(self, other: int) -> list[int]:
        """Which half of a tile holds rows g and rows g + 8 of the operand: with two tiles both hold segment `other`."""
        return [0, 1] if self.config.together == 1 else [other, other]

    # ------------------------------------------------------------------ E2M1

    def load(self, at, segment, half: int) -> list:
        """(words, scales) of each of the lane's tiles."""
        lane, found = cute.arch.lane_idx(), []
        for base, row in self.bases(at, segment):
            words = ptx.load_shared_128(base + half * 512 + row * 64 + lane % 4 * 16)
            place = base + self.config.weight_bytes
            if self.config.weights == "mxfp4":
                scales = [ptx.load_shared_32(place + row * 8 + half * 4)]
            else:
                scales = ptx.load_shared_64(place + row * 16 + half * 8)
            found.append((words, scales))
        return found

    def unpack(self, loaded: list, other: int) -> list:
        """Values times scales."""
        sources, rows = [loaded[0], loaded[-1]], self.rows(other)
        scales = [self.scales_of(source[1], row) for source, row in zip(sources, rows, strict=True)]
        found = []
        for j in range(BLOCKS):
            pairs = [self.pair(sources[h][0][j], 2 * k + rows[h]) for k in range(2) for h in range(2)]
            if self.config.weights == "mxfp4":
                pairs = [ptx.multiply_bf16x2(pair, power_pair(124)) for pair in pairs]
            found.append([ptx.multiply_bf16x2(pair, scales[i % 2][j]) for i, pair in enumerate(pairs)])
        return found

    def pair(self, q, index: int):
        """Pair `index` of the bit plan as two BF16, 2^-126 of their values."""
        sign, magnitude = ((q, q >> 3), (q << 3, q), (q << 1, q << 3), (q << 2, q << 6))[index]
        return ptx.select_bits(sign, magnitude, Uint32(F16_SIGN)) & Uint32(BF16_MASK)

    def scales_of(self, words: list, row: int) -> list:
        """Scales of four blocks of row g or g + 8, each in both halves of a word: 2^119 of E4M3, UE8M0 as it is."""
        if self.config.weights == "mxfp4":
            each = [self.power(words[0] >> 16 * row + 8 * i & 0xFF) for i in range(2)]
            return [each[0], each[0], each[1], each[1]]
        found = []
        for word in words:
            # The exponent of f16 where BF16 has it: 2^-112 of the scale.
            pair = ptx.e4m3_to_f16(word)[row] >> 3
            pair = ptx.multiply_bf16x2(ptx.multiply_bf16x2(pair, power_pair(127)), power_pair(104))
            found += [ptx.both_halves(pair, half) for half in range(2)]
        return found

    def power(self, byte):
        """2^(byte - 127) in both halves of a word, which is subnormal for 0, and NaN for 255."""
        special = Uint32(Boolean((byte + 1) & 0xFE == 0))
        return byte * Uint32(0x800080) | special * Uint32(0x400040)

    # ------------------------------------------------------------------ E4M3

    def load_e4m3(self, at, segment, half: int) -> list:
        """Eight words of each of the lane's tiles: of four blocks (row g, row g + 8)."""
        lane = cute.arch.lane_idx()
        return [
            [
                word
                for i in range(2)
                for word in ptx.load_shared_128(base + (2 * half + i) * 512 + row * 64 + lane % 4 * 16)
            ]
            for base, row in self.bases(at, segment)
        ]

    def unpack_e4m3(self, loaded: list, other: int) -> list:
        """Values without scales."""
        sources, rows, found = [loaded[0], loaded[-1]], self.rows(other), []
        for j in range(BLOCKS):
            words = [sources[h][2 * j + rows[h]] for h in range(2)]
            pairs = [[self.bf16(pair) for pair in ptx.e4m3_to_f16(word)] for word in words]
            found.append([pairs[h][k] for k in range(2) for h in range(2)])
        return found

    def bf16(self, pair):
        """A pair of f16 as BF16: E4M3 is both."""
        return to_bf16x2(*ptx.f16_to_f32(pair))

    def factors_e4m3(self, at, segment, other: int) -> list:
        """Scales of rows g and g + 8."""
        bases = [base for base, _ in self.bases(at, segment)]
        return [
            ptx.load_shared_f32(base + self.config.weight_bytes + 4 * (segment + other))
            for base in (bases[0], bases[-1])
        ]
