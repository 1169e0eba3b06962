"""A quotient by a reciprocal in two parts decides every midpoint of E2M1 and E4M3 as a division does.

`kernels/shared/encode.py` relies on it. The midpoints have the significands n / 2^k with n odd below 32. Values within
two steps of a midpoint times b are the only ones that can be decided otherwise. All significands of b were tried once,
with approximations of 1 / b one bit to either side (2 billion quotients); here every 101st is, and the ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.shared.encode import EXCEPTIONS

MIDPOINTS = [n / 2.0 ** (n.bit_length() - 1) for n in range(1, 32, 2)]


def side(x: np.ndarray, b: np.ndarray, midpoint: float, towards: float = 1.0) -> np.ndarray:
    """-1, 0 or 1: where the quotient of `Encoder.divide` lies of the midpoint. An fp64 number holds how far the sum is
    from it before it is rounded. towards: where the approximation of 1 / b is off to, by a bit."""
    guess = np.nextafter((1 / b.astype(np.longdouble)).astype(np.float32), np.float32(towards))
    off = (1 - b.astype(np.float64) * guess.astype(np.float64)).astype(np.float32)
    better = guess.astype(np.longdouble) * (1 + off.astype(np.longdouble))
    high: Any = better.astype(np.float32)
    high = np.where(high.astype(np.longdouble) > better, np.nextafter(high, np.float32(0)), high).astype(np.float32)
    wide = high.astype(np.float64)
    lacks = (1 - b.astype(np.float64) * wide).astype(np.float32)
    low = (lacks.astype(np.float64) * wide).astype(np.float32)
    rest = (x.astype(np.float64) * low.astype(np.float64)).astype(np.float32)
    off = (x.astype(np.float64) * wide - midpoint) + rest.astype(np.float64)
    below = 2.0**-25 if midpoint == 1.0 else 2.0**-24
    return np.where(off > 2.0**-24, 1, np.where(off < -below, -1, 0))


def near(b: np.ndarray, midpoint: float, steps: int) -> np.ndarray:
    """midpoint x b, and so many fp32 numbers further."""
    product = (b.astype(np.float64) * midpoint).astype(np.float32)
    return (product.view(np.int32) + steps).view(np.float32)


@pytest.mark.parametrize("towards", [0.0, 2.0])
@pytest.mark.parametrize("midpoint", MIDPOINTS)
def test_midpoints_are_decided_as_by_a_division(midpoint: float, towards: float) -> None:
    significands = np.r_[np.arange(1 << 23, 1 << 24, 101), np.arange((1 << 24) - 99, (1 << 24) - 1)]
    b = (significands * 2.0**-23).astype(np.float32)
    for steps in range(-2, 3):
        x = near(b, midpoint, steps)
        assert np.array_equal(side(x, b, midpoint, towards), np.sign(x / b - np.float32(midpoint)).astype(int)), steps


@pytest.mark.parametrize(
    ("bits", "midpoint", "steps"), [(0x7FFFFF, 1.0, 1), (0x5FFFFD, 1.625, 0), (0x5FFFFE, 1.4375, 0)]
)
def test_three_significands_are_the_exceptions(bits: int, midpoint: float, steps: int) -> None:
    """`Encoder.plain` sends them, and five others, to a division."""
    b = np.array([0x3F800000 | bits], np.uint32).view(np.float32)
    x = near(b, midpoint, steps)
    assert side(x, b, midpoint) == 0 and np.sign(x / b - np.float32(midpoint)) == 1
    assert bits & EXCEPTIONS == EXCEPTIONS
