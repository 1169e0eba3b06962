"""Whole CuTe DSL kernels for sm_90a on a backend: seeded inputs, output bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import numpy as np
import torch

from tests.backends.sample_kernels import AddScaled, TmaAdd, Twice
from tests.emulator.hw.kernels import SmallGemm

Run = Callable[[Any], np.ndarray]


def _given(backend: Any, values: torch.Tensor) -> torch.Tensor:
    made = backend.empty(tuple(values.shape), values.dtype)
    made.view(torch.uint8).copy_(values.contiguous().view(torch.uint8))
    return made


def _launch(backend: Any, kernel: Any, arguments: list[Any], out: torch.Tensor) -> np.ndarray:
    given = [backend.tensor(a, f"argument {k}") if isinstance(a, torch.Tensor) else a for k, a in enumerate(arguments)]
    compiled = backend.compile(kernel, *given, backend.stream())
    backend.launch(compiled, *given, backend.stream())
    backend.synchronize()
    return out.cpu().contiguous().view(torch.uint8).numpy().ravel().copy()


def _gemm(kernel: SmallGemm, dtype: torch.dtype, m: int, n: int, k: int, scale: float) -> Run:
    """Operands with many exponents, some zeros and, for the widest types, subnormals: sums lose bits on the way."""

    def run(backend: Any) -> np.ndarray:
        random = torch.Generator().manual_seed(m + n + k)
        sources = []
        for rows in (m, n):
            values = torch.randn(rows, k, generator=random) * torch.exp2(
                torch.randint(-6, 7, (rows, k), generator=random) * scale
            )
            values[torch.rand(rows, k, generator=random) < 0.05] = 0
            sources.append(_given(backend, values.to(dtype)))
        out = backend.empty((m, n), torch.float32)
        return _launch(backend, kernel, [*sources, out], out)

    return run


def _sample(kernel: Any, shape: tuple[int, ...], count: int) -> Run:
    """One of the sample kernels on small integers; the last tensor comes back."""

    def run(backend: Any) -> np.ndarray:
        random = torch.Generator().manual_seed(count)
        tensors = [_given(backend, torch.randint(-50, 50, shape, generator=random).float()) for _ in range(count)]
        return _launch(backend, kernel, list(tensors), tensors[-1])

    return run


def _twice(backend: Any) -> np.ndarray:
    tensors = [_given(backend, torch.arange(64.0) + k) for k in range(3)]
    arguments = [tensors[0], tensors[1], 5, tensors[2], cutlass.Int32(50)]
    return _launch(backend, Twice(), arguments, tensors[2])


RUNS: dict[str, Run] = {
    "gemm f16": _gemm(SmallGemm(), torch.float16, 128, 128, 256, 1.0),
    "gemm bf16, tiles of 32": _gemm(SmallGemm(columns=32, depth=32), torch.bfloat16, 64, 64, 160, 3.0),
    "gemm bf16, multicast": _gemm(SmallGemm(pair=True), torch.bfloat16, 128, 256, 192, 2.0),
    "gemm f16, wide": _gemm(SmallGemm(columns=256, depth=64), torch.float16, 64, 256, 128, 1.0),
    "gemm e4m3": _gemm(SmallGemm(depth=128), torch.float8_e4m3fn, 64, 128, 512, 0.5),
    "gemm e5m2, multicast": _gemm(SmallGemm(columns=32, depth=64, pair=True), torch.float8_e5m2, 64, 64, 256, 1.0),
    "add scaled": _sample(AddScaled(3), (300,), 3),
    "tensor copy, ragged": _sample(TmaAdd(), (70, 200), 2),
    "two launches": _twice,
}
