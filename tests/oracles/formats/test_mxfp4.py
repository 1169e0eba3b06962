"""MXFP4 one number at a time, and its exact cast to NVFP4."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles.formats import e2m1, mxfp4, nvfp4, ue8m0
from tests.oracles.formats.hostile import E2M1, rows, search


@pytest.mark.parametrize("policy", ["ceil", "floor"])
def test_rows_equal_one_number_at_a_time(policy: ue8m0.Policy) -> None:
    x = rows(96)
    packed, scales = mxfp4.quantize(x, policy=policy)
    assert packed.shape == (len(x), 48) and scales.shape == (len(x), 3)
    got = mxfp4.dequantize(packed, scales)
    for r, row in enumerate(x.double().tolist()):
        for b in range(3):
            part = row[32 * b : 32 * b + 32]
            amax, k = max(*(abs(v) for v in part), 6 * 2.0**-126), -126
            while Fraction(6 if policy == "ceil" else 8) * Fraction(2.0**k) < Fraction(amax) or (
                policy == "floor" and Fraction(8) * Fraction(2.0**k) == Fraction(amax)
            ):
                k += 1
            assert got[r, 32 * b : 32 * b + 32].tolist() == [search(v / 2.0**k, E2M1) * 2.0**k for v in part]


def test_the_error_on_gaussian_data_is_known() -> None:
    x = torch.randn(200, 512, generator=torch.Generator().manual_seed(0))
    assert abs(((mxfp4.rounded(x) - x).norm() / x.norm()).item() - 0.115) < 0.005


def test_zeros_nan_and_infinity() -> None:
    x = torch.zeros(3, 32)
    x[1, 4], x[2, 4] = torch.nan, -torch.inf
    packed, scales = mxfp4.quantize(x)
    assert scales.flatten().tolist() == [1, 255, 254] and packed[0].unique().tolist() == [0]
    got = mxfp4.dequantize(packed, scales)
    assert bool(got[1].isnan().all()) and got[2, 4].item() == -6 * 2.0**127 and got[2, 5].item() == 0.0


def every_code(exponents: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """One row per exponent, with all sixteen codes twice."""
    packed = e2m1.pack(torch.arange(16, dtype=torch.uint8).repeat(2)).expand(len(exponents), 16)
    return packed.contiguous(), torch.tensor(exponents, dtype=torch.uint8)[:, None] + ue8m0.BIAS


def test_the_cast_to_nvfp4_is_exact_over_the_whole_range() -> None:
    packed, scales = every_code(list(range(-9, 9)))
    for shift in (-20, 0, 30):
        cast = mxfp4.to_nvfp4(packed, scales + shift)
        assert cast[2].item() == 2.0**shift and cast[2].dtype == torch.float32
        assert torch.equal(nvfp4.dequantize(*cast), mxfp4.dequantize(packed, scales + shift))


def test_w1_and_w3_share_the_largest_exponent() -> None:
    packed, low = every_code([0, 3])
    _, high = every_code([7, 5])
    m = mxfp4.shared_exponent(low, high)
    assert m == -1
    for scales in (low, high):
        cast = mxfp4.to_nvfp4(packed, scales, m)
        assert cast[2].item() == 0.5 and torch.equal(nvfp4.dequantize(*cast), mxfp4.dequantize(packed, scales))


def test_a_cast_that_cannot_be_exact_is_refused_unless_the_block_is_zero() -> None:
    packed, scales = every_code([0, 18])
    with pytest.raises(ValueError, match=r"exponents=-10\.\.8 over 2\^10; allowed: -9\.\.8"):
        mxfp4.to_nvfp4(packed, scales)
    packed[0] = 0x80
    assert torch.equal(nvfp4.dequantize(*mxfp4.to_nvfp4(packed, scales)), mxfp4.dequantize(packed, scales))
    with pytest.raises(ValueError, match=r"scales=255 \(NaN\); allowed: 0\.\.254"):
        mxfp4.to_nvfp4(packed, torch.full_like(scales, 255))
    assert mxfp4.to_nvfp4(packed[:0], scales[:0])[1].shape == (0, 2)


def test_a_block_that_does_not_fill_is_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.mxfp4: K=48; allowed: a multiple of 32"):
        mxfp4.quantize(torch.ones(1, 48))
