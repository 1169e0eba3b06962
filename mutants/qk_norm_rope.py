"""qk_norm_rope with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float32, Float64

from kernels.qk_norm_rope.simt import QkNormRope
from kernels.shared import ptx


class WeightedQueries(QkNormRope):
    """Queries get the weight of the latent. Wrong values."""

    def weights(self, mWeight, chunk, latent):
        return super().weights(mWeight, chunk, latent | True)


class WeightDropped(QkNormRope):
    """The latent has no weight. Wrong values."""

    def weights(self, mWeight, chunk, latent):
        return [Float32(1.0)] * 16


class RotationDropped(QkNormRope):
    """Nothing is rotated. Wrong values."""

    def turned(self, values, weights, inverse, cos, sin, wanted):
        return self.normed(values, weights, inverse)


class NormDroppedInRope(QkNormRope):
    """The rotated values are not normalised. Wrong values."""

    def turned(self, values, weights, inverse, cos, sin, wanted):
        return super().turned(values, weights, Float64(1.0), cos, sin, wanted)


class HalfTurn(QkNormRope):
    """The rotated values come out with the other sign. Wrong values."""

    def turned(self, values, weights, inverse, cos, sin, wanted):
        return super().turned([ptx.negative(v) for v in values], weights, inverse, cos, sin, wanted)


MUTANTS = {
    "weighted_queries": WeightedQueries,
    "weight_dropped": WeightDropped,
    "rotation_dropped": RotationDropped,
    "norm_dropped_in_rope": NormDroppedInRope,
    "half_turn": HalfTurn,
}
"""By name, as gates.yaml lists them."""
