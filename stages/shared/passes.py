"""Inputs, judgement and mistakes that the stages of quantising passes have in common.

Fields of a case: m, k; and with defaults: dtype bf16, data biased, layout packed, format nvfp4 (or fp8 with block 128
and scale ue8m0), swizzled false, g (the global scale; "device": made from x by a launch; default: that of the values),
ctas.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.shared.quantised import Quantised
from oracles.formats import fp8, nvfp4, swizzle

Tensors = dict[str, torch.Tensor]

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def choice(case: Any, field: str, default: str, allowed: Any) -> str:
    """A field of the case that names one of several things."""
    value = case.get(field, default)
    if value not in allowed:
        raise ValueError(f"{field}={value!r}; allowed: {', '.join(allowed)}")
    return value


def matrix(case: Any, rng: torch.Generator, columns: int | None = None) -> torch.Tensor:
    """[m, k] of the case: the mean away from 0, one value in 64 far out, rows of several sizes, one block of zeros."""
    shape = (case.m, case.k if columns is None else columns)
    x = torch.randn(shape, generator=rng) + 0.3
    x = torch.where(torch.rand(shape, generator=rng) < 1 / 64, 12 * x, x)
    x = x * torch.exp2(torch.arange(shape[0]) % 5 - 2.0)[:, None]
    data = choice(case, "data", "biased", ("biased", "hostile", "nonfinite", "zeros", "ties", "subnormal", "large"))
    if data == "zeros":
        x = torch.zeros(shape)
    elif data == "ties":
        x = (torch.randint(-26, 27, shape, generator=rng) / 4).clamp(-6.0, 6.0)
        x[:, ::16] = 6.0
    elif data == "subnormal":
        x = x * 1e-38
    elif data == "large":
        x = x * 1e36
    if case.m and data in ("biased", "hostile", "nonfinite"):
        x[0, : min(16, shape[1] - 16)] = 0.0
    if data in ("hostile", "nonfinite"):
        x = hostile(x, data == "hostile")
    x = x.to(DTYPES[choice(case, "dtype", "bf16", DTYPES)])
    return padded(x) if choice(case, "layout", "packed", ("packed", "padded")) == "padded" else x


def hostile(x: torch.Tensor, huge: bool) -> torch.Tensor:
    """Special values, each in a row of its own, with ordinary rows between: NaN of either sign, infinities, signed
    zeros, subnormal numbers, values around the bounds of blocks; with `huge` the largest ones, whose squares no fp32
    holds."""
    rows, k = x.shape
    special = [
        (0, 5, float("nan")),
        (1, k - 1, -float("nan")),
        (2, k // 2, float("inf")),
        (3, 0, -float("inf")),
        *(((5, 7, 3.0e38), (6, k - 16, -3.3e38)) if huge else ()),
    ]
    for row, column, value in special:
        x[row % rows, column] = value
    if rows > 7:
        x[4], x[7] = -0.0, 2.0**-133
        x[7, k // 2 :] = -(2.0**-127)
    return x


def padded(x: torch.Tensor) -> torch.Tensor:
    """The same with rows 8 elements further apart, NaN between."""
    room = torch.full((x.shape[0], x.shape[1] + 8), float("nan"), dtype=x.dtype)
    room[:, : x.shape[1]] = x
    return room[:, : x.shape[1]]


def given_scale(case: Any, values: torch.Tensor) -> torch.Tensor:
    """The global scale of the case: its `g`, or that of the finite values."""
    g = case.get("g", None)
    if isinstance(g, int | float):
        return torch.tensor(float(g), dtype=torch.float32)
    return nvfp4.global_scale(values.float().nan_to_num(0.0, 0.0, 0.0).clamp(-1e30, 1e30))


def form(case: Any) -> dict[str, Any]:
    """What the host functions are told of the format."""
    if is_fp8(case):
        return {"format": "fp8", "block": case.get("block", 128), "scale": case.get("scale", "ue8m0")}
    return {"format": "nvfp4", "swizzled": case.get("swizzled", False)}


def is_fp8(case: Any) -> bool:
    """Whether the case stores E4M3 instead of E2M1."""
    return choice(case, "format", "nvfp4", ("nvfp4", "fp8")) == "fp8"


def named(result: Quantised) -> Tensors:
    """A result as the judge sees it."""
    return {"codes": result.codes, "scales": result.scales}


def encoded(values: torch.Tensor, g: Any, case: Any) -> Tensors:
    """Codes and scales by the oracle."""
    if is_fp8(case):
        codes, scales = fp8.quantize_1x128(values, block=case.get("block", 128), scale=case.get("scale", "ue8m0"))
        return {"codes": codes, "scales": scales}
    codes, scales = nvfp4.quantize(values, g)
    return {"codes": codes, "scales": swizzle.swizzle(scales) if case.get("swizzled", False) else scales}


def linear_scales(outputs: Tensors, case: Any) -> torch.Tensor:
    """Scales row by row."""
    codes, scales = outputs["codes"], outputs["scales"]
    if scales.dim() == 2:
        return scales
    return swizzle.unswizzle(scales, codes.shape[0], codes.shape[1] // 8)


def decoded(outputs: Tensors, g: Any, case: Any) -> torch.Tensor:
    """The numbers that codes and scales stand for, fp64."""
    if is_fp8(case):
        return fp8.dequantize_1x128(outputs["codes"], outputs["scales"], block=case.get("block", 128))
    return nvfp4.dequantize(outputs["codes"], linear_scales(outputs, case), g)


def ideal(values: torch.Tensor, read_back: torch.Tensor, case: Any) -> torch.Tensor:
    """The values themselves, but where they are out of the format's range, what it makes of them: blocks with NaN or
    infinity, or with a value that is further off than the format rounds."""
    block = case.get("block", 128) if is_fp8(case) else 16
    wide, back = values.double().unflatten(-1, (-1, block)), read_back.unflatten(-1, (-1, block))
    amax = wide.abs().amax(dim=-1, keepdim=True)
    far = ~((wide - back).abs() <= amax / 4) | ~amax.isfinite()
    return torch.where(far.any(dim=-1, keepdim=True), back, wide).flatten(-2)


def mistakes(values: torch.Tensor, g: Any, case: Any) -> dict[str, Tensors]:
    """Codes and scales with one known mistake each."""
    right = encoded(values, g, case)
    found: dict[str, Tensors] = {}
    scales = linear_scales(right, case)
    rows = case.m
    if rows == 0:
        return {}
    if scales.shape[1] > 1:
        # every block has its neighbour's scale: look at put() in kernels/shared/encode.py
        found["scale_of_next_block"] = right | {"scales": laid_out(scales.roll(1, dims=1), case)}
        # the last block is missing: look at the rounding up of the grid
        found["k_tail_dropped"] = {"codes": without_tail(right["codes"], scales), "scales": right["scales"]}
    if not is_fp8(case):
        # even and odd values change places: look at e2m1x8() in kernels/shared/encode.py
        found["nibbles_swapped"] = right | {"codes": right["codes"] >> 4 | right["codes"] << 4}
        # the global scale is dropped, or applied twice: look at nvfp4_scale() and nvfp4_step()
        found["global_scale_dropped"] = encoded(values, torch.ones(()), case)
        found["global_scale_twice"] = encoded(values, (g * g).float(), case)
    if case.get("swizzled", False):
        # scales row by row where atoms of 128 x 4 are promised: look at swizzled_place()
        flat = torch.zeros_like(right["scales"])
        flat[: scales.numel()] = scales.flatten()
        found["swizzle_missing"] = right | {"scales": flat}
    return found


def laid_out(scales: torch.Tensor, case: Any) -> torch.Tensor:
    """Scales in the layout of the case."""
    return swizzle.swizzle(scales) if case.get("swizzled", False) else scales


def without_tail(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Codes whose last block is zeros."""
    cut = codes.clone()
    cut[:, -codes.shape[1] // scales.shape[1] :] = 0
    return cut


def with_values(outputs: dict[str, Tensors], g: torch.Tensor | None, case: Any) -> dict[str, Tensors]:
    """The same outputs, each with the numbers that it stands for."""
    return {name: o | {"y": decoded(o, g, case)} for name, o in outputs.items()}


def norm_weight(k: int, dtype: str, rng: torch.Generator) -> torch.Tensor:
    """[k], never one."""
    return (1.0 + 0.2 * torch.randn(k, generator=rng)).to(DTYPES[dtype])


def scale_for(case: Any, values: torch.Tensor) -> Tensors:
    """The global scale as an input, where the format has one."""
    return {} if is_fp8(case) else {"g": given_scale(case, values)}


def composed(values: torch.Tensor, g: torch.Tensor | None, case: Any, kind: str) -> Tensors:
    """Codes, scales and `y` of fp32 values that a pass makes and does not store; y is in units of the global scale, so
    that it can be read from codes and scales alone."""
    found = encoded(values, g, case)
    y = decoded(found, torch.ones(()), case)
    if kind == "ideal":
        y = ideal(values if g is None else values.double() / g.double(), y, case)
    return found | {"y": y}


def copied(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, for kernels that work in place."""
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return y.copy_(x)


def heads_apart(x: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, c] in memory with 8 values between heads and a head between tokens."""
    tokens, heads, c = x.shape
    room = torch.zeros((tokens, heads + 1, c + 8), dtype=x.dtype)
    room[:, :heads, :c] = x
    return room[:, :heads, :c]
