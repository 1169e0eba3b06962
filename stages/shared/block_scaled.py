"""NVFP4 tokens and packed NVFP4 weights as inputs of stages, their values, and known mistakes."""

from __future__ import annotations

from typing import Any

import torch

from kernels.linear import PackedSm100, Quantised
from oracles.formats import nvfp4, swizzle
from stages.shared import linears
from stages.shared.linears import Tensors


def tokens(case: Any, shape: tuple[int, ...], rng: torch.Generator) -> Tensors:
    """x, and what the kernel reads of it."""
    data = case.get("data", "biased")
    x = linears.activations({"data": "biased" if data == "nan" else data}, shape, rng)
    if data == "nan":
        x.view(shape[0], -1)[shape[0] // 2, 5] = float("nan")
    flat = x.flatten(1)
    g = nvfp4.global_scale(flat.nan_to_num(0.0))
    codes, scales = nvfp4.quantize(flat, g)
    room = torch.full((len(codes), codes.shape[1] + case.get("room", 0)), 0x77, dtype=torch.uint8)
    room[:, : codes.shape[1]] = codes
    return {"x": x, "x_codes": room[:, : codes.shape[1]], "x_scales": swizzle.swizzle(scales), "g": g}


def packed_tensors(packed: PackedSm100) -> Tensors:
    """The tensors of packed weights, as inputs."""
    return {"w_codes": packed.codes, "w_scales": packed.scales, "alpha": packed.alpha}


def packed_of(x: Tensors, case: Any, parts: tuple[int, ...], **more: bool) -> PackedSm100:
    """The packed weights among the tensors of a case."""
    return PackedSm100(x["w_codes"], x["w_scales"], x["alpha"], parts, case.k, **more)


def quantised(x: Tensors) -> Quantised:
    """The tokens as the kernel takes them."""
    return Quantised(x["x_codes"], x["x_scales"], x["g"])


def x_values(x: Tensors, **changed: torch.Tensor) -> torch.Tensor:
    """The values of the quantised tokens, in the shape of x; `changed` replaces tensors."""
    found = x | changed
    codes = found["x_codes"]
    scales = swizzle.unswizzle(found["x_scales"], codes.shape[0], codes.shape[1] // 8)
    return nvfp4.dequantize(codes, scales, found["g"]).view(x["x"].shape)


def token_mistakes(x: Tensors, case: Any) -> dict[str, torch.Tensor]:
    """Values of the tokens with one known mistake each."""
    codes, columns = x["x_codes"], x["x_codes"].shape[1] // 8
    scales = swizzle.unswizzle(x["x_scales"], len(codes), columns)
    found = {
        # the tokens' global scale is dropped, or applied twice: look at scaled()
        "g_dropped": x_values(x, g=torch.ones(())),
        "g_twice": x_values(x, g=x["g"].double().square()),
        # even and odd k of the tokens change places
        "x_nibbles_swapped": x_values(x, x_codes=codes >> 4 | codes << 4),
    }
    if columns > 1:
        # every block of a token has its neighbour's scale: look at scale_field()
        found["x_scale_of_next_block"] = x_values(x, x_scales=swizzle.swizzle(scales.roll(1, dims=1)))
        # scales of the tokens are read row by row: look at copy_scales() in kernels/linear/sm100_ptx.py
        found["x_swizzle_missing"] = x_values(x, x_scales=swizzle.swizzle(_rows(x["x_scales"], scales)))
    return found


def _rows(atoms: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The bytes of a swizzle, taken for rows."""
    return atoms[: scales.numel()].view(scales.shape)
