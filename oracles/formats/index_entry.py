"""Entries of the index cache: 128 values in FP8 (132 bytes) or in FP4 (68 bytes).

A page of P entries, scales after all values:

    fp8   P x 128 bytes E4M3, then P x 4 bytes: one fp32 scale an entry, little-endian; a power of two unless asked
    otherwise fp4   P x 64 bytes E2M1 (low nibble = even dim), then P x 4 bytes: UE8M0 of dims 32 g .. 32 g + 31, byte
    g
"""

from __future__ import annotations

from typing import Literal

import torch

from oracles.formats import fp8, mxfp4, ue8m0
from oracles.precision import expect

DIM = 128
Form = Literal["fp8", "fp4"]
VALUES: dict[str, int] = {"fp8": DIM, "fp4": DIM // 2}
SCALES = 4


def quantize_fp8(k: torch.Tensor, *, power_of_two: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """k [..., 128] -> E4M3 bytes uint8 [..., 128] and one fp32 scale [...]; amax floor 1e-4."""
    expect("formats.index_entry", k.shape[-1] == DIM, "last size", k.shape[-1], f"{DIM}")
    codes, scale = fp8.quantize_1x128(k, block=DIM, scale="ue8m0" if power_of_two else "fp32")
    return codes, (ue8m0.decode(scale, dtype=torch.float32) if power_of_two else scale).squeeze(-1)


def dequantize_fp8(codes: torch.Tensor, scale: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """E4M3 bytes [..., 128], scale fp32 [...] -> [..., 128]."""
    return fp8.dequantize_1x128(codes, scale[..., None], block=DIM, dtype=dtype)


def quantize_fp4(k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """k [..., 128] -> packed E2M1 uint8 [..., 64] and UE8M0 bytes [..., 4]; amax floor 6 x 2^-126."""
    expect("formats.index_entry", k.shape[-1] == DIM, "last size", k.shape[-1], f"{DIM}")
    return mxfp4.quantize(k)


def dequantize_fp4(packed: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """packed [..., 64], UE8M0 bytes [..., 4] -> [..., 128]."""
    return mxfp4.dequantize(packed, scales, dtype=dtype)


def rounded_fp8(k: torch.Tensor, *, power_of_two: bool = True) -> torch.Tensor:
    """k [..., 128] as the FP8 cache gives it back, in k's dtype."""
    return dequantize_fp8(*quantize_fp8(k, power_of_two=power_of_two), dtype=k.dtype)


def rounded_fp4(k: torch.Tensor) -> torch.Tensor:
    """k [..., 128] as the FP4 cache gives it back, in k's dtype."""
    return dequantize_fp4(*quantize_fp4(k), dtype=k.dtype)


def page_bytes(entries: int, form: Form) -> int:
    """Bytes of a page: 132 (fp8) or 68 (fp4) an entry, no padding."""
    return entries * (_values(form) + SCALES)


def pack_page(values: torch.Tensor, scales: torch.Tensor, form: Form) -> torch.Tensor:
    """What ``quantize_<form>`` gave for [..., P] entries -> pages uint8 [..., page_bytes]."""
    expect(
        "formats.index_entry",
        values.shape[-1] == _values(form),
        "last size",
        values.shape[-1],
        f"{_values(form)} for {form}",
    )
    raw = scales.contiguous().view(torch.uint8) if form == "fp8" else scales.flatten(-2)
    return torch.cat((values.flatten(-2), raw), dim=-1)


def unpack_page(pages: torch.Tensor, entries: int, form: Form) -> tuple[torch.Tensor, torch.Tensor]:
    """pages uint8 [..., page_bytes] -> values and scales of [..., entries], as ``quantize_<form>`` gives them."""
    want = page_bytes(entries, form)
    expect(
        "formats.index_entry",
        pages.shape[-1] == want,
        "bytes of a page",
        pages.shape[-1],
        f"{want} for {entries} entries",
    )
    split = entries * _values(form)
    values, raw = pages[..., :split].unflatten(-1, (entries, -1)), pages[..., split:].contiguous()
    return values.contiguous(), raw.view(torch.float32) if form == "fp8" else raw.unflatten(-1, (entries, SCALES))


def _values(form: Form) -> int:
    expect("formats.index_entry", form in VALUES, "form", repr(form), "fp8, fp4")
    return VALUES[form]
