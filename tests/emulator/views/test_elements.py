"""Raw words as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.views.elements import DTYPES, elements, width
from emulator.views.labels import ViewError


def test_elements_of_every_width():
    words = np.array([[0x3F800000, 0xC0000000], [0x3C004000, 0x80000001]], np.uint32)
    np.testing.assert_array_equal(elements(words, "f32")[0], np.array([1, -2], np.float32))
    np.testing.assert_array_equal(elements(words, "f16")[1, :2], np.array([2, 1], np.float16))
    np.testing.assert_array_equal(elements(words, "s32")[1], np.array([0x3C004000, -0x7FFFFFFF], np.int32))
    assert elements(words, "u8").shape == (2, 8) and elements(words, "u64").shape == (2, 1)


def test_formats_that_numpy_lacks_come_as_float32():
    codes = np.array([0x38, 0xB8, 0x7E, 0x00], np.uint8)
    np.testing.assert_array_equal(elements(codes, "e4m3"), np.array([1, -1, 448, 0], np.float32))
    np.testing.assert_array_equal(elements(np.array([0x3F80], np.uint16), "bf16"), np.array([1], np.float32))
    np.testing.assert_array_equal(elements(np.array([127, 128], np.uint8), "ue8m0"), np.array([1, 2], np.float32))


def test_unknown_types_and_broken_elements_are_refused():
    with pytest.raises(ViewError, match="dtype='f31'; allowed: f16, f32"):
        width("f31")
    with pytest.raises(ViewError, match="4 bytes are no whole number of f64 elements"):
        elements(np.zeros(1, np.uint32), "f64")
    assert all(width(name) in (1, 2, 4, 8) for name in DTYPES)
