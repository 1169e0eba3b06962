"""D = A B^T + C on raw operand codes: the arithmetic of wgmma, mma.sync and tcgen05, in two modes.

`exact` follows the hardware bit by bit (`exact`). `fast` decodes to float32 and lets BLAS multiply: products are exact,
sums are rounded in float32 in an order of BLAS's choice instead of the window's, so a result may differ by a few units
in the last place of the largest term, E8M13 results keep all their bits, and NaN results have any payload. Integer
kinds are exact in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.units import exact
from emulator.units.exact import Rule
from emulator.units.formats import decode

Bits = NDArray[Any]

INTEGERS = ("u8", "s8", "u4", "s4", "b1xor", "b1and")
_EIGHT = ("e4m3", "e5m2")
_NO_FLOOR = exact.NOTHING


@dataclass(frozen=True)
class Arithmetic:
    """How to multiply. unit: wgmma, mma.sync or tcgen05; a, b: operand formats; d: f32, f16 or s32.

    negate_a / negate_b flip operand signs. saturate clamps s32 instead of wrapping. block: elements per scale factor
    (0 none, 16, 32) with scale factors of format `scale` (ue8m0, ue4m3). shift_c: C is multiplied by 2^-shift_c.
    """

    unit: str
    a: str
    b: str
    d: str
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    block: int = 0
    scale: str = ""
    shift_c: int = 0


def multiply(
    how: Arithmetic,
    a: Bits,
    b: Bits,
    c: Bits | None,
    mode: str = "fast",
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
    positions: Bits | None = None,
) -> Bits:
    """D bits [M, N] (uint32; uint16 for f16) of one instruction.

    a [M, K] and b [N, K]: raw codes (uint8, uint16 or uint32), one an element; u4, s4: two a byte, low nibble first;
    b1: eight a byte. c: D's type [M, N], or None for D = A B. scale_a [M, K / block], scale_b [N, K / block]: scale
    codes. positions [M, K]: sparse A, see `exact.window`. Raises ValueError for an unknown mode or unit.
    """
    return combine(how, load(how, "a", a, mode), load(how, "b", b, mode), c, mode, scale_a, scale_b, positions)


def load(how: Arithmetic, side: str, bits: Bits, mode: str) -> Any:
    """Decode operand "a" or "b" once for several `combine` calls (negation is applied here); rows may be sliced with
    `rows`."""
    if mode not in ("fast", "exact"):
        raise ValueError(f"multiply: mode={mode!r}; allowed: 'fast', 'exact'")
    if how.unit not in ("wgmma", "mma.sync", "tcgen05"):
        raise ValueError(f"multiply: unit={how.unit!r}; allowed: 'wgmma', 'mma.sync', 'tcgen05'")
    name, negate = (how.a, how.negate_a) if side == "a" else (how.b, how.negate_b)
    if name in INTEGERS:
        return bits if name.startswith("b1") else _whole(name, bits)
    if mode == "fast":
        values = decode(name, bits)
        return -values if negate else values
    # mma.sync converts 8-bit operands to f16 first, which renormalises their subnormals.
    parts = exact.renormalised(name, bits) if _two_steps(how) else exact.split(name, bits)
    return parts.negated() if negate else parts


def rows(operand: Any, pick: slice) -> Any:
    """Rows of a loaded operand."""
    return operand.rows(pick) if isinstance(operand, exact.Parts) else operand[pick]


def combine(
    how: Arithmetic,
    left: Any,
    right: Any,
    c: Bits | None,
    mode: str = "fast",
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
    positions: Bits | None = None,
) -> Bits:
    """`multiply` on operands that `load` decoded in the same mode."""
    if how.a in INTEGERS:
        return _integer(how, left, right, c)
    if mode == "fast":
        return _fast(how, left, right, c, scale_a, scale_b, positions)
    if _two_steps(how):
        return _two_step(how, left, right, c, positions)
    old = None if c is None else exact.split(how.d, c)
    if old is not None and how.shift_c:
        old = exact.shifted(old, how.shift_c)
    if how.block and scale_a is not None and scale_b is not None:
        return exact.scaled_window(left, right, old, scale_a, scale_b, how.scale, how.block)
    return exact.window(rule(how), left, right, old, positions=positions)


def _two_steps(how: Arithmetic) -> bool:
    return how.unit == "mma.sync" and how.a in _EIGHT


def rule(how: Arithmetic) -> Rule:
    """The window of an instruction: width, floor and rounding, as words from H100, H200 and B200 fix them."""
    if how.a in ("f16", "bf16", "tf32"):
        return Rule(25, -21, "f16") if how.d == "f16" else Rule(25, -133, "f32")
    if how.unit == "wgmma":
        return Rule(13, _NO_FLOOR, "f16" if how.d == "f16" else "e8m13")
    return Rule(25, _NO_FLOOR, "f16" if how.d == "f16" else "f32")


def _fast(
    how: Arithmetic,
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    c: Bits | None,
    scale_a: Bits | None,
    scale_b: Bits | None,
    positions: Bits | None,
) -> Bits:
    if positions is not None:
        dense = np.zeros((left.shape[0], right.shape[1]), np.float32)
        dense[np.arange(left.shape[0])[:, None], positions] = left
        left = dense
    with np.errstate(all="ignore"):
        if how.block and scale_a is not None and scale_b is not None:
            left = left * np.repeat(decode(how.scale, scale_a), how.block, 1)
            right = right * np.repeat(decode(how.scale, scale_b), how.block, 1)
        out = left @ right.T
        if how.d == "f16":
            if c is not None:
                out += np.ldexp(decode("f16", c), -how.shift_c)
            return out.astype(np.float16).view(np.uint16)
        if c is not None:
            old = c.view(np.float32)
            out += np.ldexp(old, -how.shift_c) if how.shift_c else old
    return out.view(np.uint32)


def _integer(how: Arithmetic, a: Bits, b: Bits, c: Bits | None) -> Bits:
    """Exact integers: every product sum is below 2^24, so float32 BLAS is exact; then add C, clamp or wrap."""
    if how.a.startswith("b1"):
        joined = (a[:, None, :] ^ b[None]) if how.a == "b1xor" else (a[:, None, :] & b[None])
        total = np.bitwise_count(joined).sum(-1, dtype=np.int64)
    else:
        total = (a @ b.T).astype(np.int64)
    if c is not None:
        total = total + c.view(np.int32)
    if how.saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return (total & 0xFFFFFFFF).astype(np.uint32)


def _whole(name: str, bits: Bits) -> NDArray[np.float32]:
    if name in ("s4", "u4"):
        bits = np.stack([bits & 15, bits >> 4], -1).reshape(bits.shape[0], -1)
        return (
            (bits.astype(np.float32) - 16 * (bits > 7)).astype(np.float32) if name == "s4" else bits.astype(np.float32)
        )
    return (bits.view(np.int8) if name == "s8" else bits).astype(np.float32)


def _two_step(how: Arithmetic, a: exact.Parts, b: exact.Parts, c: Bits | None, positions: Bits | None) -> Bits:
    """FP8 mma.sync, which Hopper and Blackwell emulate: k mod 4 in {0, 1}, then {2, 3} on top, then an ordinary add."""
    k = np.arange(a.value.shape[1])
    how_f16 = Rule(25, -21, "f16") if how.d == "f16" else Rule(25, -133, "f32")
    part = None
    for pick in (k % 4 < 2, k % 4 >= 2):
        right = b.columns(pick) if positions is None else b
        chosen = None if positions is None else positions[:, pick]
        words = exact.window(how_f16, a.columns(pick), right, part, positions=chosen)
        part = exact.split(how.d, words)
    if c is None:
        return words
    kind: Any = np.float16 if how.d == "f16" else np.float32
    with np.errstate(all="ignore"):
        total = words.view(kind) + c.view(kind)
    canonical = 0x7FFF if how.d == "f16" else 0x7FFFFFFF
    return np.where(np.isnan(total), canonical, total.view(words.dtype)).astype(words.dtype)
