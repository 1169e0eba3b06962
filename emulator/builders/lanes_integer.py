"""Integer lane functions (PTX ISA 9.7.1, 9.7.8, 9.7.9.7). Integers wrap."""

from __future__ import annotations

import numpy as np

from emulator.builders.lanes_base import LANE, select, some

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
S32, S64, F64 = np.int32, np.int64, np.float64
_LOW_HALF = np.full(32, 0xFFFFFFFF, U64)
_32 = np.full(32, 32, U64)
_64 = np.full(32, 64, U32)


# ---------------------------------------------------------------- products
def mulhi_u16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the 32-bit product."""
    return (a.astype(U32) * b >> U32(16)).astype(U16)


def mulhi_s16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the signed 32-bit product."""
    return (a.astype(S32) * b >> S32(16)).astype(np.int16)


def mulhi_u32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the 64-bit product."""
    return (a.astype(U64) * b.astype(U64) >> _32).astype(U32)


def mulhi_s32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the signed 64-bit product."""
    return (a.astype(S64) * b.astype(S64) >> S64(32)).astype(S32)


def mulhi_u64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the 128-bit product, from four 32-bit products."""
    a0, a1, b0, b1 = a & _LOW_HALF, a >> _32, b & _LOW_HALF, b >> _32
    middle = a1 * b0 + (a0 * b0 >> _32)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _32) + (other >> _32)


def mulhi_s64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High half of the signed 128-bit product: the unsigned one, less each factor where the other is negative."""
    high = mulhi_u64(a.view(U64), b.view(U64)).view(S64)
    return high - (a >> S64(63) & b) - (b >> S64(63) & a)


# ---------------------------------------------------------------- quotients
def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient toward zero; all ones for a zero divisor; the smallest integer over -1 gives itself."""
    quotient = _quotient(a, b)
    zero = b == _NOTHING[a.dtype]
    return select(zero, _ALL_ONES[a.dtype], quotient) if some(zero) else quotient


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the sign of the dividend; all ones for a zero divisor."""
    rest = a - _quotient(a, b) * b
    zero = b == _NOTHING[a.dtype]
    return select(zero, _ALL_ONES[a.dtype], rest) if some(zero) else rest


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of at most 32 bits: float64 cannot reach an integer that the exact quotient does not. Anything for b = 0."""
    if a.itemsize < 8:
        return (a.astype(F64) / b.astype(F64)).astype(S64).astype(a.dtype)
    floor = a // b
    return floor if a.dtype == U64 else floor + ((floor * b != a) & ((a ^ b) < 0))


_INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (2, 4, 8)]
_NOTHING = {dtype: np.zeros(32, dtype) for dtype in _INTEGERS}
_ALL_ONES = {dtype: ~zero for dtype, zero in _NOTHING.items()}


# ---------------------------------------------------------------- shifts and bits
def shift_left(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """a << amount (u32); 0 from the width on, which is NumPy's own rule."""
    return a << _amount(a, amount)


def shift_right(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """a >> amount (u32), arithmetic for signed types; 0 or the sign from the width on, which is NumPy's own rule."""
    return a >> _amount(a, amount)


def _amount(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    if a.itemsize == 4:
        return amount.view(a.dtype)
    return (np.minimum(amount, _64) if a.itemsize < 4 else amount).astype(a.dtype)


def popcount(a: np.ndarray) -> np.ndarray:
    """Number of one bits (u32)."""
    return np.bitwise_count(a).astype(U32)


def leading_zeros(a: np.ndarray) -> np.ndarray:
    """Number of leading zeros (u32); the width for zero."""
    raw = a.view(f"u{a.itemsize}")
    for step in (1, 2, 4, 8, 16, 32)[: 2 + a.itemsize.bit_length()]:
        raw = raw | raw >> raw.dtype.type(step)
    return U32(a.itemsize * 8) - np.bitwise_count(raw)


def reverse_bits(a: np.ndarray) -> np.ndarray:
    """Bits in reverse order."""
    octets = a.view(U8).reshape(-1, a.itemsize)[:, ::-1]
    return np.packbits(np.unpackbits(octets, axis=1, bitorder="little"), axis=1).view(a.dtype)[:, 0]


def find_nth_set(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """fns: position of the |offset|-th one bit of `mask` from bit `base` upward (or downward for a negative s32
    offset); offset 0 asks for bit `base` itself; all ones if there is none."""
    bits = np.unpackbits(mask.view(U8).reshape(32, 4), axis=1, bitorder="little").astype(np.bool_)
    start = base.astype(S64)[:, None]
    upward = offset.astype(S64)
    position = LANE.astype(S64)[None, :]
    forward = bits & np.where(upward[:, None] >= 0, position >= start, position <= start)
    rank_up = np.cumsum(forward, axis=1)
    rank_down = np.cumsum(forward[:, ::-1], axis=1)[:, ::-1]
    rank = np.where(upward[:, None] >= 0, rank_up, rank_down)
    hit = forward & (rank == np.maximum(np.abs(upward), 1)[:, None])
    hit &= (upward[:, None] != 0) | (position == start)
    return np.where(hit.any(axis=1), hit.argmax(axis=1), 0xFFFFFFFF).astype(U32)


_PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def permute(a: np.ndarray, b: np.ndarray, control: np.ndarray, mode: str | None) -> np.ndarray:
    """prmt: four bytes of the eight in {b, a}, chosen by nibbles of `control` (the high bit of a nibble replicates the
    byte's sign), or by a table of the mode and the two low bits of `control`."""
    if mode:
        control = np.array(_PERMUTE_MODES[mode], U32)[control & 3]
    octets = np.stack((a, b), axis=1).view(U8)
    nibbles = control[:, None] >> np.array((0, 4, 8, 12), U32)
    chosen = np.take_along_axis(octets, (nibbles & 7).astype(np.intp), axis=1)
    signs = (chosen.view(np.int8) >> np.int8(7)).view(U8)
    return np.where(nibbles & 8, signs, chosen).view(U32)[:, 0]
