"""Layouts as CuTe writes them."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.debug import BadBreakpoint
from emulator.debug.layout import byte_offsets, offsets


def test_flat_and_nested_modes():
    assert offsets((2, 3), None).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert offsets((2, 3), (1, 2)).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert offsets(4, 3).tolist() == [0, 3, 6, 9]
    # The first sub-mode is the fastest: (2, 3):(10, 1) counts 0 10 1 11 2 12.
    assert offsets(((2, 3), 2), ((10, 1), 100)).tolist() == [
        [0, 100],
        [10, 110],
        [1, 101],
        [11, 111],
        [2, 102],
        [12, 112],
    ]
    assert offsets(((2, (2, 2)),), ((1, (4, 8)),)).tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert offsets(((2, 2), 3), None).shape == (4, 3)
    assert offsets((), ()).shape == ()


def test_swizzle_acts_on_whole_addresses():
    rows = byte_offsets(1024, (8, 8), (64, 8), 2, "128B")
    want = [[1024 + r * 128 + ((c ^ r) * 16) for c in range(8)] for r in range(8)]
    np.testing.assert_array_equal(rows, want)
    assert byte_offsets(64, (4,), None, 4, "none").tolist() == [64, 68, 72, 76]


@pytest.mark.parametrize(
    ("shape", "stride", "message"),
    [
        ((2, 3), (1,), r"shape \(2, 3\) has 2 modes, stride \(1,\) has 1"),
        (((2, 2), 3), (1, 2), "the same nesting"),
        (((2, 2),), ((1, 2, 3),), "the same nesting"),
        ((0, 3), (1, 2), "extents of at least 1"),
        ((2.5,), (1,), "allowed: integers"),
    ],
)
def test_layouts_that_are_none_are_refused(shape, stride, message):
    with pytest.raises(BadBreakpoint, match=message):
        offsets(shape, stride)


def test_unknown_swizzles_are_refused():
    with pytest.raises(BadBreakpoint, match="swizzle='256B'; allowed: none, 32B, 64B, 128B"):
        byte_offsets(0, (2,), None, 2, "256B")
