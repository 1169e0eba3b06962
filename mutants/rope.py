"""rope with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float32

from kernels.rope.simt import Rope
from kernels.shared import ptx


class HalfSplit(Rope):
    """Pairs are words apart instead of neighbours: the first and the second half of a thread's values. Wrong values."""

    def turned(self, words, cos, sin):
        low = [(a & 0xFFFF) | (b << 16) for a, b in ((words[0], words[2]), (words[1], words[3]))]
        high = [(a >> 16) | (b & 0xFFFF0000) for a, b in ((words[0], words[2]), (words[1], words[3]))]
        first = super().turned([low[0], high[0], low[1], high[1]], cos, sin)
        return [
            (first[0] & 0xFFFF) | (first[1] << 16),
            (first[2] & 0xFFFF) | (first[3] << 16),
            (first[0] >> 16) | (first[1] & 0xFFFF0000),
            (first[2] >> 16) | (first[3] & 0xFFFF0000),
        ]


class InverseIgnored(Rope):
    """The other direction. Wrong values."""

    def turned(self, words, cos, sin):
        return super().turned(words, cos, [ptx.negative(s) for s in sin])


class SineForCosine(Rope):
    """cos and sin change places. Wrong values."""

    def turned(self, words, cos, sin):
        return super().turned(words, sin, cos)


class NotRotated(Rope):
    """The angles are zero. Wrong values, unless positions are."""

    def turned(self, words, cos, sin):
        return super().turned(words, [Float32(1.0)] * 4, [Float32(0.0)] * 4)


MUTANTS = {
    "half_split": HalfSplit,
    "inverse_ignored": InverseIgnored,
    "sine_for_cosine": SineForCosine,
    "not_rotated": NotRotated,
}
"""By name, as gates.yaml lists them."""
