"""Inputs, launches and mistakes that the stages of quantised linears have in common.

Fields of a case: m, n (rows of each weight), k; and with defaults: weights 1 (how many share the launch), format nvfp4,
activation f16, data biased (outliers: one activation in 64 is 300; small: activations of 1e-20), swizzled false (nvfp4
scales in the 128 x 4 swizzle), rows of a tile, and other fields of LinearConfig (spread, stages, in_flight, split,
warps) or of WideConfig (columns, across, along, split, units, stages, near).
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.linear import Packed, Weight, pack, rows_for
from oracles.formats import fp8, mxfp4, nvfp4, swizzle

Tensors = dict[str, torch.Tensor]

SETTINGS = ("spread", "stages", "in_flight", "split", "warps", "columns", "across", "along", "units", "ahead", "near")
"""Fields of a case that are the kernel's."""
TINY = 1e-30
"""Least amax of an activation's scale: nothing but zeros is below it here."""


def inputs(case: Any, rng: torch.Generator, grouped: bool = False) -> Tensors:
    """x, the weights as a checkpoint has them (codes0, scales0, alpha0, ...), and as ``pack`` lays them out (data,
    alpha)."""
    weights, named = [], {}
    for index, n in enumerate(rows_of(case)):
        w = 0.02 * torch.randn(n, case.k, generator=rng) + 0.002
        w = torch.where(torch.rand(w.shape, generator=rng) < 1 / 64, 8 * w, w)
        weight = quantised(case, w, index)
        weights.append(weight)
        named |= {f"codes{index}": weight.codes, f"scales{index}": weight.scales, f"alpha{index}": weight.alpha}
    packed = pack(
        weights,
        format=case.get("format", "nvfp4"),
        activation=case.get("activation", "f16"),
        rows=case.get("rows"),
        grouped=grouped,
    )
    shape = (case.m, len(weights), case.k) if grouped else (case.m, case.k)
    return {"x": activations(case, shape, rng), "data": packed.data, "alpha": packed.alpha} | named


def rows_of(case: Any) -> list[int]:
    """Rows of each weight: `n`, a number for `weights` equal ones or a list."""
    return list(case.n) if isinstance(case.n, list | tuple) else [case.n] * case.get("weights", 1)


def quantised(case: Any, w: torch.Tensor, index: int) -> Weight:
    """A weight in the format of the case, with a global scale of its own; one block of nvfp4 holds nothing but
    zeros."""
    form = case.get("format", "nvfp4")
    alpha = torch.tensor(0.75 + index, dtype=torch.float32)
    if form == "fp8":
        return Weight(*fp8.quantize_128x128(w), alpha)
    if form == "mxfp4":
        return Weight(*mxfp4.quantize(w), alpha)
    w[0, :16] = 0.0
    scale = nvfp4.global_scale(w)
    codes, scales = nvfp4.quantize(w, scale)
    return Weight(codes, swizzle.swizzle(scales) if case.get("swizzled", False) else scales, scale)


def activations(case: Any, shape: tuple[int, ...], rng: torch.Generator) -> torch.Tensor:
    """BF16, the mean away from 0, one in 64 far out; every token of another size."""
    data = case.get("data", "biased")
    far = torch.rand(shape, generator=rng) < 1 / 64
    x = torch.randn(shape, generator=rng) + 0.3
    if data == "outliers":
        x = torch.where(far, 300.0 * torch.sign(x), x)
    elif data in ("biased", "small"):
        x = torch.where(far, 12 * x, x)
    else:
        raise ValueError(f"data={data!r}; allowed: biased, outliers, small")
    sizes = torch.exp2(torch.arange(shape[0]) % 5 - 2.0).reshape(-1, *[1] * (len(shape) - 1))
    return (x * sizes * (1e-20 if data == "small" else 1.0)).bfloat16()


def packed_of(x: Tensors, case: Any, grouped: bool = False) -> Packed:
    """The packed weights among the tensors of a case."""
    activation, parts = case.get("activation", "f16"), tuple(rows_of(case))
    rows = case.get("rows") or rows_for(parts, case.k, activation)
    return Packed(x["data"], x["alpha"], case.get("format", "nvfp4"), parts, case.k, rows, grouped, activation)


