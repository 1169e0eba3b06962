"""Measures of an output against its oracle: numbers by hand, and the edges."""

from __future__ import annotations

import math

import pytest
import torch

from gate import compare

F64 = torch.float64


def t(values, dtype=F64):
    return torch.tensor(values, dtype=dtype)


def test_measures_by_hand():
    m = compare.measure(t([3.0, 4.0]), t([3.0, 0.0]))
    assert m.diff == pytest.approx(16 / 34)
    assert m.diff == pytest.approx(1 - 2 * 9 / (25 + 9))
    assert m.cos == pytest.approx(9 / 15)
    assert m.rel_rms == pytest.approx(4 / 3)
    assert (m.max_abs, m.unequal) == (4.0, 1)


def test_diff_sees_scale_and_cosine_does_not():
    m = compare.measure(t([2.0, 4.0, -6.0]), t([1.0, 2.0, -3.0]))
    assert m.cos == pytest.approx(1.0, abs=1e-15)
    assert m.diff == pytest.approx(0.2)


def test_diff_keeps_digits_that_the_textbook_form_loses():
    y = torch.full((1000,), 1.0, dtype=F64)
    m = compare.measure(y * (1 + 1e-10), y)
    assert m.diff == pytest.approx(0.5e-20, rel=1e-5)


def test_equal_and_empty_and_zero():
    same = compare.measure(t([1.0, -2.0]), t([1.0, -2.0]))
    assert (same.diff, same.rel_rms, same.max_abs, same.unequal) == (0.0, 0.0, 0.0, 0)
    empty = compare.measure(torch.empty(0, 5), torch.empty(0, 5, dtype=F64))
    assert (empty.diff, empty.cos, empty.rel_rms, empty.max_abs, empty.unequal) == (0.0, None, 0.0, 0.0, 0)
    zero = compare.measure(t([0.0, 0.0]), t([0.0, 0.0]))
    assert (zero.diff, zero.cos, zero.rel_rms) == (0.0, None, 0.0)
    lost = compare.measure(t([0.0, 0.0]), t([1.0, 2.0]))
    assert (lost.diff, lost.cos, lost.rel_rms) == (1.0, None, 1.0)
    made = compare.measure(t([1.0, 2.0]), t([0.0, 0.0]))
    assert (made.diff, made.cos, made.rel_rms) == (1.0, None, math.inf)


def test_measures_are_over_what_is_finite_in_both():
    m = compare.measure(t([math.inf, 1.0, math.nan]), t([math.inf, 2.0, math.nan]))
    assert (m.max_abs, m.unequal) == (1.0, 1)


def test_unequal_is_against_the_oracle_rounded_to_the_output():
    want = t([1.0, 1 / 3])
    assert compare.measure(want.to(torch.bfloat16), want).unequal == 0
    assert compare.measure(want.to(torch.bfloat16), want).max_abs == pytest.approx(0.333984375 - 1 / 3)
    assert compare.measure(t([1.0, 0.3359375], torch.bfloat16), want).unequal == 1


def test_large_integers_are_compared_exactly():
    big = 2**53
    assert compare.measure(t([big, big + 1], torch.int64), t([big, big], torch.int64)).unequal == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool])
def test_every_dtype_can_be_measured(dtype):
    x = torch.ones(4, 3).to(dtype)
    assert compare.measure(x, torch.ones(4, 3, dtype=F64)).max_abs == 0.0


def test_nonfinite_compares_kinds_and_signs():
    got = t([math.inf, -math.inf, math.nan, math.nan, 1.0])
    want = t([math.inf, math.inf, math.nan, 1.0, math.nan])
    assert compare.nonfinite(got, want).tolist() == [False, True, False, True, True]


def test_an_oracle_beyond_the_range_of_the_dtype_is_infinite_there():
    want = t([1e5, -1e5, 6e4])
    assert not compare.nonfinite(want.to(torch.float16), want).any()
    saturated = t([65504.0, -65504.0, 6e4], torch.float16)
    assert compare.nonfinite(saturated, want).tolist() == [True, True, False]


def test_kinds_names_what_is_not_finite():
    assert compare.kinds(t([math.nan, math.nan, math.inf, 1.0])) == "2 NaN, 1 +inf"
    assert compare.kinds(t([-math.inf])) == "1 -inf"
    assert compare.kinds(t([1.0])) == "0"


def test_same_bits_tells_minus_zero_and_nan_payloads_apart():
    assert compare.same_bits(t([math.nan]), t([math.nan]))
    assert not compare.same_bits(t([0.0]), t([-0.0]))
    assert not compare.same_bits(t([1.0]), t([1.0], torch.float32))
    assert not compare.same_bits(t([1.0]), t([[1.0]]))
    strided = torch.arange(6.0).reshape(2, 3).T
    assert compare.same_bits(strided, strided.contiguous())


def test_all_zero_and_rms_and_unravel():
    assert compare.all_zero(t([0.0, -0.0])) and not compare.all_zero(t([0.0, 1e-300])) and not compare.all_zero(t([]))
    assert compare.rms(t([3.0, 4.0, math.inf])) == pytest.approx(math.sqrt(12.5))
    assert compare.rms(t([math.inf])) == 0.0
    assert compare.unravel(23, (2, 3, 4)) == [1, 2, 3] and compare.unravel(0, ()) == []
