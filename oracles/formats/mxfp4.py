"""MXFP4: E2M1 values in blocks of 32 with one UE8M0 scale each; and its exact cast to NVFP4.

The scale is the smallest power of two under which nothing clips ("ceil", DeepSeek's) or that of the OCP MX paper
("floor", whose largest values may clip at 6). NaN in a block makes its scale 255: all of it reads back as NaN.
Infinity saturates.
"""

from __future__ import annotations

import torch

from oracles.formats import e2m1, e4m3, ue8m0
from oracles.precision import expect

BLOCK = 32
FLOOR = 6.0 * 2.0**-126
"""Least amax, as DeepSeek's index quantiser has it: the scale of a block of zeros is 2^-126."""


def quantize(
    x: torch.Tensor, *, block: int = BLOCK, policy: ue8m0.Policy = "ceil", floor: float = FLOOR
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., K] -> packed uint8 [..., K / 2] (low nibble = even index) and scales uint8 [..., K / block]."""
    expect("formats.mxfp4", x.shape[-1] % block == 0, "K", x.shape[-1], f"a multiple of {block}")
    blocks = x.double().unflatten(-1, (x.shape[-1] // block, block))
    scales = ue8m0.scale_byte(blocks.abs().amax(dim=-1), e2m1.LARGEST, floor=floor, policy=policy)
    return e2m1.pack(e2m1.encode(blocks / ue8m0.decode(scales)[..., None]).flatten(-2)), scales


def dequantize(
    packed: torch.Tensor, scales: torch.Tensor, *, block: int = BLOCK, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """packed uint8 or int8 [..., K / 2], scales uint8 [..., K / block] -> [..., K]."""
    blocks = e2m1.decode(e2m1.unpack(packed), dtype=dtype).unflatten(-1, (scales.shape[-1], block))
    return (blocks * ue8m0.decode(scales, dtype=dtype)[..., None]).flatten(-2)


def rounded(x: torch.Tensor, *, block: int = BLOCK, policy: ue8m0.Policy = "ceil") -> torch.Tensor:
    """x [..., K] as its MXFP4 form reads back, in x's dtype."""
    return dequantize(*quantize(x, block=block, policy=policy), block=block, dtype=x.dtype)


def shared_exponent(*scales: torch.Tensor) -> int:
    """m = max k - 8 over all source exponents k = byte - 127: the global scale 2^m that w1 and w3 of an expert share.

    Reads the values: for checkpoints, not for a step of the model.
    """
    return max(int(s.max()) for s in scales) - ue8m0.BIAS - 8


def to_nvfp4(
    packed: torch.Tensor, scales: torch.Tensor, exponent: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same values in NVFP4: packed unchanged, scales E4M3 bytes [..., K / 16], global scale 2^exponent (fp32
    scalar).

    Each block of 32 becomes two of 16 with the scale 2^(k - exponent), exact for -9 <= k - exponent <= 8; a block
    outside that is an error unless all its values are 0, and so is a NaN scale. exponent: ``shared_exponent(scales)``
    if none is given.
    """
    expect("formats.mxfp4.to_nvfp4", not bool((scales == ue8m0.NAN).any()), "scales", "255 (NaN)", "0..254")
    m = exponent if exponent is not None or not scales.numel() else shared_exponent(scales)
    m = 0 if m is None else m
    empty = (e2m1.unpack(packed).unflatten(-1, (-1, BLOCK)) & 7 == 0).all(dim=-1)
    k = torch.where(empty, 0, scales.long() - ue8m0.BIAS - m)
    low, high = (int(k.min()), int(k.max())) if k.numel() else (0, 0)
    expect("formats.mxfp4.to_nvfp4", low >= -9 and high <= 8, "exponents", f"{low}..{high} over 2^{m}", "-9..8")
    blocks = e4m3.encode(ue8m0.decode(k + ue8m0.BIAS)).repeat_interleave(2, dim=-1)
    return packed.view(torch.uint8), blocks, torch.tensor(2.0**m, dtype=torch.float32, device=packed.device)
