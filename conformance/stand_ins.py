"""What the scripts' *host* code needs that a CPU doesn't have. Kernels are never touched.

A benchmark reports 1 us; it calls its function once if the script hasn't compared anything yet, since some scripts
launch their kernel nowhere else. torch's scaled products of 4- and 8-bit formats, which scripts use as reference and
which torch has for GPUs only, are computed in fp64 from the formats' definitions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

import torch

from backends.patches import Patches

# E2M1 by code.
_FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


@contextmanager
def stand_in(compared: Sized) -> Iterator[list[str]]:
    """Let the stand-ins answer; the list collects the names of those that were used. compared: what the script has
    compared so far."""
    used: list[str] = []

    def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            if name not in used:
                used.append(name)
            return function(*args, **settings)

        return call

    def benchmark(function: Callable[..., Any], **settings: Any) -> float:
        if not len(compared):
            call_once(function, **settings)
        return 1.0

    with Patches() as patches:
        for module in ("cutlass.testing", "cutlass.cute.testing"):
            patches.set(importlib.import_module(module), "benchmark", named("benchmark", benchmark))
        patches.set(torch.profiler, "profile", named("torch.profiler", Profile))
        plain = torch._scaled_mm
        patches.set(torch, "_scaled_mm", named("torch._scaled_mm", lambda *a, **k: scaled_mm(plain, *a, **k)))
        yield used


class Profile:
    """A profiler of a GPU that isn't there: sees nothing."""

    def __init__(self, **settings: Any) -> None:
        pass

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def key_averages(self) -> Profile:
        """Nothing."""
        return self

    def table(self, **settings: Any) -> str:
        """Nothing."""
        return ""


def call_once(
    function: Callable[..., Any],
    kernel_arguments: Any = None,
    workspace_generator: Callable[[], Any] | None = None,
    **settings: Any,
) -> None:
    """What one iteration of cutlass.testing.benchmark calls."""
    arguments = kernel_arguments if workspace_generator is None else workspace_generator()
    if arguments is None:
        function()
    else:
        function(*arguments.args, **arguments.kwargs)


def scaled_mm(
    plain: Callable[..., torch.Tensor],
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    **settings: Any,
) -> torch.Tensor:
    """torch._scaled_mm for block-scaled operands: a [m, k] times b [k, n], whose scales lie in tiles of 128 rows by 4
    blocks of k, each tile as [32, 4, 4] (the layout that the tensor core reads). A block is 16 values under E4M3
    scales, 32 under E8M0. Other operands go to `plain`."""
    if scale_a.numel() == 1:
        return plain(a, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype, **settings)
    left, right = block_values(a), block_values(b.t())
    block = 32 if scale_a.dtype is torch.float8_e8m0fnu else 16
    left *= block_scales(scale_a, left.shape[0], left.shape[1] // block).repeat_interleave(block, 1)
    right *= block_scales(scale_b, right.shape[0], right.shape[1] // block).repeat_interleave(block, 1)
    return (left @ right.t()).to(out_dtype or torch.float32)


def block_values(x: torch.Tensor) -> torch.Tensor:
    """The numbers of a matrix [rows, k] whose rows are contiguous, as fp64."""
    if x.dtype is not torch.float4_e2m1fn_x2:
        return x.to(torch.float64)
    codes = x.view(torch.uint8).long()
    return torch.stack([_FP4[codes & 15], _FP4[codes >> 4]], -1).flatten(1)


def block_scales(tiled: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """Scales [rows, blocks] from their tiles, as fp64."""
    tiles_down, tiles_across = -(-rows // 128), -(-blocks // 4)
    tiles = tiled.flatten().to(torch.float64).view(tiles_down, tiles_across, 32, 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(tiles_down * 128, tiles_across * 4)[:rows, :blocks]
