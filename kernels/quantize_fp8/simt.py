"""quantize_fp8 for Hopper and Blackwell: 2, 4 or 8 threads share a block and agree on its largest magnitude."""

from __future__ import annotations

from kernels.shared.chunks import ChunkPass


class QuantizeFp8(ChunkPass):
    """The values are the input's own."""
