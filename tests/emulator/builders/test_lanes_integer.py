"""Integer lane functions against Python integers, and the small tools of lanes_base."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.builders import lanes

TYPES = [np.dtype(f"{kind}{size}") for size in (2, 4, 8) for kind in "ui"]
_NAMES = {dtype: f"{'s' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}" for dtype in TYPES}


def lane_values(dtype: np.dtype) -> st.SearchStrategy[np.ndarray]:
    """32 integers of a type, edges among them."""
    info = np.iinfo(dtype)
    edges = [0, 1, info.min, info.max, info.min + 1, info.max - 1, info.max // 2 + 1]
    one = st.one_of(st.sampled_from(edges), st.integers(int(info.min), int(info.max)))
    return st.lists(one, min_size=32, max_size=32).map(lambda v: np.array(v, dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_products_and_quotients(dtype: np.dtype, data: st.DataObject) -> None:
    """High halves, quotients toward zero, remainders; zero divisors give all ones."""
    a, b = data.draw(lane_values(dtype)), data.draw(lane_values(dtype))
    bits, signed = 8 * dtype.itemsize, dtype.kind == "i"

    def wrap(value: int) -> int:
        value %= 1 << bits
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    ones = wrap(-1)
    with np.errstate(all="ignore"):
        high = getattr(lanes, f"mulhi_{_NAMES[dtype]}")(a, b)
        quotient, rest = lanes.divide(a, b), lanes.remainder(a, b)
    for k in range(32):
        x, y = int(a[k]), int(b[k])
        assert int(high[k]) == wrap(x * y >> bits)
        magnitude = abs(x) // abs(y) if y else 0
        exact = -magnitude if (x < 0) != (y < 0) else magnitude
        assert int(quotient[k]) == (wrap(exact) if y else ones)
        assert int(rest[k]) == (x - exact * y if y else ones)


@pytest.mark.parametrize("dtype", [d for d in TYPES if d.kind == "u"], ids=str)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_counting_and_reversing(dtype: np.dtype, data: st.DataObject) -> None:
    """Ones, leading zeros, reversal; every result of a count is u32."""
    a, bits = data.draw(lane_values(dtype)), 8 * dtype.itemsize
    zeros, ones, turned = lanes.leading_zeros(a), lanes.popcount(a), lanes.reverse_bits(a)
    assert zeros.dtype == ones.dtype == np.uint32 and turned.dtype == dtype
    for k, x in enumerate(a.tolist()):
        assert zeros[k] == bits - x.bit_length() and ones[k] == x.bit_count()
        assert int(turned[k]) == int(f"{x:0{bits}b}"[::-1], 2)


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_find_nth_set(data: st.DataObject) -> None:
    """The loop of PTX ISA 9.7.1.17."""
    mask = data.draw(lane_values(np.dtype(np.uint32)))
    base = np.array(data.draw(st.lists(st.integers(0, 31), min_size=32, max_size=32)), np.uint32)
    offset = np.array(data.draw(st.lists(st.integers(-34, 34), min_size=32, max_size=32)), np.int32)
    found = lanes.find_nth_set(mask, base, offset)
    for k in range(32):
        m, position, n = int(mask[k]), int(base[k]), int(offset[k])
        want, left = 0xFFFFFFFF, abs(n) - 1
        if n == 0:
            want = position if m >> position & 1 else want
        while n and 0 <= position < 32:
            if m >> position & 1:
                if left == 0:
                    want = position
                    break
                left -= 1
            position += 1 if n > 0 else -1
        assert int(found[k]) == want, (hex(m), int(base[k]), n)


def test_tools() -> None:
    """some, same, has_nan, select, cleared, lane_word: first and last lane, none and all."""
    none, last = np.zeros(32, np.bool_), np.arange(32) == 31
    assert not lanes.some(none) and lanes.some(last) and lanes.some(lanes.FULL)
    assert lanes.same(last, last.copy()) and not lanes.same(last, none)
    x = np.arange(32, dtype=np.float32)
    with np.errstate(all="ignore"):
        assert not any(lanes.has_nan(y) for y in (x, x * np.float32(3e38), x - np.float32(np.inf)))
        x[31] = np.nan
        assert lanes.has_nan(x) and not lanes.has_nan(np.array([np.inf, -np.inf], np.float32))
    a, b = np.arange(32, dtype=np.uint32), np.arange(32, 64, dtype=np.uint32)
    assert lanes.select(last, a, b).tolist() == [*range(32, 63), 31] and b[31] == 63
    assert lanes.cleared(a, last).tolist() == [*range(31), 0] and a[31] == 31
    assert lanes.lane_word(last).tolist() == [0x80000000] * 32 and lanes.lane_word(lanes.FULL)[0] == 0xFFFFFFFF
