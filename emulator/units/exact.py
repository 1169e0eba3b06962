"""The arithmetic of NVIDIA's tensor cores bit by bit: the window rule.

Every finite operand has a value and an *encoded* exponent r: that of its exponent field, or the least normal one for a
subnormal, which is not renormalised. With raw(product) = r_a + r_b (+ scale exponents):

  E = max(floor, raw of every nonzero product, r_C if C is nonzero);   q = E - F
  every product and C are truncated toward zero to multiples of 2^q, added exactly, and rounded once into D.

F, the floor and the rounding depend on the instruction (`mma.rule`). Specials: any NaN, Inf * 0, or infinities of both
signs give the NaN 0x7FFFFFFF / 0x7FFF; an exact zero sum, or one that rounds to zero, is +0; an overflow is infinite
even when rounding toward zero. Checked on H200 words for wgmma and mma.sync, on B200 words for tcgen05.

Products of two 11-bit significands and window sums below 2^53 are exact in float64, so that is what is computed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.units.formats import FORMATS, decode_table

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
Bits = NDArray[Any]
Mask = NDArray[np.bool_]

# The exponent of a zero: far below every sum of real exponents, so it never wins a maximum.
NOTHING = -(1 << 20)


@dataclass(frozen=True)
class Parts:
    """Decoded operands of one shape: `value` float64 (0 for specials), encoded exponent `r` int32 (`NOTHING` where the
    value is 0), sign bits, special masks."""

    value: F64
    r: I32
    negative: Mask
    nan: Mask
    inf: Mask

    @property
    def special(self) -> bool:
        """Whether anything is infinite or NaN."""
        return bool(self.nan.any() or self.inf.any())

    def negated(self) -> Parts:
        """The same magnitudes with all signs flipped, infinities included."""
        return replace(self, value=-self.value, negative=~self.negative)

    def rows(self, pick: slice) -> Parts:
        """The rows `pick` of a matrix."""
        return Parts(self.value[pick], self.r[pick], self.negative[pick], self.nan[pick], self.inf[pick])

    def columns(self, pick: Any) -> Parts:
        """The columns `pick` of a matrix."""
        return Parts(self.value[:, pick], self.r[:, pick], self.negative[:, pick], self.nan[:, pick], self.inf[:, pick])


def split(name: str, bits: Bits) -> Parts:
    """Parts of raw codes of a format of `formats` or of f32."""
    if name not in ("f32", "tf32"):
        t = _table(name)
        return Parts(t.value.take(bits), t.r.take(bits), t.negative.take(bits), t.nan.take(bits), t.inf.take(bits))
    word = bits & np.uint32(0xFFFFE000) if name == "tf32" else np.ascontiguousarray(bits)
    single, field = word.view(np.float32), (word >> np.uint32(23) & np.uint32(255)).view(np.int32)
    r = np.maximum(field, 1)
    r -= 127
    r[single == 0] = NOTHING
    special = field == 255
    if not special.any():
        return Parts(single.astype(np.float64), r, word.view(np.int32) < 0, special, special)
    r[special] = NOTHING
    inf = np.isinf(single)
    return Parts(np.where(special, 0, single).astype(np.float64), r, word.view(np.int32) < 0, special & ~inf, inf)


@cache
def _table(name: str) -> Parts:
    """Parts of every code of a format of at most 16 bits (256 or 65536 entries)."""
    fmt = FORMATS[name]
    if name == "bf16":
        code = np.arange(65536, dtype=np.uint32)
        single: NDArray[np.float32] = (code << np.uint32(16)).view(np.float32)
    else:
        single = decode_table(name)
        code = np.arange(single.size, dtype=np.uint32) & np.uint32((fmt.sign << 1) - 1)
    field = (code >> np.uint32(fmt.mantissa) & np.uint32((1 << fmt.exponent) - 1)).astype(np.int32)
    finite = np.isfinite(single)
    r = np.where(finite & (single != 0), np.maximum(field, 1) - fmt.bias, NOTHING).astype(np.int32)
    value = np.where(finite, single, 0).astype(np.float64)
    return Parts(value, r, code & np.uint32(fmt.sign) != 0, np.isnan(single), np.isinf(single))


def renormalised(name: str, bits: Bits) -> Parts:
    """Parts of 8-bit operands after their conversion to f16, which mma.sync does first: a subnormal becomes normal."""
    parts = split(name, bits)
    exponent = np.frexp(parts.value)[1].astype(np.int32) - 1
    return replace(parts, r=np.where(parts.value != 0, exponent, NOTHING).astype(np.int32))


def shifted(c: Parts, by: int) -> Parts:
    """C times 2^-by: the exponent moves before the window sees it."""
    return replace(c, value=np.ldexp(c.value, -by), r=np.where(c.value != 0, c.r - by, NOTHING).astype(np.int32))


@dataclass(frozen=True)
class Rule:
    """`width` = F; `floor` of E; `rounding` of D: f32 (toward zero), e8m13 (toward zero, 13 bits), f16 (nearest)."""

    width: int
    floor: int
    rounding: str


def window(
    rule: Rule, a: Parts, b: Parts, c: Parts | None, scales: I32 | None = None, positions: Bits | None = None
) -> Bits:
    """D bits [M, N] of one window: a [M, K], b [N, K], c [M, N] or None; `scales` int32 [M, N] is added to the exponent
    of every product. `positions` [M, K]: a is the nonzero half of a sparse matrix and its element (m, k) meets column
    positions[m, k] of b [N, K logical]."""
    shape, depth = (a.value.shape[0], b.value.shape[0]), a.value.shape[1]
    # One row a k, so that the outer products below run along contiguous memory.
    a_r, b_r, a_value, b_value = (np.ascontiguousarray(x.T) for x in (a.r, b.r, a.value, b.value))
    reach = np.full(shape, NOTHING, np.int32)
    raw = np.empty(shape, np.int32)
    for i in range(depth):
        np.add(a_r[i][:, None], _met(b_r, i, positions), out=raw)
        np.maximum(reach, raw, out=reach)
    if scales is not None:
        reach += scales
    np.maximum(reach, rule.floor, out=reach)
    if c is not None:
        np.maximum(reach, c.r, out=reach)
    q = reach - rule.width
    # 2^(scale - q) brings a product into units of the quantum.
    unit = _power(-q if scales is None else scales - q)
    total = np.zeros(shape)
    term = np.empty(shape)
    for i in range(depth):
        np.multiply(a_value[i][:, None], _met(b_value, i, positions), out=term)
        np.multiply(term, unit, out=term)
        np.trunc(term, out=term)
        np.add(total, term, out=total)
    if c is not None:
        total += _aligned(c, q)
    out = round_sum(total, q, rule.rounding)
    if a.special or b.special or (c is not None and c.special):
        out = _with_specials(out, rule.rounding, *_special_products(a, b, positions), c)
    return out


def scaled_window(
    a: Parts, b: Parts, c: Parts | None, scale_a: Bits, scale_b: Bits, scale_format: str, block: int
) -> Bits:
    """f32 bits [M, N] of a block-scaled product: scale_a [M, K / block], scale_b [N, K / block] codes.

    One block (8-bit kinds): the scale exponents join the window of the products, F = 25. More (4-bit kinds): groups of
    16 products are summed exactly and scaled, E is the greatest *scale* exponent of a group with a nonzero product,
    floor -139, F = 35. A NaN scale makes the whole element NaN.
    """
    left, right = _scale_parts(scale_format, scale_a), _scale_parts(scale_format, scale_b)
    if a.value.shape[1] == block:
        out = window(Rule(25, NOTHING, "f32"), a, b, c, left.r + right.r.T)
    else:
        out = _grouped(a, b, c, left, right, block)
    bad = np.logical_or.reduce(left.nan, 1)[:, None] | np.logical_or.reduce(right.nan, 1)
    return np.where(bad, np.uint32(0x7FFFFFFF), out)


def _scale_parts(scale_format: str, codes: Bits) -> Parts:
    if scale_format == "ue4m3":
        return split("e4m3", codes & 0x7F)
    r = codes.astype(np.int32) - 127
    never = np.zeros(codes.shape, bool)
    return Parts(np.ldexp(1.0, r), r, never, codes == 255, never)


def _grouped(a: Parts, b: Parts, c: Parts | None, left: Parts, right: Parts, block: int) -> Bits:
    """The window over groups of 16 products of 4-bit operands; see `scaled_window`."""
    width, floor, group = 35, -139, 16
    there_a, there_b = ((p.value != 0).astype(np.float32) for p in (a, b))
    sums: list[F64] = []
    reach = np.full((a.value.shape[0], b.value.shape[0]), floor, np.int32)
    for start in range(0, a.value.shape[1], group):
        k, j = slice(start, start + group), start // block
        scale = left.value[:, j, None] * right.value[None, :, j]
        # A zero scale has the exponent NOTHING and so drops out of the maximum by itself.
        exponent = left.r[:, j, None] + right.r[None, :, j]
        used = there_a[:, k] @ there_b[:, k].T > 0
        reach = np.maximum(reach, np.where(used, exponent, floor))
        sums.append((a.value[:, k] @ b.value[:, k].T) * scale)
    if c is not None:
        reach = np.maximum(reach, c.r)
    q = reach - width
    unit = _power(-q)
    total = np.zeros(reach.shape)
    for term in sums:
        total += np.trunc(term * unit)
    if c is not None:
        total += _aligned(c, q)
    out = round_sum(total, q, "f32")
    if c is not None and c.special:
        never = np.zeros(out.shape, bool)
        out = _with_specials(out, "f32", never, never, never, c)
    return out


def _met(b: Bits, i: int, positions: Bits | None) -> Bits:
    """What element i of every row of A meets in b [K, N]: one row [N], or a row for each row of A: [M, N]."""
    return b[i] if positions is None else b[positions[:, i]]


def _aligned(c: Parts, q: I32) -> F64:
    """C in units of the quantum, truncated."""
    return np.trunc(c.value * _power(-q))


def _power(exponent: I32) -> F64:
    """2^exponent; exponents beyond +-1000 belong to windows that hold nothing, where any factor does."""
    return ((np.clip(exponent, -1000, 1000).astype(np.int64) + 1023) << 52).view(np.float64)


def _special_products(a: Parts, b: Parts, positions: Bits | None) -> tuple[Mask, Mask, Mask]:
    """bool [M, N]: any NaN product, any +Inf product, any -Inf product."""
    nan, plus, minus = (np.zeros((a.value.shape[0], b.value.shape[0]), bool) for _ in range(3))
    a_zero, b_zero = ((p.value == 0) & ~p.inf & ~p.nan for p in (a, b))
    for i in range(a.value.shape[1]):
        a_inf, b_inf = a.inf[:, i, None], _met(b.inf.T, i, positions)
        bad = a.nan[:, i, None] | _met(b.nan.T, i, positions)
        bad = bad | (a_inf & _met(b_zero.T, i, positions)) | (a_zero[:, i, None] & b_inf)
        infinite = (a_inf | b_inf) & ~bad
        negative = a.negative[:, i, None] ^ _met(b.negative.T, i, positions)
        nan |= bad
        plus |= infinite & ~negative
        minus |= infinite & negative
    return nan, plus, minus


def _with_specials(out: Bits, rounding: str, nan: Mask, plus: Mask, minus: Mask, c: Parts | None) -> Bits:
    if c is not None:
        nan = nan | c.nan
        plus = plus | (c.inf & ~c.negative)
        minus = minus | (c.inf & c.negative)
    infinity, sign, canonical = (0x7C00, 0x8000, 0x7FFF) if rounding == "f16" else (0x7F800000, 1 << 31, 0x7FFFFFFF)
    out = np.where(plus, infinity, out)
    out = np.where(minus, infinity | sign, out)
    return np.where(nan | (plus & minus), canonical, out).astype(np.uint16 if rounding == "f16" else np.uint32)


def round_sum(total: F64, exponent: I32, rounding: str) -> Bits:
    """total * 2^exponent rounded into D bits; `total` holds integers below 2^53."""
    with np.errstate(over="ignore", under="ignore"):
        value = total * _power(exponent)
        if rounding == "f16":
            half: Bits = value.astype(np.float16).view(np.uint16)
            return np.where(half & 0x7FFF, half, 0).astype(np.uint16)
        near = value.astype(np.float32)
    magnitude = np.abs(value)
    # Where rounding to nearest went away from zero, the word below is the truncated value.
    bits: Bits = near.view(np.uint32) - (np.abs(near) > magnitude)
    huge = magnitude >= 2.0**128
    if huge.any():
        bits = np.where(huge, np.where(value < 0, 0xFF800000, 0x7F800000), bits)
    if rounding == "e8m13":
        bits = bits & 0xFFFFFC00
    return np.where(bits & 0x7FFFFFFF, bits, 0).astype(np.uint32)
