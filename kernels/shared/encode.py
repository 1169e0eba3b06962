"""Sixteen values in the registers of a thread become codes and a block scale, exactly as IEEE fp32 arithmetic has it.

    NVFP4   scale = E4M3(amax / (6 g))                        code = E2M1(x / (scale g))
    FP8     scale = least power of two s with 448 s >= amax   code = E4M3(x / s)
            or fp32 amax / 448

Each quotient is rounded to fp32 first, as a division instruction does. A block takes the reciprocal of its step b as
two fp32 numbers y + z, y cut and z what it lacks; then fl(x y + fl(x z)) falls on the same side of every midpoint of a
code as the rounded quotient does (tests/kernels/shared/test_division.py), but for three significands of b. z is not
negative, so -0 stays -0. Such blocks, and those whose step or amax is far from 1 (2^-60, 2^60, 2^100) and would
under- or overflow on the way, divide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32, const_expr

from kernels.shared import ptx
from kernels.shared.formats import CHUNK, E2M1_LARGEST, E4M3_LARGEST, BlockFormat

NAN_BITS, INFINITY_BITS = 0x7FC00000, 0x7F800000
LEAST_STEP, LARGEST_STEP, LARGEST_AMAX = 0x21800000, 0x5D800000, 0x71800000
"""Bits of 2^-60, 2^60 and 2^100."""
STEP_RANGE = LARGEST_STEP - LEAST_STEP
BELOW_2, BELOW_4 = 2.0**23 - 2, 2.0**24 - 4
"""Adding one to a size rounds it to halves below 2 and to integers above; the other, to integers below 4 and to even
ones above. Ties go to the even code: codes are counted from an even number."""
BELOW_2_BITS, BELOW_4_BITS = 0x4AFFFFFC, 0x4B7FFFFC
APART = BELOW_2_BITS - BELOW_4_BITS + 2
"""What brings the second word to the first, where size 4, code 6, is no more than 4 steps further."""
BELOW_2_SUM = sum(BELOW_2_BITS << 4 * i for i in range(8)) & 0xFFFFFFFF
"""What the eight words add to the codes, each at its place."""
MOST = 6.5
"""Sizes up to here have a code without saturating."""
EXCEPTIONS = 0x005FFFFC
"""Bits of a significand that are all 1 in the three that a reciprocal fails for, 0x7FFFFF, 0x5FFFFD and 0x5FFFFE."""


def pairwise(values: list, combine: Callable[[Any, Any], Any]) -> Any:
    """One of many: neighbours are combined until one is left."""
    while len(values) > 1:
        values = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) & ~1 :]
    return values[0]


class Loaded(list):
    """Sixteen floats that were loaded as eight words of BF16; a kernel that changes them makes a list of its own."""

    def __init__(self, words: list):
        super().__init__(v for w in words for v in ptx.of_bf16x2(w))
        self.words = words


class Encoder:
    """Quantisation of chunks; mixed into the kernels, whose `config.format` says how."""

    config: Any

    @property
    def format(self) -> BlockFormat:
        """What is stored."""
        return self.config.format

    def encode(self, values: list, g) -> tuple:
        """Words of codes and the block scale: a byte in a word, or the bits of an fp32. g: the global scale of
        NVFP4."""
        return self.encode_under(self.largest(values), values, g)

    def encode_under(self, largest, values: list, g) -> tuple:
        """The same where the bits of the block's largest magnitude are known."""
        if self.format.name == "nvfp4":
            scale = self.nvfp4_scale(ptx.as_float(largest), g)
            step = self.nvfp4_step(scale, g)
            return self.nibbles(self.quotients(list(values), largest, step)), scale
        if self.format.scale == "fp32":
            amax = ptx.max_nan(ptx.as_float(largest), Float32(self.format.floor_f32))
            step = ptx.div(amax, Float32(E4M3_LARGEST))
            return self.bytes_of(self.quotients(list(values), largest, step)), ptx.bits(step)
        byte = self.ue8m0_scale(largest)
        inverse = self.power_of_two(254 - byte, byte == 255)
        return self.bytes_of([ptx.mul(v, inverse) for v in values]), byte

    def largest(self, values: list):
        """Bits of the largest magnitude of the block, NaN above all."""
        if isinstance(values, Loaded):
            pair = pairwise([ptx.magnitude_bf16x2(w) for w in values.words], ptx.max_nan_bf16x2)
            found = ptx.max_u32(pair << 16, pair & 0xFFFF0000)
        else:
            found = ptx.bits(pairwise([ptx.magnitude(v) for v in values], ptx.max_nan))
        offset = 1
        while offset < self.format.lanes:
            found = ptx.max_u32(found, Uint32(cute.arch.shuffle_sync_bfly(found, offset=offset)))
            offset *= 2
        return found

    # ------------------------------------------------------------------ scales

    @cute.jit
    def nvfp4_scale(self, amax, g):
        """E4M3 byte of amax / (6 g): saturates at 448, NaN is 0x7F."""
        unit = ptx.mul(Float32(E2M1_LARGEST), g)
        plain, inverse = self.plain(unit), self.reciprocal(unit)
        quotient = self.divide(amax, inverse)
        if (ptx.bits(amax) > LARGEST_AMAX) | (plain == False):  # noqa: E712
            quotient = ptx.div(amax, unit)
        return ptx.to_e4m3(quotient)

    def nvfp4_step(self, scale, g):
        """What codes are multiples of: the scale's value times g."""
        return ptx.mul(ptx.from_e4m3(scale), g)

    def ue8m0_scale(self, largest):
        """Byte of the smallest power of two s with 448 s >= amax, from exponent and mantissa: 448 is 1.75 x 2^8."""
        above = cutlass.select_((largest & 0x007FFFFF) > 0x00600000, Int32(1), Int32(0))
        byte = cutlass.max(Int32(largest >> 23) - 8 + above, Int32(self.format.floor_byte))
        byte = cutlass.select_(largest >= INFINITY_BITS, Int32(254), byte)
        return cutlass.select_(largest > INFINITY_BITS, Int32(255), byte)

    def power_of_two(self, byte, is_nan):
        """2^(byte - 127); byte 0, which is a subnormal number, and NaN included."""
        word = cutlass.select_(byte <= 0, Uint32(0x00400000), Uint32(byte) << 23)
        return ptx.as_float(cutlass.select_(is_nan, Uint32(NAN_BITS), word))

    # ------------------------------------------------------------------ codes

    @cute.jit
    def quotients(self, values: list, largest, step) -> list:
        """values / step, rounded to fp32; signed zeros under a step of 0; NaN becomes +6 for E2M1, which has none."""
        nothing = ptx.bits(step) == 0
        if const_expr(self.saturates):
            # The conversion of other architectures saturates; sums of sizes do not.
            if largest > ptx.bits(ptx.mul(step, Float32(MOST))):
                values = [self.within(v, ptx.mul(step, Float32(MOST))) for v in values]
                largest = Uint32(0)
        found = values
        if (self.plain(step) & (largest <= LARGEST_AMAX)) | nothing:
            inverse = [cutlass.select_(nothing, Float32(0.0), part) for part in self.reciprocal(step)]
            found = [self.divide(v, inverse) for v in values]
        else:
            found = [self.defined(ptx.div(v, step)) for v in values]
        return found

    @property
    def saturates(self) -> bool:
        """Whether values have to be within the codes' range before they become codes."""
        return self.format.name == "nvfp4" and not self.format.native

    def within(self, value, bound):
        """A value between -bound and bound; NaN stays, and so do signs."""
        return ptx.max_nan(ptx.min_nan(value, bound), ptx.negative(bound))

    def plain(self, step):
        """Whether a reciprocal of this number will do."""
        word = ptx.bits(step)
        return (word - LEAST_STEP <= STEP_RANGE) & ((word & EXCEPTIONS) != EXCEPTIONS)

    def reciprocal(self, step) -> tuple:
        """1 / step as two fp32 numbers, neither of the other sign: an approximation and a step of Newton, cut, and what
        it lacks. Of approximations that are one bit apart the same two come, so all hardware has the same codes."""
        guess = ptx.rcp_approx(step)
        lacks = ptx.fma(ptx.negative(step), guess, Float32(1.0))
        high = ptx.fma_cut(guess, lacks, guess)
        return high, ptx.mul(ptx.fma(ptx.negative(step), high, Float32(1.0)), high)

    def divide(self, value, inverse):
        """value over a step by its reciprocal."""
        high, low = inverse
        return ptx.fma(value, high, ptx.mul(value, low))

    def defined(self, quotient):
        """NaN as +6 where codes have none."""
        if self.format.name != "nvfp4":
            return quotient
        is_nan = (ptx.bits(quotient) & 0x7FFFFFFF) > INFINITY_BITS
        return cutlass.select_(is_nan, Float32(E2M1_LARGEST), quotient)

    def nibbles(self, quotients: list) -> list:
        """Two words of eight E2M1 codes, the first in the lowest bits."""
        halves = (quotients[:8], quotients[8:])
        if self.format.native:
            return [ptx.to_e2m1x8(half) for half in halves]
        return [self.e2m1x8(half) for half in halves]

    def e2m1x8(self, quotients: list):
        """The same by sums; sizes are at most 6.5. Codes count steps of 1/2 up to 2, of 1 up to 4, of 2 beyond. Fp32
        numbers have such steps where their exponent changes, and their words count on across it. Of two sums, each with
        a change at one of the places, the smaller one is right. Signs are those of E4M3 bytes.
        """
        word = Uint32(-BELOW_2_SUM & 0xFFFFFFFF)
        for i, quotient in enumerate(quotients):
            size = ptx.magnitude(quotient)
            low, high = (Int32(ptx.bits(ptx.add(size, Float32(c)))) for c in (BELOW_2, BELOW_4))
            word = word + (Uint32(ptx.min_s32(high + APART, low)) << (4 * i))
        even, odd = ptx.to_e4m3x4(quotients[::2]), ptx.to_e4m3x4(quotients[1::2])
        signs = ((even >> 4) & 0x0F0F0F0F) | (odd & 0xF0F0F0F0)
        return word | (signs & 0x88888888)

    def bytes_of(self, quotients: list) -> list:
        """Four words of four E4M3 bytes."""
        return [ptx.to_e4m3x4(quotients[i : i + 4]) for i in range(0, CHUNK, 4)]

    # ------------------------------------------------------------------ stores

    def put(self, values: list, g, row, chunk, codes, scales, columns, live: Boolean, inside: Boolean) -> None:
        """Codes and scale of a chunk to their place. live: it exists; inside: its scale has a place, padding included.

        columns: chunks of a row. codes, scales: addresses.
        """
        form = self.format
        words, scale = self.encode(values, g)
        place = codes + (Int64(row) * columns + chunk) * form.code_bytes
        ptx.store_words(place, words, live)
        if form.swizzled:
            scale = cutlass.select_(live, Uint32(scale), Uint32(0))
            ptx.store_byte(scales + self.swizzled_place(row, chunk, columns), scale, inside)
            return
        block = Int64(row) * (columns // form.lanes) + chunk // form.lanes
        first = live if form.lanes == 1 else live & (chunk % form.lanes == 0)
        if const_expr(form.scale == "fp32"):
            ptx.store_words(scales + block * 4, [scale], first)
        else:
            ptx.store_byte(scales + block, Uint32(scale), first)

    def swizzled_place(self, row, column, columns):
        """Offset of a scale: atoms of 128 rows x 4, of 512 bytes (PTX, scale factors of tcgen05.mma)."""
        atom = Int64(row // 128) * ((columns + 3) // 4) + column // 4
        return atom * 512 + (row % 32) * 16 + row % 128 // 32 * 4 + column % 4
