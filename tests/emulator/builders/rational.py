"""An exact model of binary floating point, written from IEEE 754 with rationals, apart from the lane functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """`digits` of significand, smallest normal 2^smallest, `width` bits in all, the pattern of NaN."""

    digits: int
    smallest: int
    width: int
    nan: int

    @property
    def stored(self) -> int:
        """Stored significand bits."""
        return self.digits - 1

    @property
    def infinity(self) -> int:
        """Pattern of infinity."""
        return ((1 << (self.width - self.digits)) - 1) << self.stored

    def value(self, pattern: int) -> Fraction | float:
        """A finite number as a rational; infinities and NaN as floats; a zero as the float with its sign."""
        negative, magnitude = pattern >> (self.width - 1), pattern & ((1 << (self.width - 1)) - 1)
        if magnitude > self.infinity:
            return math.nan
        if magnitude == self.infinity:
            return -math.inf if negative else math.inf
        if magnitude == 0:
            return -0.0 if negative else 0.0
        exponent, fraction = magnitude >> self.stored, magnitude & ((1 << self.stored) - 1)
        digits = fraction + (1 << self.stored) if exponent else fraction
        size = digits * Fraction(2) ** (max(exponent, 1) - 1 + self.smallest - self.stored)
        return -size if negative else size

    def pattern(self, exact: Fraction, rnd: str, ftz: bool = False) -> int:
        """A rational other than zero, rounded once; `ftz` makes zeros of what is below the smallest normal number."""
        negative, size = exact < 0, abs(exact)
        sign = int(negative) << (self.width - 1)
        if ftz and size < Fraction(2) ** self.smallest:
            return sign
        exponent = self.smallest
        while size >= Fraction(2) ** (exponent + 1):
            exponent += 1
        steps, rest = divmod(size, Fraction(2) ** (exponent - self.stored))
        away = {"rn": False, "rz": False, "rm": negative, "rp": not negative}[rnd] and rest > 0
        if rnd == "rn":
            half = Fraction(2) ** (exponent - self.stored - 1)
            away = rest > half or (rest == half and steps % 2 == 1)
        code = ((exponent - self.smallest) << self.stored) + steps + away
        if code >= self.infinity:
            inward = rnd == "rz" or (rnd == "rm" and not negative) or (rnd == "rp" and negative)
            code = self.infinity - 1 if inward else self.infinity
        return sign | code

    def special(self, result: float) -> int:
        """An infinity, a NaN (canonical) or a zero."""
        if math.isnan(result):
            return self.nan
        sign = int(math.copysign(1.0, result) < 0) << (self.width - 1)
        return sign | (self.infinity if math.isinf(result) else 0)


F16 = Format(11, -14, 16, 0x7FFF)
BF16 = Format(8, -126, 16, 0x7FFF)
F32 = Format(24, -126, 32, 0x7FFFFFFF)
F64 = Format(53, -1022, 64, 0x7FFFFFFFFFFFFFFF)


def fused(f: Format, a: int, b: int, c: int, rnd: str, ftz: bool = False) -> int:
    """a * b + c on patterns. NaN results have the canonical pattern of the format."""
    x, y, z = (flushed(f, v) if ftz else f.value(v) for v in (a, b, c))
    if all(isinstance(v, Fraction) or v == 0 for v in (x, y, z)):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        return f.pattern(exact, rnd, ftz) if exact else f.special(_zero(x, y, z, rnd))
    return f.special(_small(x) * _small(y) + _small(z))


def added(f: Format, a: int, b: int, rnd: str, ftz: bool = False) -> int:
    """a + b on patterns: fused with 1, but for the sign of zeros, which the product keeps."""
    return fused(f, a, f.pattern(Fraction(1), "rn"), b, rnd, ftz)


def multiplied(f: Format, a: int, b: int, rnd: str, ftz: bool = False) -> int:
    """a * b on patterns."""
    x, y = (flushed(f, v) if ftz else f.value(v) for v in (a, b))
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return f.pattern(x * y, rnd, ftz)
    return f.special(_small(x) * _small(y))


def divided(f: Format, a: int, b: int, rnd: str, ftz: bool = False) -> int:
    """a / b on patterns."""
    x, y = (flushed(f, v) if ftz else f.value(v) for v in (a, b))
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return f.pattern(x / y, rnd, ftz)
    p, q = _small(x), _small(y)
    if q == 0:
        return f.special(math.nan if p == 0 or math.isnan(p) else math.copysign(math.inf, p) * math.copysign(1, q))
    return f.special(p / q)


def rooted(f: Format, a: int, rnd: str, ftz: bool = False) -> int:
    """sqrt(a) on patterns: an integer root of 200 digits with a sticky bit."""
    x = flushed(f, a) if ftz else f.value(a)
    if not isinstance(x, Fraction):
        return f.special(x if x == 0 or x == math.inf else math.nan)
    if x < 0:
        return f.nan
    scale = 1 << 2400
    root = math.isqrt(x.numerator * scale // x.denominator)
    return f.pattern(Fraction(2 * root + (root * root * x.denominator != x.numerator * scale), 2 << 1200), rnd)


def flushed(f: Format, pattern: int) -> Fraction | float:
    """The value with subnormals as zeros of their sign."""
    value = f.value(pattern)
    if isinstance(value, Fraction) and abs(value) < Fraction(2) ** f.smallest:
        return -0.0 if value < 0 else 0.0
    return value


def _small(v: Fraction | float) -> float:
    """A stand-in for a finite number that cannot overflow or underflow: only its sign counts beside specials."""
    return math.copysign(1.0, v) if isinstance(v, Fraction) else v


def _zero(x: Fraction | float, y: Fraction | float, z: Fraction | float, rnd: str) -> float:
    product = math.copysign(1, _small(x)) * math.copysign(1, _small(y))
    if math.copysign(1, _small(z)) == product:
        return math.copysign(0.0, product)
    return -0.0 if rnd == "rm" else 0.0
