"""What a linear reads: BF16 values, codes that stand for them, or both, each made from the other when it is wanted."""

from __future__ import annotations

import torch

from kernels.quantize_nvfp4 import quantize_nvfp4
from kernels.shared.quantised import Quantised
from model.packs import Bound
from model.reference import F32
from oracles.formats import fp8, nvfp4, swizzle

Tensor = torch.Tensor


class Input:
    """Rows [N, K]: given as values or as codes (NVFP4 if they have a global scale, else FP8)."""

    def __init__(self, bound: Bound, given: Tensor | Quantised, *, swizzled: bool = False) -> None:
        self.bound, self.swizzled = bound, swizzled
        self._values = given if isinstance(given, Tensor) else None
        self._codes = None if isinstance(given, Tensor) else given

    @property
    def values(self) -> Tensor:
        """BF16; exactly what the codes stand for."""
        if self._values is None:
            assert self._codes is not None
            self._values = self._decoded(self._codes)
        return self._values

    @property
    def nvfp4(self) -> Quantised:
        """Codes and swizzled scales under the model's global scale. Values that were stored so get their codes back,
        but for tiny blocks, whose scales are subnormal: those may change by a step."""
        if self._codes is None:
            assert self._values is not None
            self._codes = quantize_nvfp4(
                self._values, self.bound.global_scale, swizzled=self.swizzled, backend=self.bound.backend
            )
        return self._codes

    def _decoded(self, x: Quantised) -> Tensor:
        if x.global_scale is None:
            return fp8.dequantize_1x128(x.codes, x.scales, dtype=F32).to(torch.bfloat16)
        rows, k = x.codes.shape[0], 2 * x.codes.shape[1]
        scales = swizzle.unswizzle(x.scales, rows, k // nvfp4.BLOCK) if self.swizzled else x.scales
        return nvfp4.dequantize(x.codes, scales, x.global_scale, dtype=F32).to(torch.bfloat16)
