"""mhc_post with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float64

from kernels.mhc.mix import Mix
from kernels.shared import ptx


class Transposed(Mix):
    """The sum runs over the second index of M. Wrong values."""

    def factors(self, mC, mM, token, exists):
        c, m = super().factors(mC, mM, token, exists)
        return c, [list(row) for row in zip(*m, strict=True)]


class HalfC(Mix):
    """C without its factor of two. Wrong values."""

    def factors(self, mC, mM, token, exists):
        c, m = super().factors(mC, mM, token, exists)
        return [ptx.mul64(v, Float64(0.5)) for v in c], m


class StreamDropped(Mix):
    """The last stream is not mixed in. Wrong values."""

    def mixed(self, streams, output, factors):
        c, m = factors
        return super().mixed(streams, output, (c, [*m[:3], [Float64(0.0)] * 4]))


class FirstToken(Mix):
    """C and M are those of the first token. Wrong values, unless there is but one."""

    def factors(self, mC, mM, token, exists):
        return super().factors(mC, mM, token * 0, exists)


MUTANTS = {"transposed": Transposed, "half_c": HalfC, "stream_dropped": StreamDropped, "first_token": FirstToken}
"""By name, as gates.yaml lists them."""
