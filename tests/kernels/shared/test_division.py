"""A quotient by reciprocal and one correction decides every midpoint of E2M1 and E4M3 as a division does.

`kernels/shared/encode.py` relies on it. The midpoints have the significands n / 2^k with n odd below 32. Values within
two steps of a midpoint times b are the only ones that can be decided otherwise. All significands of b were tried once
(671 million quotients); here every 101st is, and the ends.
"""

from __future__ import annotations

import numpy as np
import pytest

MIDPOINTS = [n / 2.0 ** (n.bit_length() - 1) for n in range(1, 32, 2)]


def corrected(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As `Encoder.divide`, in fp32; longdouble holds what an fma holds before it rounds."""
    inverse = (1 / b.astype(np.longdouble)).astype(np.float32)
    quotient = (x.astype(np.float64) * inverse.astype(np.float64)).astype(np.float32)
    remainder = (quotient.astype(np.float64) * b.astype(np.float64) - x.astype(np.float64)).astype(np.float32)
    found = quotient.astype(np.longdouble) - remainder.astype(np.longdouble) * inverse.astype(np.longdouble)
    return found.astype(np.float32)


def near(b: np.ndarray, midpoint: float, steps: int) -> np.ndarray:
    """midpoint x b, and so many fp32 numbers further."""
    product = (b.astype(np.float64) * midpoint).astype(np.float32)
    return (product.view(np.int32) + steps).view(np.float32)


@pytest.mark.parametrize("midpoint", MIDPOINTS)
def test_midpoints_are_decided_as_by_a_division(midpoint: float) -> None:
    significands = np.r_[np.arange(1 << 23, 1 << 24, 101), np.arange((1 << 24) - 99, (1 << 24) - 1)]
    b = (significands * 2.0**-23).astype(np.float32)
    for steps in range(-2, 3):
        x = near(b, midpoint, steps)
        want, found = x / b, corrected(x, b)
        assert np.array_equal(np.sign(found - np.float32(midpoint)), np.sign(want - np.float32(midpoint))), steps


def test_a_significand_of_ones_is_the_exception() -> None:
    b = np.array([2.0 - 2.0**-23], np.float32)
    x = near(b, 1.0, 1)
    assert x / b > 1.0 and corrected(x, b) == 1.0
