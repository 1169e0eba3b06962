"""swiglu_quantize for Hopper and Blackwell: silu(gate) up in fp32, then the codes of a chunk.

h = gate up / (1 + e^-gate)
"""

from __future__ import annotations

from cutlass import Float32, const_expr

from kernels.shared import ptx
from kernels.shared.chunks import ChunkPass, load_chunk
from kernels.shared.exponential import exp


class SwigluQuantize(ChunkPass):
    """The values are silu(min(gate, limit)) clamp(up, -limit, limit)."""

    def values(self, a, b, wanted) -> list:
        dtype = self.config.dtype
        pairs = zip(load_chunk(a, dtype, wanted), load_chunk(b, dtype, wanted), strict=True)
        return [self.swiglu(gate, up) for gate, up in pairs]

    def swiglu(self, gate, up):
        """One value."""
        gate, up = self.limited(gate, up)
        e = exp(ptx.negative(gate))
        return ptx.div(ptx.mul(gate, up), ptx.add(e, Float32(1.0)))

    def limited(self, gate, up):
        """Gate from above, up from both sides; NaN stays."""
        if const_expr(self.config.limit is None):
            return gate, up
        limit = Float32(self.config.limit)
        return ptx.min_nan(gate, limit), ptx.max_nan(ptx.min_nan(up, limit), ptx.negative(limit))
