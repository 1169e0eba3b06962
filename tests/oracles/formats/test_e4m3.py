"""All 256 bytes of E4M3, against the definition and against torch's own type."""

from __future__ import annotations

import math

import torch

from oracles.formats import e4m3

BYTES = torch.arange(256, dtype=torch.uint8)


def test_the_256_values_are_sign_exponent_mantissa() -> None:
    got = e4m3.decode(BYTES).tolist()
    for byte in range(256):
        exponent, mantissa = byte >> 3 & 15, byte & 7
        value = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        value = math.nan if byte & 127 == 127 else math.copysign(value, -1.0 if byte > 127 else 1.0)
        assert got[byte] == value or math.isnan(value) and math.isnan(got[byte])
        assert math.isnan(value) or math.copysign(1, got[byte]) == math.copysign(1, value)
    assert max(v for v in got if not math.isnan(v)) == e4m3.LARGEST


def test_every_byte_survives_a_round_trip_and_nan_is_canonical() -> None:
    want = BYTES.clone()
    want[255] = 0x7F
    assert torch.equal(e4m3.encode(e4m3.decode(BYTES)), want)
    assert torch.equal(e4m3.encode(e4m3.decode(BYTES, dtype=torch.bfloat16)), want)


def test_every_midpoint_goes_to_the_even_byte_and_its_neighbours_do_not() -> None:
    values = e4m3.decode(BYTES[:127])
    midpoints, low = (values[1:] + values[:-1]) / 2, BYTES[:126]
    assert torch.equal(e4m3.encode(midpoints), low + low % 2)
    infinity = torch.tensor(torch.inf)
    assert torch.equal(e4m3.encode(torch.nextafter(midpoints.float(), infinity)), low + 1)
    assert torch.equal(e4m3.encode(torch.nextafter(midpoints.float(), -infinity)), low)
    assert torch.equal(e4m3.encode(-midpoints), low + low % 2 + 128)


def test_equals_the_type_of_torch_where_that_does_not_overflow() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(20000, generator=rng) * torch.exp(3 * torch.randn(20000, generator=rng))
    x = x[x.abs() <= 448]
    assert torch.equal(e4m3.encode(x), x.to(torch.float8_e4m3fn).view(torch.uint8))
    assert torch.equal(e4m3.decode(BYTES[:127]), BYTES[:127].view(torch.float8_e4m3fn).double())


def test_saturation_nan_and_signed_zero() -> None:
    x = torch.tensor(
        [464.0, 465.0, 1e30, torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 2.0**-10, 2.0**-10 * 1.01, -1e-9]
    )
    assert e4m3.encode(x).tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0, 0x80, 0, 1, 0x80]


def test_a_double_is_rounded_once() -> None:
    """Just above the midpoint of 1.0 and 1.125: through fp32 it would be the tie and go down to 1.0."""
    x = torch.tensor([1.0625 + 2.0**-40], dtype=torch.float64)
    assert e4m3.decode(e4m3.encode(x)).item() == 1.125
