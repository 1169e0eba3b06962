"""The launch of a chunk pass: grid, arguments, compiled kernel."""

from __future__ import annotations

from typing import Any

import torch

from kernels.shared.chunk_config import ChunkConfig
from kernels.shared.formats import CHUNK
from kernels.shared.quantised import Quantised, row_stride


def launch_chunks(
    op: str,
    kernel: Any,
    config: ChunkConfig,
    inputs: dict[str, torch.Tensor],
    scale: torch.Tensor | None,
    new: torch.Tensor | None,
    result: Quantised,
    backend: Any,
    ctas: int | None,
) -> None:
    """One launch of `kernel` over one or two inputs [rows, k] of equal shape. `ctas`: CTAs that share the rows."""
    from cutlass import Int32

    (rows, k), columns = next(iter(inputs.values())).shape, 0
    columns = k // CHUNK
    padded_rows = config.format.padded(rows, columns)[0]
    across = -(-columns // config.threads)
    if ctas is None:
        ctas = max(1, backend.multiprocessors * config.resident // across)
    tensors = [backend.tensor(x.detach(), n, leading_dim=1, align=16, writable=False) for n, x in inputs.items()]
    strides = [row_stride(x) for x in inputs.values()]
    arguments = (
        tensors[0],
        tensors[1] if len(tensors) > 1 else None,
        None if scale is None else backend.tensor(scale.detach().reshape(-1), "scale", align=4, writable=False),
        None if new is None else backend.tensor(new.reshape(1), "global_scale", align=4),
        backend.tensor(result.codes, "codes", leading_dim=1, align=16),
        backend.tensor(result.scales, "scales", align=16),
        Int32(rows),
        Int32(columns),
        Int32(strides[0]),
        Int32(strides[-1]),
        Int32(min(ctas, padded_rows)),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=op), *arguments)
