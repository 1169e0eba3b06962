"""swiglu_quantize with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from cutlass import Float32

from kernels.shared import ptx
from kernels.swiglu_quantize.simt import SwigluQuantize
from mutants.passes import FP8, NVFP4, planted


class ClampMissing:
    """Neither gate nor up is limited. Wrong values, where there is a limit."""

    def limited(self, gate, up):
        return gate, up


class GateClampedBelow:
    """Gate is limited from both sides. Wrong values."""

    def limited(self, gate, up):
        gate, up = super().limited(gate, up)
        if self.config.limit is None:
            return gate, up
        return ptx.max_nan(gate, Float32(-self.config.limit)), up


class UpActivated:
    """Gate and up change places. Wrong values."""

    def limited(self, gate, up):
        return super().limited(up, gate)


FAULTS = {"clamp_missing": ClampMissing, "gate_clamped_below": GateClampedBelow, "up_activated": UpActivated}
MUTANTS = planted(FAULTS | FP8 | NVFP4, SwigluQuantize)
"""By name, as gates.yaml lists them."""
