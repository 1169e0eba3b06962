"""swiglu_quantize for Hopper and Blackwell: silu(gate) up in fp32, then the codes of a chunk.

h = gate up / (1 + e^-gate)
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32, const_expr

from kernels.shared import ptx
from kernels.shared.chunks import ChunkPass, load_words, values_of
from kernels.shared.encode import pairwise
from kernels.shared.exponential import exp, exp_ordinary
from kernels.swiglu_quantize.config import SwigluConfig

LEAST_GATE = -40.0
"""From here on 1 + e^-gate is below 2^60."""


class SwigluQuantize(ChunkPass):
    """The values are silu(min(gate, limit)) clamp(up, -limit, limit)."""

    config: SwigluConfig

    def fetch(self, a, b, wanted) -> list:
        return load_words(a, "bf16", wanted) + load_words(b, "bf16", wanted)

    @cute.jit
    def values(self, words: list) -> list:
        half = len(words) // 2
        gates, ups = list(values_of(words[:half], "bf16")), list(values_of(words[half:], "bf16"))
        found = gates
        if const_expr(self.config.ordinary):
            if self.least(words[:half]) >= LEAST_GATE:
                found = [self.quick(*self.limited(gate, up)) for gate, up in zip(gates, ups, strict=True)]
            else:
                found = [self.swiglu(*self.limited(gate, up)) for gate, up in zip(gates, ups, strict=True)]
        else:
            found = [self.swiglu(*self.limited(gate, up)) for gate, up in zip(gates, ups, strict=True)]
        return found

    def least(self, words: list):
        """The smallest value of words of BF16; NaN if there is one."""
        pair = pairwise(words, ptx.min_nan_bf16x2)
        return ptx.min_nan(*ptx.of_bf16x2(pair))

    def quick(self, gate, up):
        """One value, if gate is neither NaN nor so small that 1 + e^-gate has no reciprocal."""
        e = exp_ordinary(ptx.negative(gate))
        return ptx.quick_div(ptx.mul(gate, up), ptx.add(e, Float32(1.0)))

    def swiglu(self, gate, up):
        """One value, whatever it is made of."""
        e = exp(ptx.negative(gate))
        return ptx.div(ptx.mul(gate, up), ptx.add(e, Float32(1.0)))

    def limited(self, gate, up):
        """Gate from above, up from both sides; NaN stays."""
        if const_expr(self.config.limit is None):
            return gate, up
        limit = Float32(self.config.limit)
        return ptx.min_nan(gate, limit), ptx.max_nan(ptx.min_nan(up, limit), ptx.negative(limit))
