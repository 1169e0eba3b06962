"""Faults of quantising passes: each is planted into the kernel of an operation by `planted`."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64, Uint32

from kernels.shared import ptx


def planted(faults: dict[str, type], kernel: type) -> dict[str, type]:
    """The kernel with each of the faults, by name."""
    made = {}
    for name, fault in faults.items():
        about = {"__module__": __name__, "__doc__": fault.__doc__}
        made[name] = type(f"{fault.__name__}{kernel.__name__}", (fault, kernel), about)
    return made


class ScaleOfNextBlock:
    """Every block takes the largest magnitude of a neighbour for its own. Wrong values, unless a row is one block."""

    def largest(self, values):
        own = super().largest(values)
        return Uint32(cute.arch.shuffle_sync_bfly(own, offset=max(1, self.format.lanes)))


class SwizzleMissing:
    """Scales lie row by row where atoms of 128 x 4 are promised. Wrong values, unless there is no swizzle."""

    def swizzled_place(self, row, column, columns):
        return Int64(row) * ((columns + 3) // 4 * 4) + column


class GlobalScaleDropped:
    """The global scale is 1, whatever was given. Wrong values."""

    def encode(self, values, g):
        return super().encode(values, Float32(1.0))


class GlobalScaleTwice:
    """The codes are divided by the global scale once too often. Wrong values, unless it is 1."""

    def nvfp4_step(self, scale, g):
        return ptx.mul(super().nvfp4_step(scale, g), g)


class NibblesSwapped:
    """The even value lies in the high four bits. Wrong values."""

    def nibbles(self, quotients):
        words = super().nibbles(quotients)
        return [(word >> 4 & 0x0F0F0F0F) | (word << 4 & 0xF0F0F0F0) for word in words]


class TiesAway:
    """Ties go away from zero. Wrong values where there are ties."""

    def nibbles(self, quotients):
        return super().nibbles([ptx.mul(q, Float32(1.0 + 2.0**-22)) for q in quotients])


class TailDropped:
    """The last chunk of a row is neither written nor given a scale. Wrong values: poison stays."""

    def put(self, values, g, row, chunk, codes, scales, columns, live, inside):
        before = chunk < columns - 1
        super().put(values, g, row, chunk, codes, scales, columns, live & before, inside & before)


class NanLost:
    """The largest magnitude is found by comparisons that let NaN go. Wrong values where there is NaN."""

    def largest(self, values):
        return super().largest([cutlass.select_(v == v, v, Float32(0.0)) for v in values])


class ReciprocalScale:
    """The global scale is taken for its reciprocal, as some checkpoints store it. Wrong values."""

    def encode(self, values, g):
        return super().encode(values, ptx.rcp(g))


class ScaleFloored:
    """The power of two below is taken where the one above is promised. Wrong values: the largest ones clip."""

    def ue8m0_scale(self, largest):
        byte = super().ue8m0_scale(largest)
        return cutlass.select_((byte > 0) & (byte < 254), byte - 1, byte)


class HalfBlock:
    """The threads of a block do not all hear of its largest magnitude. Wrong values."""

    def largest(self, values):
        found = ptx.bits(values[0]) & 0x7FFFFFFF
        for value in values[1:]:
            found = ptx.max_u32(found, ptx.bits(value) & 0x7FFFFFFF)
        return found


class WordsSwapped:
    """The codes of a thread are stored in the order of big-endian words. Wrong values."""

    def bytes_of(self, quotients):
        return super().bytes_of(quotients)[::-1]


NVFP4 = {
    "scale_of_next_block": ScaleOfNextBlock,
    "swizzle_missing": SwizzleMissing,
    "global_scale_dropped": GlobalScaleDropped,
    "global_scale_twice": GlobalScaleTwice,
    "global_scale_inverted": ReciprocalScale,
    "nibbles_swapped": NibblesSwapped,
    "ties_away": TiesAway,
    "tail_dropped": TailDropped,
    "nan_lost": NanLost,
}
"""Faults of every pass that stores NVFP4."""

FP8 = {
    "scale_of_next_block": ScaleOfNextBlock,
    "scale_floored": ScaleFloored,
    "half_block": HalfBlock,
    "words_swapped": WordsSwapped,
    "tail_dropped": TailDropped,
    "nan_lost": NanLost,
}
"""Faults of every pass that stores FP8."""
