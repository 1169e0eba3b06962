"""What quantize_fp8 may be: the settings of every chunk pass."""

from __future__ import annotations

from kernels.shared.chunk_config import ChunkConfig, threads_for

__all__ = ["ChunkConfig", "threads_for"]
