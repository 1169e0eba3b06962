"""What every family of lane functions uses: masks, quick tests, choices, constants.

At 32 lanes a NumPy call costs 0.2 us whatever it does, and a scalar operand, `where`, `any` or `zeros_like` another 0.2
to 0.5. So constants are arrays, tests search bytes, and choices are copies.
"""

from __future__ import annotations

import numpy as np

LANE = np.arange(32, dtype=np.uint32)
FULL = np.ones(32, np.bool_)
_TRUE = b"\x01"


def some(mask: np.ndarray) -> bool:
    """True if any lane is set (bytes search: four times faster than `mask.any()` at this size)."""
    return _TRUE in mask.tobytes()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """True if two masks are equal."""
    return a.tobytes() == b.tobytes()


def has_nan(x: np.ndarray) -> bool:
    """True if any lane is NaN: a sum of squares is NaN only then (no opposite infinities can meet)."""
    total = x.dot(x)
    return bool(total != total)


def select(p: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a where p, else b (half the time of `np.where` at this size)."""
    chosen = b.copy()
    np.putmask(chosen, p, a)
    return chosen


def cleared(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """x, and 0 where p."""
    chosen = x.copy()
    np.putmask(chosen, p, 0)
    return chosen


def sized(value: float, dtype: type) -> dict[int, np.ndarray]:
    """A constant for 32 lanes and for the 64 halves of packed lanes."""
    return {n: np.full(n, value, dtype) for n in (32, 64)}


def lane_word(mask: np.ndarray) -> np.ndarray:
    """A mask as a 32-bit word, lane 0 lowest, in every lane (u32)."""
    return np.packbits(mask, bitorder="little").view(np.uint32).repeat(32)
