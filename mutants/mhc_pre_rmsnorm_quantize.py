"""The two mHC passes with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float32, Int32

from kernels.mhc.collapse import Collapse
from kernels.mhc.mix import Mix
from kernels.mhc.mix_many import MixMany


class SinkhornTransposed(Collapse):
    """M by destination and source. Wrong values."""

    def sinkhorn(self, logits):
        m = super().sinkhorn(logits)
        return [m[4 * (i % 4) + i // 4] for i in range(16)]


class ColumnsFirst(Collapse):
    """Rows and columns change places in Sinkhorn: rows are normalised last. Wrong values."""

    def over_columns(self, m):
        return super().over_rows(m)

    def over_rows(self, m):
        return super().over_columns(m)


class HalfC(Collapse):
    """C without its factor of two. Wrong values."""

    def doubled(self, c):
        return c


class EqualShares(Collapse):
    """The streams are added as they are. Wrong values."""

    def shares(self, logit):
        found = super().shares(logit)
        return [found[0]] * 4


class RmsOverStreams(Collapse):
    """The mean of the sum is taken over four streams. Wrong values."""

    def width(self) -> int:
        return 4 * self.config.k


class SliceDropped(Mix):
    """The last slice of a stream adds nothing to the sums. Wrong values."""

    def all_weights(self, mFn, group, first, inside):
        return super().all_weights(mFn, group, first, inside & (first < self.config.d - 256))


class SquaresOfOneStream(Mix):
    """The mean square is that of the first stream. Wrong values."""

    def products(self, weights, streams):
        sums = super().products(weights, streams)
        values = self.values(streams[:1])[0]
        sums[self.config.rows] = self.dot(values, values, Float32(0.0))
        return sums


class RowsShifted(Mix):
    """Every group of warps has the rows of the first one. Wrong values, unless there is one group."""

    def all_weights(self, mFn, group, first, inside):
        return super().all_weights(mFn, Int32(0), first, inside)


class TilesShifted(MixMany):
    """The lower half of a tile has the squares of the upper one. Wrong values, where there are many tokens."""

    def products(self, fragments, words, step, lane):
        sums = super().products(fragments, words, step, lane)
        return [*sums[:-2], *sums[-4:-2]]


MUTANTS = {
    "sinkhorn_transposed": (Mix, SinkhornTransposed, MixMany),
    "columns_first": (Mix, ColumnsFirst, MixMany),
    "half_c": (Mix, HalfC, MixMany),
    "equal_shares": (Mix, EqualShares, MixMany),
    "rms_over_streams": (Mix, RmsOverStreams, MixMany),
    "slice_dropped": (SliceDropped, Collapse, MixMany),
    "squares_of_one_stream": (SquaresOfOneStream, Collapse, MixMany),
    "rows_shifted": (RowsShifted, Collapse, MixMany),
    "tiles_shifted": (Mix, Collapse, TilesShifted),
}
"""By name, as gates.yaml lists them: a class for the first pass, the second, and the first for many tokens."""
