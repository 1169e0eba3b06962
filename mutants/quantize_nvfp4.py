"""quantize_nvfp4 with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

from kernels.quantize_nvfp4.simt import QuantizeNvfp4
from mutants.passes import NVFP4, planted

MUTANTS = planted(NVFP4, QuantizeNvfp4)
"""By name, as gates.yaml lists them."""
