"""All sixteen codes of E2M1, every midpoint, and the packing of two to a byte."""

from __future__ import annotations

import math

import pytest
import torch

from oracles.formats import e2m1


def test_the_sixteen_values_are_sign_exponent_mantissa() -> None:
    for code in range(16):
        sign, exponent, mantissa = (-1.0) ** (code >> 3), code >> 1 & 3, code & 1
        value = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
        got = e2m1.decode(torch.tensor([code], dtype=torch.uint8)).item()
        assert got == sign * value and math.copysign(1, got) == sign


def test_every_code_survives_a_round_trip() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert torch.equal(e2m1.encode(e2m1.decode(codes)), codes)


def test_midpoints_go_to_the_even_code() -> None:
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    for sign in (1.0, -1.0):
        got = e2m1.decode(e2m1.encode(sign * midpoints))
        assert got.tolist() == [sign * v for v in (0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_ulp_beside_a_midpoint_is_no_tie(dtype: torch.dtype) -> None:
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=dtype)
    infinity = torch.tensor(torch.inf, dtype=dtype)
    above = e2m1.encode(torch.nextafter(midpoints, infinity))
    below = e2m1.encode(torch.nextafter(midpoints, -infinity))
    assert above.tolist() == [1, 2, 3, 4, 5, 6, 7] and below.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_saturation_nan_and_signed_zero() -> None:
    x = torch.tensor([6.5, 1e30, torch.inf, -torch.inf, -7.0, torch.nan, -torch.nan, 0.0, -0.0, -0.1, 5e-324])
    assert e2m1.encode(x).tolist() == [7, 7, 7, 15, 15, 7, 7, 0, 8, 8, 0]


def test_the_low_nibble_is_the_even_index() -> None:
    codes = torch.tensor([[1, 2, 15, 8]], dtype=torch.uint8)
    assert e2m1.pack(codes).tolist() == [[0x21, 0x8F]]
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(e2m1.pack(e2m1.unpack(every)), every)
    assert torch.equal(e2m1.unpack(every.view(torch.int8)), e2m1.unpack(every))
    assert e2m1.pack(torch.empty(3, 0, dtype=torch.uint8)).shape == (3, 0)


def test_an_odd_number_of_codes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.e2m1\.pack: last size=3; allowed: an even number"):
        e2m1.pack(torch.zeros(3, dtype=torch.uint8))
