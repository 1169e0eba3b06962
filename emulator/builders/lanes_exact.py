"""f64 in the modes that NumPy does not have: exact rationals, one lane at a time.

Slow (about 5 us a lane) and rarely needed: fused multiply-add and directed rounding of f64. Operands that are not
finite, and exact zeros, follow IEEE 754 as NumPy computes them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

_MAX = Fraction(np.finfo(np.float64).max)
_BEYOND = Fraction(2) ** 1024


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray, rnd: str = "rn") -> np.ndarray:
    """a * b + c in one rounding."""
    return round_f64("fma", rnd, a, b, c)


def round_f64(operation: str, rnd: str, *operands: np.ndarray) -> np.ndarray:
    """mul, div, sqrt or fma of f64 lanes, rounded once by `rnd` (rn rz rm rp)."""
    result = _ieee(operation, operands)
    finite = np.isfinite(np.stack(operands)).all(axis=0)
    if operation == "div":
        finite &= operands[1] != 0
    if operation == "sqrt":
        finite &= operands[0] >= 0
    for lane in np.flatnonzero(finite):
        exact = _exact(operation, [Fraction(float(x[lane])) for x in operands])
        if exact:
            result[lane] = rounded(exact, rnd)
        elif operation == "fma":
            result[lane] = _zero_sum(float(operands[0][lane]), float(operands[1][lane]), float(operands[2][lane]), rnd)
    return result


def _ieee(operation: str, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    a = operands[0]
    if operation == "sqrt":
        return np.sqrt(a)
    if operation == "div":
        return a / operands[1]
    product = a * operands[1]
    if operation == "mul":
        return product
    # a product that only overflows is finite to a fused operation: next to an infinite addend it must not matter
    finite = np.isfinite(a) & np.isfinite(operands[1])
    return np.where(finite, 0.0, product) + operands[2]


def _exact(operation: str, x: list[Fraction]) -> Fraction:
    """The exact result; of a square root, the root cut at 2^-1100 with a sticky bit below (64 digits are kept)."""
    if operation == "fma":
        return x[0] * x[1] + x[2]
    if operation == "mul":
        return x[0] * x[1]
    if operation == "div":
        return x[0] / x[1]
    scaled = (x[0].numerator << 2200) // x[0].denominator
    root = math.isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled), 1 << 1101)


def _zero_sum(a: float, b: float, c: float, rnd: str) -> float:
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    if a and b:  # opposite terms cancelled
        return -0.0 if rnd == "rm" else 0.0
    if math.copysign(1.0, c) == sign:
        return math.copysign(0.0, sign)
    return -0.0 if rnd == "rm" else 0.0


def rounded(exact: Fraction, rnd: str) -> float:
    """A rational other than zero as a float64."""
    size, negative = abs(exact), exact < 0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 53, -1074)
    while size / Fraction(2) ** exponent >= 1 << 53:
        exponent += 1
    quantum = Fraction(2) ** exponent
    steps, rest = divmod(size, quantum)
    up = {
        "rn": 2 * rest > quantum or (2 * rest == quantum and steps % 2 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[rnd]
    value = (steps + up) * quantum
    if value >= _BEYOND:
        outward = rnd == "rn" or rnd == ("rm" if negative else "rp")
        value_float = math.inf if outward else float(_MAX)
    else:
        value_float = float(value)
    return -value_float if negative else value_float
