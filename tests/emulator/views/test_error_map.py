"""Where an output is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emulator.views import ViewError, error_map
from emulator.views.error_map import block_percent


def output(*wrong: tuple) -> tuple[np.ndarray, np.ndarray]:
    want = np.ones((100, 70))
    got = want.copy()
    for place in wrong:
        got[place] = 2.0
    return got, want


def test_block_percent_keeps_0_and_100_for_none_and_all():
    mask = np.zeros((5, 7), bool)
    mask[0, 0] = mask[4, 6] = True
    mask[2:4, 3:6] = True
    assert block_percent(mask, 2, 3) == [[17, 0, 0], [0, 100, 0], [0, 0, 100]]
    big = np.zeros((1000, 1000), bool)
    big[0, 0] = True
    assert block_percent(big, 1000, 1000) == [[1]] and block_percent(~big, 1000, 1000) == [[99]]
    assert block_percent(np.zeros((0, 4), bool), 2, 2) == []


def test_shares_by_tile_warp_and_column():
    view = error_map(*output((slice(64, 96), slice(0, 32))), tile=(64, 32), name="out")
    assert view.percent(0, 64, 32) == [[0, 0, 0], [89, 0, 0]]
    text = view.text()
    rows = [line.split() for line in text.splitlines()]
    assert ["%", "wrong", "by", "tile", "64", "x", "32", "0..", "32..", "64.."] in rows
    assert ["rows", "64..", "89", "0", "0"] in rows
    assert "% wrong by 32 rows (a warp): 0 0 46 0" in text and "% wrong by 16 columns: 32 32 0 0 0" in text
    assert text.startswith(
        "out: 15 % of 7000 elements wrong (wrong: off by more than 0.02 + 0.02 |want|); worst [64, 0]"
    )


def test_right_within_the_tolerance_is_right():
    got, want = output()
    assert "all 7000 elements right" in error_map(got * 1.03, want).text()
    assert error_map(got * 1.03, want, rtol=0.01).wrong.all()
    assert error_map(got, want + 1e-9, rtol=0, atol=0).wrong.all()


def test_nan_and_infinity_count_unless_they_match():
    got, want = (np.array([[np.nan, np.inf, -np.inf, np.nan, 1.0, np.inf]]) for _ in range(2))
    assert not error_map(got, want).wrong.any()
    got[0, 0], want[0, 1], got[0, 2], want[0, 4] = 0.0, 1.0, np.inf, np.nan
    assert error_map(got, want).wrong[0, 0].tolist() == [True, True, True, False, True, False]


def test_leading_modes_are_told_and_right_matrices_left_out():
    got, want = np.zeros((2, 3, 8, 8)), np.zeros((2, 3, 8, 8))
    want[:] = 1.0
    got[:] = 1.0
    got[1, 2, 7, 7] = 5.0
    view = error_map(got, want)
    assert "worst [1, 2, 7, 7]: got 5, want 1" in view.text()
    assert "[1, 2]" in view.text().splitlines() and "[0, 0]" not in view.text()


def test_vectors_scalars_and_empty_outputs():
    assert error_map(np.array([1.0, 5.0]), np.array([1.0, 1.0])).wrong.tolist() == [[[False, True]]]
    assert error_map(np.float64(2), np.float64(2)).wrong.shape == (1, 1, 1)
    empty = error_map(np.zeros((0, 4)), np.zeros((0, 4)), name="s")
    assert empty.text() == "s: no elements" and empty.figure().texts


def test_tensors_of_torch_in_any_dtype():
    want = torch.ones(2, 40, 40, dtype=torch.bfloat16, requires_grad=True)
    got = want.detach().clone().transpose(1, 2)
    got[1, 3, 4] = 0
    assert np.argwhere(error_map(got, want).wrong).tolist() == [[1, 3, 4]]


def test_refusals():
    with pytest.raises(ViewError, match=r"got has shape \(2, 2\), want \(2, 3\)"):
        error_map(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ViewError, match=r"tile=\(0, 4\); allowed: \(rows, columns\)"):
        error_map(np.zeros((2, 2)), np.zeros((2, 2)), tile=(0, 4))


def test_figure_has_a_panel_a_matrix_with_margins_and_tiles():
    got, want = np.ones((3, 100, 70)), np.ones((3, 100, 70))
    got[1, 5, 5] = 9
    figure = error_map(got, want, tile=(64, 32)).figure()
    panels = [a for a in figure.axes if a.get_ylabel().endswith("row")]
    assert [a.get_ylabel() for a in panels] == ["[0] row", "[1] row", "[2] row"]
    assert len(panels[0].lines) == 3 and "tiles of 64 x 32" in panels[0].get_xlabel()
    assert len(figure.axes) == 3 * 3 + 1
    many = error_map(np.ones((20, 4, 4)), np.ones((20, 4, 4)))
    assert any("12 more matrices are not shown" in t.get_text() for t in many.figure().texts)


def test_two_mistakes_look_different(attend):
    _, out, want = attend("kv_tile_pinned", 384)
    assert error_map(out, want).wrong.mean() > 0.9
    _, out, want = attend(None, 384)
    assert not error_map(out, want).wrong.any()
