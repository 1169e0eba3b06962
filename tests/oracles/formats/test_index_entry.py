"""Index entries of 132 and 68 bytes: byte by byte, with struct."""

from __future__ import annotations

import struct

import pytest
import torch

from oracles.formats import e2m1, e4m3, index_entry
from tests.oracles.formats.hostile import rows


def test_fp8_values_and_bytes() -> None:
    k = rows(128, count=1)
    codes, scale = index_entry.quantize_fp8(k)
    amax = k.abs().amax(dim=-1).double().clamp(min=1e-4)
    assert torch.equal(scale.double(), 2.0 ** torch.ceil(torch.log2(amax / 448)))
    assert torch.equal(codes, e4m3.encode(k / scale[:, None]))
    page = bytes(index_entry.pack_page(codes, scale, "fp8").tolist())
    assert len(page) == index_entry.page_bytes(7, "fp8") == 7 * 132
    for i in range(7):
        assert page[128 * i : 128 * i + 128] == bytes(codes[i].tolist())
        assert struct.unpack_from("<f", page, 7 * 128 + 4 * i)[0] == scale[i].item()


def test_fp8_scales_that_are_no_power_of_two() -> None:
    k = rows(128)
    codes, scale = index_entry.quantize_fp8(k, power_of_two=False)
    assert torch.equal(scale, k.abs().amax(dim=-1).clamp(min=1e-4) / 448)
    assert torch.equal(index_entry.dequantize_fp8(codes, scale), e4m3.decode(codes) * scale.double()[:, None])


def test_fp4_values_and_bytes() -> None:
    k = rows(128, count=1)
    packed, scales = index_entry.quantize_fp4(k)
    for i in range(7):
        for g in range(4):
            part = k[i, 32 * g : 32 * g + 32].double()
            s = 2.0 ** torch.ceil(torch.log2(part.abs().max().clamp(min=6 * 2.0**-126) / 6)).item()
            assert 2.0 ** (int(scales[i, g]) - 127) == s
            want = e2m1.encode(part / s)
            assert packed[i, 16 * g : 16 * g + 16].tolist() == [int(a) | int(b) << 4 for a, b in want.view(16, 2)]
    page = bytes(index_entry.pack_page(packed, scales, "fp4").tolist())
    assert len(page) == index_entry.page_bytes(7, "fp4") == 7 * 68
    for i in range(7):
        assert page[64 * i : 64 * i + 64] == bytes(packed[i].tolist())
        assert struct.unpack_from("<I", page, 7 * 64 + 4 * i)[0] == sum(
            int(b) << 8 * g for g, b in enumerate(scales[i])
        )


@pytest.mark.parametrize("form", ["fp8", "fp4"])
def test_pages_give_back_what_went_in(form: index_entry.Form) -> None:
    k = rows(128).unflatten(0, (2, 6))
    quantize, dequantize = getattr(index_entry, f"quantize_{form}"), getattr(index_entry, f"dequantize_{form}")
    stored: tuple[torch.Tensor, torch.Tensor] = quantize(k)
    pages = index_entry.pack_page(*stored, form)
    assert pages.shape == (2, index_entry.page_bytes(6, form))
    for got, want in zip(index_entry.unpack_page(pages, 6, form), stored, strict=True):
        assert torch.equal(got, want)
    rounded = getattr(index_entry, f"rounded_{form}")(k)
    assert rounded.dtype == k.dtype and torch.equal(rounded.double(), dequantize(*stored).float().double())


def test_zeros_have_zero_codes() -> None:
    codes, scale = index_entry.quantize_fp8(torch.zeros(1, 128))
    assert codes.unique().tolist() == [0] and scale.item() == 2.0**-22
    packed, scales = index_entry.quantize_fp4(torch.zeros(1, 128))
    assert packed.unique().tolist() == [0] and scales.tolist() == [[1, 1, 1, 1]]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"form='fp6'; allowed: fp8, fp4"):
        index_entry.page_bytes(1, "fp6")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"last size=64; allowed: 128"):
        index_entry.quantize_fp4(torch.zeros(1, 64))
    with pytest.raises(ValueError, match=r"bytes of a page=131; allowed: 132 for 1 entries"):
        index_entry.unpack_page(torch.zeros(131, dtype=torch.uint8), 1, "fp8")
    with pytest.raises(ValueError, match=r"last size=64; allowed: 128 for fp8"):
        index_entry.pack_page(torch.zeros(1, 64, dtype=torch.uint8), torch.zeros(1), "fp8")
