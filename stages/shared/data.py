"""Inputs that stages have in common: biased, of unequal size, with outliers, so that a wrong sum, a missing scale or a
wrong row shows."""

from __future__ import annotations

import math
from typing import Any

import torch

from oracles import rope
from oracles.formats import fp8, nvfp4

Tensors = dict[str, torch.Tensor]


def activations(*shape: int, rng: torch.Generator, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """N(0.3, 1), one value in 64 ten times as large, rows of different size."""
    x = torch.randn(shape, generator=rng) + 0.3
    x = torch.where(torch.rand(shape, generator=rng) < 1 / 64, 10 * x, x)
    size = 0.5 + torch.rand((*shape[:-1], 1), generator=rng)
    return (x * size).to(dtype)


def matrix(*shape: int, rng: torch.Generator, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """N(0, 1 / in)."""
    return (torch.randn(shape, generator=rng) / math.sqrt(max(shape[-1], 1))).to(dtype)


def norm(size: int, rng: torch.Generator) -> torch.Tensor:
    """1 + 0.2 N in bf16: a weight that is never one."""
    return (1.0 + 0.2 * torch.randn(size, generator=rng)).bfloat16()


def vector(*shape: int, rng: torch.Generator) -> torch.Tensor:
    """0.5 N in f32."""
    return 0.5 * torch.randn(shape, generator=rng)


def streams(t: int, d: int, rng: torch.Generator) -> Tensors:
    """streams (t, 4, d) bf16, each with a size of its own."""
    size = torch.tensor([0.5, 1.0, 2.0, 4.0])[:, None]
    return {"streams": ((torch.randn(t, 4, d, generator=rng) + 0.3) * size).bfloat16()}


def frequencies(yarn: bool) -> torch.Tensor:
    """f32 [32] of a layer that compresses (yarn), or of one that does not."""
    return rope.frequencies(theta=160000.0, yarn=rope.Yarn()) if yarn else rope.frequencies()


def rounded(x: torch.Tensor, form: str, scale: torch.Tensor | None = None) -> torch.Tensor:
    """x [..., K] as its quantised form reads back, f64: fp8 in blocks of 128, or nvfp4 under the global scale."""
    if form == "fp8":
        return fp8.rounded_1x128(x.float()).double()
    if form != "nvfp4" or scale is None:
        raise ValueError(f"format={form!r}; allowed: fp8, or nvfp4 with a global scale")
    return nvfp4.rounded(x.float(), scale).double()


def finished(y: torch.Tensor, case: Any, kind: str, x: Tensors) -> torch.Tensor:
    """What a pass that quantises its result stores, as values: the exact ones (ideal), or rounded (simulated)."""
    return y.double() if kind == "ideal" else rounded(y, case.format, x.get("scale"))


def both(y: torch.Tensor, name: str = "y") -> Tensors:
    """The same output under two names, for limits against the rounded oracle and against the exact one."""
    return {name: y, f"{name}_ideal": y}