def settings(case: Any) -> dict[str, Any]:
    """What the case says of the kernel's configuration."""
    return {name: case[name] for name in SETTINGS if name in case}


def values(x: Tensors, case: Any, **changed: torch.Tensor) -> list[torch.Tensor]:
    """The weights' values, fp64, alpha included; `changed` replaces tensors."""
    x = x | changed
    found = []
    for index, n in enumerate(rows_of(case)):
        codes, scales, alpha = (x[f"{name}{index}"] for name in ("codes", "scales", "alpha"))
        form = case.get("format", "nvfp4")
        if form == "fp8":
            found.append(fp8.dequantize_128x128(codes, scales) * alpha.double())
        elif form == "mxfp4":
            found.append(mxfp4.dequantize(codes, scales) * alpha.double())
        else:
            linear = swizzle.unswizzle(scales, n, case.k // 16) if scales.dim() == 1 else scales
            found.append(nvfp4.dequantize(codes, linear, alpha))
    return found


def rounded_activations(x: torch.Tensor) -> torch.Tensor:
    """E4M3 under the smallest power of two that holds a token (and group)."""
    return fp8.rounded_1x128(x.float(), block=x.shape[-1], scale="ue8m0", floor=TINY)


def quantiser(case: Any, kind: str) -> Any:
    """How the kernel rounds its activations; the ideal model does not."""
    return rounded_activations if kind == "simulated" and case.get("activation", "f16") == "e4m3" else None


def both(outputs: Tensors) -> Tensors:
    """The same outputs under a second name each, for limits against the ideal model."""
    return outputs | {f"{name}_ideal": y for name, y in outputs.items()}


def finished(y: torch.Tensor, kind: str) -> torch.Tensor:
    """The output as it is stored, or as the ideal model has it."""
    return y.bfloat16().double() if kind == "simulated" else y


def weight_mistakes(x: Tensors, case: Any) -> dict[str, list[torch.Tensor]]:
    """Values of the weights with one known mistake each."""
    count = len(rows_of(case))
    variants: dict[str, list[torch.Tensor]] = {}

    def with_changed(name: str, change: Any) -> list[torch.Tensor]:
        return values(x, case, **{f"{name}{i}": change(x[f"{name}{i}"]) for i in range(count)})

    # the global scale is dropped, or applied twice: look at store() in kernels/linear/core.py
    variants["alpha_dropped"] = with_changed("alpha", torch.ones_like)
    variants["alpha_twice"] = with_changed("alpha", lambda a: a * a)
    if case.get("format", "nvfp4") != "fp8":
        # even and odd k change places: look at the bit plan in kernels/linear/layout.py
        variants["nibbles_swapped"] = with_changed("codes", lambda c: c >> 4 | c << 4)
    linear = case.get("format", "nvfp4") == "fp8" or x["scales0"].dim() == 2
    if linear and x["scales0"].shape[1] > 1:
        # every block has its neighbour's scale: look at load_scales() and scale_bytes()
        variants["scale_of_next_block"] = with_changed("scales", lambda s: s.roll(1, dims=1))
    if not linear:
        # the swizzled scales are read row by row: look at _linear_scales() in kernels/linear/pack.py
        variants["swizzle_missing"] = with_changed("scales", lambda s: _as_if_linear(s, case))
    if case.k > 128:
        # the last 128 k are not summed: look at units and turns in kernels/linear/config.py
        variants["k_tail_dropped"] = [
            torch.cat((w[:, :-128], torch.zeros_like(w[:, -128:])), 1) for w in values(x, case)
        ]
    return variants


def _as_if_linear(scales: torch.Tensor, case: Any) -> torch.Tensor:
    """The bytes of a swizzle, taken for rows; NaN bytes of the padding do not occur."""
    n, columns = rows_of(case)[0], case.k // 16
    return scales[: n * columns].view(n, columns)
