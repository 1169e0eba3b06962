"""The root mean square of a row, and values over it, right to the last bit of fp32 but for near ties.

Squares of BF16 are exact in fp32 and are added in fp64, or four of them in fp32 first, where nobody sees the last bits
(a sum good to about 2^-28), in an order that is fixed: nothing depends on who comes first. 1 / rms is an fp64 number,
used as two fp32 numbers, high (cut, so that low is not negative and -0 stays -0) and low; a product with both rounds
once.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Float32, Float64

from kernels.shared import ptx


def sum_of_squares(values: list, group: int) -> Float64:
    """Of a thread's values; `group` squares at a time are added in fp32."""
    total: Any = None
    for begin in range(0, len(values), group):
        first, *others = values[begin : begin + group]
        part = ptx.mul(first, first)
        for value in others:
            part = ptx.fma(value, value, part)
        wide = ptx.widen(part)
        total = wide if total is None else ptx.add64(total, wide)
    return total


def over_lanes(total: Float64, lanes: int = 32) -> Float64:
    """The sum over `lanes` neighbouring lanes, a power of two; every lane has it."""
    offset = lanes // 2
    while offset:
        total = ptx.add64(total, ptx.shuffle64(total, offset))
        offset //= 2
    return total


def inverse_rms(total: Float64, width: int, eps: float) -> Float64:
    """1 / sqrt(total / width + eps): an approximation and a step of Newton in fp64, good to 2^-43. 0 for infinity."""
    mean = ptx.fma64(total, Float64(1.0 / width), Float64(eps))
    guess = ptx.rsqrt_approx(ptx.narrow(mean))
    wide = ptx.widen(guess)
    half = ptx.mul64(ptx.mul64(mean, Float64(-0.5)), wide)
    better = ptx.fma64(wide, ptx.fma64(half, wide, Float64(0.5)), wide)
    return cutlass.select_(guess == 0.0, Float64(0.0), better)


def in_two(inverse: Float64) -> tuple:
    """An fp64 number >= 0 as the sum of two fp32 numbers >= 0."""
    high = ptx.narrow_towards_zero(inverse)
    low = ptx.narrow(ptx.add64(inverse, ptx.mul64(ptx.widen(high), Float64(-1.0))))
    return high, cutlass.select_(high == 0.0, Float32(0.0), low)


def over_rms(value, weight, inverse: tuple, exact: bool):
    """value weight / rms. exact: the product of value and weight is an fp32 number, as that of two BF16 is."""
    high, low = inverse
    if weight is None:
        return ptx.fma(value, high, ptx.mul(value, low))
    product = ptx.mul(value, weight)
    rest = ptx.mul(product, low)
    if exact:
        return ptx.fma(product, high, rest)
    missing = ptx.fma(value, weight, ptx.negative(product))
    found = ptx.fma(product, high, ptx.fma(missing, high, rest))
    # A sum of zeros of both signs is +0: the sign of -0 is that of the product.
    return cutlass.select_(found == 0.0, ptx.mul(product, high), found)
