"""FP8: E4M3 values with one scale per block, 1 x 128 for activations and 128 x 128 for weights, UE8M0 or fp32.

UE8M0 scales are the smallest power of two under which nothing clips, so x / s is exact and only E4M3 rounds. fp32
scales are s = max(amax, floor) / 448, one fp32 division; then x / s is one fp32 division and E4M3 rounds that, as a
kernel does. NaN in a block makes all of it NaN (through the scale under UE8M0, through the quotient under fp32);
infinity counts as an amax of infinity: it saturates under UE8M0 and is NaN under fp32. A block of zeros has the scale
of ``floor`` and codes 0.
"""

from __future__ import annotations

from typing import Literal

import torch

from oracles.formats import e4m3, ue8m0
from oracles.precision import expect

Scale = Literal["ue8m0", "fp32"]
FLOOR = 1e-4
"""Least amax, as DeepSeek's activation quantiser has it."""


def quantize_1x128(
    x: torch.Tensor, *, block: int = 128, scale: Scale = "ue8m0", floor: float = FLOOR
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., K] -> codes uint8 [..., K] and scales [..., K / block], uint8 (UE8M0) or fp32; K a multiple of block."""
    expect("formats.fp8", x.shape[-1] % block == 0, "K", x.shape[-1], f"a multiple of {block}")
    blocks = x.float().unflatten(-1, (x.shape[-1] // block, block))
    amax = blocks.abs().amax(dim=-1)
    if scale == "ue8m0":
        scales = ue8m0.scale_byte(amax, e4m3.LARGEST, floor=floor)
    else:
        expect("formats.fp8", scale == "fp32", "scale", scale, "ue8m0, fp32")
        scales = amax.clamp(min=floor) / e4m3.LARGEST
    return e4m3.encode(blocks / _values(scales, torch.float32)[..., None]).flatten(-2), scales


def dequantize_1x128(
    codes: torch.Tensor, scales: torch.Tensor, *, block: int = 128, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """codes uint8 [..., K], scales [..., K / block] (uint8 = UE8M0, else its values) -> [..., K]."""
    blocks = e4m3.decode(codes, dtype=dtype).unflatten(-1, (scales.shape[-1], block))
    return (blocks * _values(scales, dtype)[..., None]).flatten(-2)


def rounded_1x128(x: torch.Tensor, *, block: int = 128, scale: Scale = "ue8m0", floor: float = FLOOR) -> torch.Tensor:
    """x [..., K] as its FP8 form reads back, in x's dtype."""
    return dequantize_1x128(*quantize_1x128(x, block=block, scale=scale, floor=floor), block=block, dtype=x.dtype)


def quantize_128x128(
    w: torch.Tensor, *, block: int = 128, scale: Scale = "ue8m0", floor: float = FLOOR
) -> tuple[torch.Tensor, torch.Tensor]:
    """w [..., N, K] -> codes uint8 [..., N, K] and scales [..., ceil(N / block), ceil(K / block)]; edge blocks may be
    partial.
    """
    n, k = w.shape[-2:]
    tiles = torch.nn.functional.pad(w.float(), (0, -k % block, 0, -n % block))
    tiles = tiles.unflatten(-1, (-1, block)).unflatten(-3, (-1, block)).movedim(-2, -3).flatten(-2)
    codes, scales = quantize_1x128(tiles, block=block * block, scale=scale, floor=floor)
    codes = codes.unflatten(-1, (block, block)).movedim(-3, -2).flatten(-2).flatten(-3, -2)
    return codes[..., :n, :k].contiguous(), scales.squeeze(-1)


def dequantize_128x128(
    codes: torch.Tensor, scales: torch.Tensor, *, block: int = 128, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """codes uint8 [..., N, K], scales [..., ceil(N / block), ceil(K / block)] (uint8 = UE8M0, else its values) ->
    [..., N, K].
    """
    n, k = codes.shape[-2:]
    want = (-(-n // block), -(-k // block))
    expect(
        "formats.fp8",
        tuple(scales.shape[-2:]) == want,
        "scales.shape",
        tuple(scales.shape),
        f"[..., {want[0]}, {want[1]}]",
    )
    spread = _values(scales, dtype).repeat_interleave(block, -2).repeat_interleave(block, -1)
    return e4m3.decode(codes, dtype=dtype) * spread[..., :n, :k]


def _values(scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return ue8m0.decode(scales, dtype=dtype) if scales.dtype == torch.uint8 else scales.to(dtype)
