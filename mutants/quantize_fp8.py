"""quantize_fp8 with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from kernels.quantize_fp8.simt import QuantizeFp8
from mutants.passes import FP8, planted

MUTANTS = planted(FP8, QuantizeFp8)
"""By name, as gates.yaml lists them."""
