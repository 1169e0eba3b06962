"""What quantize_nvfp4 may be: the settings of every chunk pass, and how many partial maxima a global scale is made
of."""

from __future__ import annotations

from kernels.shared.chunk_config import PARTS, ChunkConfig, threads_for

__all__ = ["PARTS", "ChunkConfig", "parts_for", "threads_for"]

CHUNKS_PER_PART = 1024
"""Chunks that a CTA takes at a time: 512 threads, two each."""


def parts_for(chunks: int, multiprocessors: int) -> int:
    """CTAs, and partial maxima, of the pass that looks for the largest magnitude."""
    return max(1, min(PARTS, 2 * multiprocessors, -(-chunks // CHUNKS_PER_PART)))
