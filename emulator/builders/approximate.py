"""Constants of ex2 and lg2. Both engines evaluate them by the same float64 operations in the same order, each rounded
by itself, so that their results are equal bits on every machine whatever its math library does.

ex2: x = n + j / 256 + f with integers n, 0 <= j < 256 and |f| <= 1/512; 2^x = 2^n T[j] (1 + f P(f)), 2^-33 from exact.
lg2: x = 2^e m with m in [sqrt(1/2), sqrt(2)); log2(m) = y Q(y^2) with y = (m - 1) / (m + 1), 2^-37 from exact.
P and Q interpolate at Chebyshev nodes; coefficients are listed lowest first.
"""

from __future__ import annotations

import struct
from math import isqrt

EX2 = (float.fromhex("0x1.62e4337d04bc9p-1"), float.fromhex("0x1.ebfbe26e81c82p-3"))
EX2_LOW, EX2_HIGH = -160.0, 160.0
"""Beyond these 2^x is 0 or infinity in f32, and the exponent still fits float64."""

MAGIC = 1.5 * 2.0**44
"""Adding it rounds a small number to a multiple of 1/256, which is then in the low bits of the pattern."""

LG2 = tuple(
    float.fromhex(c)
    for c in (
        "0x1.71547652bed13p+1", "0x1.ec709d13c0821p-1", "0x1.27777f461993ep-1", "0x1.a58dceca72ce8p-2",
        "0x1.5ce39e0f72792p-2",
    )
)  # fmt: skip


def pattern(value: float) -> int:
    """The bits of a float64."""
    return int.from_bytes(struct.pack("<d", value), "little")


ONE_BITS = pattern(1.0)
ROOT_HALF_BITS = pattern(0.5**0.5)


def _powers() -> list[int]:
    """Patterns of 2^(j / 256), correctly rounded: the root is taken in integers."""
    digits = 400
    root = 2 << digits
    for _ in range(8):
        root = isqrt(root << digits)
    powers, total = [], 1 << digits
    for _ in range(256):
        powers.append(pattern(1.0) + ((total >> digits - 53) + 1 >> 1) - (1 << 52))
        total = total * root >> digits
    return powers


EX2_TABLE = [power - (j << 44) & 0xFFFFFFFFFFFFFFFF for j, power in enumerate(_powers())]
"""Patterns of T[j], less j shifted by 44: adding the pattern of MAGIC + x, shifted by 44, puts n into the exponent."""
