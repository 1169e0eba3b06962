"""All 256 bytes of UE8M0, three ways of rounding, and the scale of a block."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import pytest
import torch

from oracles.formats import ue8m0

BYTES = torch.arange(256, dtype=torch.uint8)


def test_the_256_values() -> None:
    got = ue8m0.decode(BYTES)
    assert got[:255].tolist() == [2.0 ** (b - 127) for b in range(255)] and math.isnan(got[255])
    assert torch.equal(got[:255], BYTES[:255].view(torch.float8_e8m0fnu).double())
    assert torch.equal(ue8m0.decode(BYTES[:255], dtype=torch.float32).double(), got[:255])


@pytest.mark.parametrize("policy", get_args(ue8m0.Policy))
def test_every_byte_survives_a_round_trip(policy: ue8m0.Policy) -> None:
    assert torch.equal(ue8m0.encode(ue8m0.decode(BYTES), policy), BYTES)


@pytest.mark.parametrize(
    ("policy", "want"), [("ceil", [1, 1, 1, 1]), ("floor", [0, 0, 0, 0]), ("nearest", [0, 0, 1, 1])]
)
def test_between_two_powers(policy: ue8m0.Policy, want: list[int]) -> None:
    x = torch.tensor([1 + 2.0**-23, 1.49, 1.51, 2 - 2.0**-23])
    for k in (-126, -3, 0, 1, 100):
        assert ue8m0.encode(x * 2.0**k, policy).tolist() == [127 + k + w for w in want]


def test_the_middle_goes_to_the_even_byte() -> None:
    assert ue8m0.encode(torch.tensor([1.5, 3.0, 6.0]), "nearest").tolist() == [128, 128, 130]


def test_ends_zero_infinity_nan_and_negative() -> None:
    x = torch.tensor([0.0, 5e-324, 2.0**-127, 2.0**-127 * 1.5, 2.0**128, math.inf, math.nan, -1.0], dtype=torch.float64)
    assert ue8m0.encode(x, "ceil").tolist() == [0, 0, 0, 1, 254, 254, 255, 255]
    assert ue8m0.encode(x, "floor").tolist() == [0, 0, 0, 0, 254, 254, 255, 255]
    assert ue8m0.encode(x, "nearest").tolist() == [0, 0, 0, 0, 254, 254, 255, 255]


@pytest.mark.parametrize("largest", [448.0, 6.0])
def test_the_block_scale_is_the_smallest_that_clips_nothing(largest: float) -> None:
    rng = torch.Generator().manual_seed(1)
    amax = torch.exp(8 * torch.randn(500, generator=rng))
    edges = largest * 2.0 ** torch.arange(-20, 20).float()
    amax = torch.cat((amax, edges, torch.nextafter(edges, torch.tensor(torch.inf)), torch.nextafter(edges, edges * 0)))
    scales = ue8m0.decode(ue8m0.scale_byte(amax, largest)).tolist()
    for a, s in zip(amax.tolist(), scales, strict=True):
        assert Fraction(largest) * Fraction(s) >= Fraction(a) > Fraction(largest) * Fraction(s) / 2


def test_no_second_rounding_just_below_a_power_of_two() -> None:
    """A quotient that bf16 would round up to the next power of two, and with it the scale."""
    amax = torch.nextafter(torch.tensor(448.0 * 4), torch.tensor(0.0))
    assert ue8m0.scale_byte(amax, 448.0).item() == 127 + 2
    assert ue8m0.scale_byte(torch.nextafter(amax, torch.tensor(torch.inf)) * (1 + 2.0**-23), 448.0).item() == 127 + 3


def test_floor_policy_is_the_quotient_of_the_powers() -> None:
    amax = torch.tensor([4.0, 6.0, 7.9, 8.0])
    assert ue8m0.decode(ue8m0.scale_byte(amax, 6.0, policy="floor")).tolist() == [1.0, 1.0, 1.0, 2.0]


def test_floor_nan_and_infinite_amax() -> None:
    amax = torch.tensor([0.0, 1e-9, math.nan, math.inf])
    assert ue8m0.scale_byte(amax, 448.0, floor=1e-4).tolist() == [105, 105, 255, 254]
    assert 448.0 * 2.0 ** (105 - 127) >= 1e-4 > 448.0 * 2.0 ** (104 - 127)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.ue8m0\.encode: policy=up; allowed: ceil, floor, nearest"):
        ue8m0.encode(torch.ones(1), "up")  # type: ignore[arg-type]
