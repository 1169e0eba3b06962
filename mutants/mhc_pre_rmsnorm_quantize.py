"""The two mHC passes with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float32, Int32

from kernels.mhc.collapse import Collapse
from kernels.mhc.mix import Mix


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

    def products(self, mFn, group, first, inside, all_streams):
        return super().products(mFn, group, first, inside & (first < self.config.d - 256), all_streams)


class SquaresOfOneStream(Mix):
    """The mean square is that of the first stream. Wrong values."""

    def products(self, mFn, group, first, inside, all_streams):
        sums = super().products(mFn, group, first, inside, all_streams)
        for of_token, streams in zip(sums, all_streams, strict=True):
            values = self.values(streams[:1])[0]
            of_token[self.config.rows] = self.dot(values, values, Float32(0.0))
        return sums


class RowsShifted(Mix):
    """Every group of warps has the rows of the first one. Wrong values, unless there is one group."""

    def products(self, mFn, group, first, inside, all_streams):
        return super().products(mFn, Int32(0), first, inside, all_streams)


MUTANTS = {
    "sinkhorn_transposed": (Mix, SinkhornTransposed),
    "columns_first": (Mix, ColumnsFirst),
    "half_c": (Mix, HalfC),
    "equal_shares": (Mix, EqualShares),
    "rms_over_streams": (Mix, RmsOverStreams),
    "slice_dropped": (SliceDropped, Collapse),
    "squares_of_one_stream": (SquaresOfOneStream, Collapse),
    "rows_shifted": (RowsShifted, Collapse),
}
"""By name, as gates.yaml lists them: a class for each pass."""
