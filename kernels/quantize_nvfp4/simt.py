"""quantize_nvfp4 for Hopper and Blackwell: a chunk of a row is a block, and one thread has all of it."""

from __future__ import annotations

from kernels.shared.chunks import ChunkPass, Largest

__all__ = ["Largest", "QuantizeNvfp4"]


class QuantizeNvfp4(ChunkPass):
    """The values are the input's own."""
