"""rmsnorm_quantize with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float64

from kernels.rmsnorm_quantize.simt import RmsnormQuantize
from kernels.shared.formats import CHUNK
from mutants.passes import FP8, NVFP4, planted


class RmsOverPaddedWidth:
    """The mean is taken over what the threads could hold. Wrong values, unless they hold exactly a row."""

    def width(self) -> int:
        return self.config.threads * self.config.turns * CHUNK


class OneWarpsMean:
    """Every warp has a mean of its own. Wrong values, unless a row is one warp's."""

    def over_warps(self, partials, total):
        cute.arch.sync_threads()
        return total * Float64(float(self.config.warps))


class WeightShifted:
    """Every chunk has the weights of the first one. Wrong values, unless a row is one chunk."""

    def weights(self, mWeight, chunk, here):
        return super().weights(mWeight, chunk * 0, here)


FAULTS = {
    "rms_over_padded_width": RmsOverPaddedWidth,
    "one_warps_mean": OneWarpsMean,
    "weight_shifted": WeightShifted,
}
MUTANTS = planted(FAULTS | FP8 | NVFP4, RmsnormQuantize)
"""By name, as gates.yaml lists them."""
