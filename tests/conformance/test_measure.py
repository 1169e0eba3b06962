"""The figures that stand beside a script's own verdict."""

from __future__ import annotations

import math
import runpy

import numpy as np
import pytest
import torch

from conformance.measure import Comparison, compare, noted, worst


def test_figures_of_a_comparison():
    found = compare(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
    assert found == Comparison(2, 0.6, 4 / 3, 4.0, False)
    assert compare(np.array([1, 2]), np.array([1, 2])) == Comparison(2, pytest.approx(1), 0.0, 0.0, False)
    half = compare(torch.tensor([1.0, 2.0]).half(), torch.tensor([1.0, 2.5]).double())
    assert half is not None and half.max_error == 0.5


def test_a_constant_reference_is_told():
    found = compare(torch.tensor([1.0, 2.0]), torch.ones(2))
    assert found is not None and found.constant


def test_all_zero_has_no_cosine():
    assert compare(torch.zeros(3), torch.zeros(3)) == Comparison(3, None, 0.0, 0.0, True)
    found = compare(torch.ones(3), torch.zeros(3))
    assert found is not None and (found.cos, found.rel_rms, found.max_error) == (None, math.inf, 1.0)


def test_infinities_and_nans_must_be_at_the_same_places():
    expected = torch.tensor([1.0, math.inf, math.nan, -math.inf])
    assert compare(expected.clone(), expected) == Comparison(1, 1.0, 0.0, 0.0, False)
    for wrong in (torch.tensor([1.0, -math.inf, math.nan, -math.inf]), torch.tensor([math.nan, math.inf, 0, 0])):
        found = compare(wrong, expected)
        assert found is not None and found.rel_rms == found.max_error == math.inf


@pytest.mark.parametrize(
    "pair", [(1, 2), (torch.zeros(2), torch.zeros(3)), (torch.zeros(0), torch.zeros(0)), ("a", "a")]
)
def test_what_is_no_pair_of_arrays(pair):
    assert compare(*pair) is None


def test_comparisons_of_torch_and_numpy_are_noted_and_made():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.25])
    before = torch.testing.assert_close, torch.allclose, np.testing.assert_allclose
    with noted() as found:
        torch.testing.assert_close(x, y, atol=1, rtol=0)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(x, y)
        assert not torch.allclose(x, y) and not torch.equal(x, y)
        np.testing.assert_allclose(x.numpy(), x.numpy())
        torch.testing.assert_close([x], [y], atol=1, rtol=0)
    assert [c.max_error for c in found] == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert before == (torch.testing.assert_close, torch.allclose, np.testing.assert_allclose)


def test_differences_are_noted_where_they_are_judged(tmp_path):
    """Once a line, the first of it; other differences are part of the computation."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "a, b, c = torch.ones(3), torch.full((3,), 1.5), torch.arange(3.0)\n"
        "distance = (a - c).abs()\n"
        "for _ in range(2):\n"
        "    assert (a - b).abs().max().item() <= 2 * (a - c).abs().max().item()\n"
        "max_diff = (b - c).abs().max()\n"
        "assert (a - c).sum() == 0\n"
    )
    with noted() as found:
        runpy.run_path(str(script))
    assert [c.max_error for c in found] == [0.5, 1.5]


def test_the_worst_of_each_kind():
    found = [Comparison(1, 0.9, 0.1, 5.0, False), Comparison(1, 0.95, 0.3, 2.0, False), Comparison(1, None, 0, 0, True)]
    assert worst(found) == {"cos": 0.9, "rel_rms": 0.3, "max_error": 5.0}
    assert worst([]) == {"cos": None, "rel_rms": None, "max_error": None}
