"""FP8 with block scales, one number at a time; NaN, infinity, zeros and partial blocks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from oracles.formats import e4m3, fp8
from tests.oracles.formats.hostile import E4M3, rows, search


def dumb_scale(amax: float, scale: str, floor: float = 1e-4) -> float:
    if scale == "fp32":
        return float(np.float32(max(np.float32(amax), np.float32(floor))) / np.float32(448.0))
    k = -140
    while Fraction(448) * Fraction(2.0**k) < Fraction(max(amax, floor)):
        k += 1
    return 2.0**k


@pytest.mark.parametrize("scale", ["ue8m0", "fp32"])
@pytest.mark.parametrize("block", [128, 64, 32])
def test_rows_equal_one_number_at_a_time(scale: fp8.Scale, block: int) -> None:
    x = rows(256)
    codes, scales = fp8.quantize_1x128(x, block=block, scale=scale)
    assert codes.shape == x.shape and scales.shape == (len(x), 256 // block)
    got = fp8.dequantize_1x128(codes, scales, block=block)
    for r, row in enumerate(x.tolist()):
        for b in range(256 // block):
            part = row[b * block : (b + 1) * block]
            s = dumb_scale(max(abs(v) for v in part), scale)
            want = [search(float(np.float32(v) / np.float32(s)), E4M3) * s for v in part]
            assert got[r, b * block : (b + 1) * block].tolist() == want


@pytest.mark.parametrize("scale", ["ue8m0", "fp32"])
def test_the_error_is_that_of_four_bits_of_mantissa_and_nothing_clips(scale: fp8.Scale) -> None:
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(2))
    error = fp8.rounded_1x128(x, scale=scale) - x
    assert 0.02 < (error.norm() / x.norm()).item() < 0.03
    assert bool((error.abs() <= x.abs() / 16 + 2.0**-16).all())


@pytest.mark.parametrize("scale", ["ue8m0", "fp32"])
@pytest.mark.parametrize(("n", "k"), [(256, 384), (128, 128), (130, 200), (1, 129)])
def test_tiles_equal_one_tile_at_a_time(n: int, k: int, scale: fp8.Scale) -> None:
    rng = torch.Generator().manual_seed(n)
    w = torch.randn(n, k, generator=rng) * torch.exp(torch.randn(n, 1, generator=rng))
    codes, scales = fp8.quantize_128x128(w, scale=scale)
    assert codes.shape == w.shape and scales.shape == (math.ceil(n / 128), math.ceil(k / 128))
    got = fp8.dequantize_128x128(codes, scales)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            tile = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            s = dumb_scale(w[tile].abs().max().item(), scale)
            want = e4m3.decode(e4m3.encode(w[tile] / s)) * s
            assert torch.equal(got[tile], want)


def test_batched_tiles_are_tiles() -> None:
    w = torch.randn(3, 130, 256, generator=torch.Generator().manual_seed(3))
    codes, scales = fp8.quantize_128x128(w)
    for e in range(3):
        one = fp8.quantize_128x128(w[e])
        assert torch.equal(codes[e], one[0]) and torch.equal(scales[e], one[1])
    assert torch.equal(fp8.dequantize_128x128(codes, scales)[2], fp8.dequantize_128x128(codes[2], scales[2]))


def test_zeros_have_the_scale_of_the_floor() -> None:
    codes, scales = fp8.quantize_1x128(torch.zeros(2, 128))
    assert codes.unique().tolist() == [0] and scales.flatten().tolist() == [105, 105]
    assert fp8.quantize_1x128(torch.zeros(1, 128), scale="fp32")[1].item() == np.float32(1e-4) / np.float32(448)


@pytest.mark.parametrize("scale", ["ue8m0", "fp32"])
def test_nan_poisons_its_block_alone(scale: fp8.Scale) -> None:
    x = torch.ones(1, 256)
    x[0, 3] = torch.nan
    got = fp8.rounded_1x128(x, scale=scale)
    assert bool(got[0, :128].isnan().all()) and torch.equal(got[0, 128:], torch.ones(128))


def test_infinity_saturates_under_ue8m0_and_is_nan_under_fp32() -> None:
    x = torch.ones(1, 128)
    x[0, 5] = -torch.inf
    codes, scales = fp8.quantize_1x128(x)
    assert scales.item() == 254 and codes[0, 5] == 0xFE and codes[0, 0] == 0
    assert bool(fp8.rounded_1x128(x, scale="fp32").isnan().all())


def test_empties_and_errors() -> None:
    codes, scales = fp8.quantize_1x128(torch.empty(0, 256))
    assert codes.shape == (0, 256) and scales.shape == (0, 2)
    with pytest.raises(ValueError, match=r"oracles\.formats\.fp8: K=96; allowed: a multiple of 128"):
        fp8.quantize_1x128(torch.ones(1, 96))
    with pytest.raises(ValueError, match=r"oracles\.formats\.fp8: scale=bf16; allowed: ue8m0, fp32"):
        fp8.quantize_1x128(torch.ones(1, 128), scale="bf16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scales\.shape=\(1, 1\); allowed: \[\.\.\., 2, 1\]"):
        fp8.dequantize_128x128(torch.zeros(129, 128, dtype=torch.uint8), torch.zeros(1, 1))
