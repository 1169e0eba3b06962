"""e^x in fp32, about as good as the instruction for 2^x is: 2^-22 of it."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Float32

from kernels.shared import ptx

LOG2_E, LOG2_E_REST = 1.44269502162933349609375, 1.9259629911e-08
"""log2 e to fp32, and what is missing."""
LN_2 = 0.6931471805599453
ORDINARY = 126.0
"""Beyond this power of two the result is 0 or infinite, or the product was, and there is nothing to correct."""


def exp(x: Any) -> Any:
    """e^x: x log2 e is taken in two parts, 2^(a + b) = 2^a (1 + b ln 2) for a small b. Subnormal results are 0."""
    power, found, corrected = _parts(x)
    return cutlass.select_(ptx.magnitude(power) < ORDINARY, corrected, found)


def exp_ordinary(x: Any) -> Any:
    """The same if the result is a normal number; infinity or NaN if it is larger, anything if smaller."""
    return _parts(x)[2]


def _parts(x: Any) -> tuple[Any, Any, Any]:
    power = ptx.mul(x, Float32(LOG2_E))
    rest = ptx.fma(x, Float32(LOG2_E_REST), ptx.fma(x, Float32(LOG2_E), ptx.negative(power)))
    found = ptx.ex2_approx(power)
    return power, found, ptx.fma(ptx.mul(found, Float32(LN_2)), rest, found)
