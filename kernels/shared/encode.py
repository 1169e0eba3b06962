"""Sixteen values in the registers of a thread become codes and a block scale, exactly as IEEE fp32 arithmetic has it.

    NVFP4   scale = E4M3(amax / (6 g))                        code = E2M1(x / (scale g))
    FP8     scale = least power of two s with 448 s >= amax   code = E4M3(x / s)
            or fp32 amax / 448

Each quotient is rounded to fp32 first, as a division instruction does. A block takes one reciprocal y of its step b;
then q = x y, corrected once by the remainder x - q b, falls on the same side of every midpoint of a code as the
rounded quotient does (tests/kernels/shared/test_division.py), unless all bits of b's significand are 1 (Markstein
1990). Such blocks, and those whose step or amax is far from 1 (2^-60, 2^60, 2^100) and would under- or overflow on the
way, divide.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32, const_expr

from kernels.shared import ptx
from kernels.shared.formats import CHUNK, E2M1_LARGEST, E4M3_LARGEST, BlockFormat

NAN_BITS, INFINITY_BITS = 0x7FC00000, 0x7F800000
LEAST_STEP, LARGEST_STEP, LARGEST_AMAX = 0x21800000, 0x5D800000, 0x71800000
"""Bits of 2^-60, 2^60 and 2^100."""
MAGIC = 8388608.0
"""2^23: fp32 numbers from here on are integers, so adding it rounds to one, ties to even."""
MAGIC_SUM = sum(0x4B000000 << 4 * i for i in range(8)) & 0xFFFFFFFF
"""What eight times 2^23 add to a word of codes, each at its place."""
SIGNIFICAND = 0x007FFFFF


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
        largest = self.largest(values)
        if self.format.name == "nvfp4":
            scale = self.nvfp4_scale(ptx.as_float(largest), g)
            step = self.nvfp4_step(scale, g)
            return self.nibbles(self.quotients(values, largest, step)), scale
        if self.format.scale == "fp32":
            amax = ptx.max_nan(ptx.as_float(largest), Float32(self.format.floor_f32))
            step = ptx.div(amax, Float32(E4M3_LARGEST))
            return self.bytes_of(self.quotients(values, largest, step)), ptx.bits(step)
        byte = self.ue8m0_scale(largest)
        inverse = self.power_of_two(254 - byte, byte == 255)
        return self.bytes_of([ptx.mul(v, inverse) for v in values]), byte

    def largest(self, values: list):
        """Bits of the largest magnitude of the block, NaN above all."""
        most = ptx.magnitude(values[0])
        for value in values[1:]:
            most = ptx.max_nan(most, ptx.magnitude(value))
        found = ptx.bits(most)
        offset = 1
        while offset < self.format.lanes:
            found = ptx.max_u32(found, Uint32(cute.arch.shuffle_sync_bfly(found, offset=offset)))
            offset *= 2
        return found

    # ------------------------------------------------------------------ scales

    def nvfp4_scale(self, amax, g):
        """E4M3 byte of amax / (6 g): saturates at 448, NaN is 0x7F."""
        quotient = ptx.div(amax, ptx.mul(Float32(E2M1_LARGEST), g))
        zero = Float32(0.0)
        return ptx.to_e4m3x4([quotient, zero, zero, zero])

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
        word = ptx.bits(step)
        plain = (word >= LEAST_STEP) & (word <= LARGEST_STEP) & (largest <= LARGEST_AMAX)
        plain = plain & ((word & SIGNIFICAND) != SIGNIFICAND)
        found = values
        if plain | (word == 0):
            inverse = cutlass.select_(word == 0, Float32(0.0), ptx.rcp(step))
            found = [self.divide(v, step, inverse) for v in values]
        else:
            found = [self.defined(ptx.div(v, step)) for v in values]
        return found

    def divide(self, value, step, inverse):
        """value / step by its reciprocal. The remainder is taken with the sign that lets -0 stay -0."""
        quotient = ptx.mul(value, inverse)
        remainder = ptx.fma(quotient, step, ptx.negative(value))
        return ptx.fma(ptx.negative(remainder), inverse, quotient)

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
        """The same by sums. Codes count steps of 1/2 up to 2, of 1 up to 4, of 2 up to 6, and each part starts at an
        even code: so their sum rounds ties to the even code. Adding 2^23 rounds to an integer.
        """
        word, signs = Uint32(0), Uint32(0)
        for i, quotient in enumerate(quotients):
            size, magic = ptx.magnitude(quotient), Float32(MAGIC)
            code = ptx.fma(ptx.fma_sat(size, Float32(0.5), Float32(0.0)), Float32(4.0), magic)
            code = ptx.fma(ptx.fma_sat(size, Float32(0.5), Float32(-1.0)), Float32(2.0), code)
            code = ptx.add(ptx.fma_sat(size, Float32(0.5), Float32(-2.0)), code)
            word = word + (ptx.bits(code) << (4 * i))
            signs = signs | ((ptx.bits(quotient) >> (28 - 4 * i)) & (8 << (4 * i)))
        return (word - MAGIC_SUM) | signs

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
