"""Limits on one output: what passes, what fails, and what the verdict says."""

from __future__ import annotations

import math

import pytest
import torch

from gate.limits import Reference, judge_output, threshold

BF16 = torch.bfloat16


@pytest.fixture
def want():
    return torch.randn(2, 100, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.3


def judge(got, want, limits, plain=None):
    return judge_output(got, Reference("out", want, got if plain is None else plain, limits))


def test_rounded_oracle_passes_and_shows_all_metrics(want):
    limits = {"vs_torch": 2, "diff": 1e-5, "cos": 0.99999, "rel_rms": 1e-2, "max_abs": 0.05, "exact": True}
    verdict = judge(want.to(BF16), want, limits)
    out = verdict.result
    assert verdict.status == "pass" and verdict.message is None
    assert out.torch == out.rounding == out.diff
    assert out.allowed["vs_torch"] == 2 * out.diff
    assert 1e-6 < out.diff < 3e-6 and out.cos > 0.99999 and out.max_abs < 0.05
    assert out.where is None and out.error_map is None


def test_vs_torch_allows_k_times_the_worse_of_torch_and_rounding(want):
    rounded = want.to(BF16)
    worse = (want * (1 + 3e-3)).to(BF16)
    loss = judge(worse, want, {"diff": 1}).result.diff
    verdict = judge(rounded, want, {"vs_torch": 1.5}, plain=worse)
    assert verdict.result.torch == loss > 2 * verdict.result.rounding
    assert verdict.result.allowed["vs_torch"] == 1.5 * loss
    assert judge(worse, want, {"vs_torch": 1.5}, plain=rounded).status == "wrong_values"
    assert judge(worse, want, {"vs_torch": 1.5}, plain=worse).status == "pass"


def test_plain_torch_that_overflows_does_not_widen_the_limit(want):
    plain = want.to(BF16)
    plain[0, 0, 0] = math.inf
    verdict = judge(want.to(BF16), want, {"vs_torch": 2}, plain=plain)
    assert verdict.status == "pass" and verdict.result.torch is None
    assert verdict.result.allowed["vs_torch"] == 2 * verdict.result.rounding


@pytest.mark.parametrize("limits", [{"max_abs": 1e9}, {"rel_rms": 10}, {"diff": 2}, {"cos": 1e-9}, {"vs_torch": 1e9}])
def test_all_zero_output_never_passes_where_the_oracle_is_not_zero(want, limits):
    verdict = judge(torch.zeros_like(want).to(BF16), want, limits, plain=want.to(BF16))
    assert verdict.status == "wrong_values" and "all zero" in verdict.message


@pytest.mark.parametrize("limits", [{"cos": 0.99999}, {"vs_torch": 2}, {"exact": True}, {"rel_rms": 0}])
def test_zero_is_right_where_the_oracle_is_zero(limits):
    zero = torch.zeros(3, 4)
    assert judge(zero, zero.double(), limits).status == "pass"
    one = zero.clone()
    one[1, 2] = 1e-3
    assert judge(one, zero.double(), limits, plain=zero).status == "wrong_values"


def test_empty_output_passes_every_limit():
    empty = torch.empty(0, 64, dtype=BF16)
    limits = {"vs_torch": 2, "diff": 0, "cos": 1, "rel_rms": 0, "max_abs": 0, "exact": True}
    assert judge(empty, empty.double(), limits).status == "pass"


def test_each_limit_fails_by_itself(want):
    wrong = want.to(BF16)
    wrong[1, 40, 20] += 8
    for limits, text in (
        ({"diff": 1e-5}, "out.diff"),
        ({"cos": 0.99999}, "out.cos 0.99"),
        ({"rel_rms": 1e-3}, "out.rel_rms"),
        ({"max_abs": 0.1}, "out.max_abs 8.0e+00, allowed 1.0e-01"),
        ({"exact": True}, "out: 1 elements differ, allowed 0 (exact)"),
    ):
        verdict = judge(wrong, want, limits, plain=want.to(BF16))
        assert verdict.status == "wrong_values" and verdict.message.startswith(text), verdict.message
        assert verdict.result.failed == list(limits)
        assert verdict.result.worst == [1, 40, 20]


def test_tighter_of_diff_and_vs_torch_is_named(want):
    wrong = want.to(BF16) * 2
    assert "allowed 1.0e-09" in judge(wrong, want, {"diff": 1e-9, "vs_torch": 2}, plain=want.to(BF16)).message
    assert "(vs_torch)" in judge(wrong, want, {"diff": 1e-3, "vs_torch": 2}, plain=want.to(BF16)).message


def test_shape_and_dtype_come_first(want):
    assert judge(want[:, :99].to(BF16), want, {"cos": 0.9}, plain=want.to(BF16)).status == "wrong_shape"
    verdict = judge(want.float(), want, {"cos": 0.9}, plain=want.to(BF16))
    assert verdict.status == "wrong_dtype" and "out is float32, promised is bfloat16" in verdict.message


def test_positions_of_nan_and_infinities_come_before_any_tolerance(want):
    got = want.to(BF16)
    got[0, 5, 48:] = math.nan
    verdict = judge(got, want, {"cos": 0.5}, plain=want.to(BF16))
    assert verdict.status == "not_finite"
    assert verdict.message == "out contains 16 NaN, oracle 0; first out[0, 5, 48]"
    assert verdict.result.where.startswith(
        "1% of elements; dim 0 at 0 only, there rows by 32 (warps): 1 0 0 0 %; row 5 only"
    )
    assert verdict.result.where.endswith("columns 48–63 only")


def test_infinities_at_the_right_places_pass():
    lse = torch.tensor([[1.0, -math.inf, 2.0]])
    assert judge(lse, lse.double(), {"max_abs": 1e-5}).status == "pass"
    assert judge(-lse, lse.double(), {"max_abs": 10}, plain=lse).status == "not_finite"


def test_wrong_indices_are_counted_exactly():
    want = torch.arange(512).reshape(2, 256)
    got = want.clone()
    got[1, 7] += 1
    verdict = judge(got, want, {"exact": True})
    assert verdict.message == "out: 1 elements differ, allowed 0 (exact)"
    assert verdict.result.first == verdict.result.worst == [1, 7]
    assert (verdict.result.first_got, verdict.result.first_want) == (264.0, 263.0)


def test_small_noise_everywhere_is_located_by_its_largest_errors(want):
    noise = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    verdict = judge(want + 1e-3 * noise, want, {"diff": 1e-7}, plain=want)
    assert verdict.status == "wrong_values" and 0 < verdict.result.wrong < want.numel() / 2


def test_threshold_follows_the_tightest_limit_that_failed(want):
    result = judge(2 * want, want, {"diff": 1e-4, "max_abs": 1e-3}, plain=want).result
    assert threshold(want, result) == 1e-3
    result = judge(2 * want, want, {"diff": 1e-8, "max_abs": 1.0}, plain=want).result
    assert threshold(want, result) == pytest.approx(4 * math.sqrt(float((want**2).mean())) * math.sqrt(2e-8))
