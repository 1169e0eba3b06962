"""The tensor-memory map."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.memory.tmem import COLUMNS, LANES
from emulator.views import Recorder, ViewError, tmem_map
from tests.emulator.views.samples import OTHER, SAME, folded, tensor

FIELDS = {"a": (0, 2, "u32"), "b": (2, 2, "u32"), "half": (2, 2, "f16", "mma")}


def recorded(later: str = SAME) -> Recorder:
    recorder = Recorder(fields=FIELDS)
    tensor(recorder, later)
    return recorder


def test_values_owners_and_writers_of_a_kernel_that_stores():
    view = tmem_map(recorded())
    want = np.arange(LANES)[:, None] * 4 + np.arange(4)
    np.testing.assert_array_equal(view.words[:, :4], want)
    np.testing.assert_array_equal(view.field("a"), want[:, :2])
    np.testing.assert_array_equal(view.values[:, :4], want)
    assert np.isnan(view.values[:, 4:]).all() and not view.defined[:, 4:].any()
    # `half` lies over `b`, but its writer, the tensor core, never wrote: `b` owns its words.
    assert view.owner[:, :4].tolist() == [[0, 0, 1, 1]] * LANES and (view.owner[:, 4:] == -1).all()
    assert (view.source[:, :4] == 2).all() and view.allocated == ((0, 64),)
    assert not view.moved.any()


def test_text_names_fields_columns_and_source_lines():
    text = tmem_map(recorded()).text()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("a ", "b ", "half "))}
    assert rows["a"][1:8] == ["0..1", "u32", "100", "%", "100", "%", "0..509"]
    assert "tcgen05.st of warp 2, warp 3 (pipe.py:8); tcgen05.st of warp 0, warp 1 (pipe.py:14)" in text
    assert rows["half"][3:5] == ["0", "%"]
    assert "allocated: columns 0..63" in text and "b and half share columns 2..3" in text


def test_earlier_moments_can_be_seen():
    recorder = recorded(SAME.replace("%r30, %r31", "%r31, %r30"))
    steps = recorder.recording.cta().tensor.steps
    first, last = tmem_map(recorder, step=steps[0]), tmem_map(recorder)
    assert not first.defined.any() and f"after step {steps[0]}" in first.title
    before = tmem_map(recorder, step=steps[4])
    assert before.words[0, :2].tolist() == [0, 1] and last.words[0, :2].tolist() == [1, 0]
    assert "at the end" in last.title


def test_a_round_trip_through_two_shapes_is_marked_where_it_moves_words():
    view = tmem_map(recorded(OTHER))
    # 16x64b puts register r of thread t at lane t / 4 + 8 (t % 2), column t / 2 % 2 + 2 r.
    t, r = np.meshgrid(np.arange(32), np.arange(2), indexing="ij")
    want = np.zeros((32, 4), bool)
    want[t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r] = t // 4 + 8 * (t % 2) != t
    np.testing.assert_array_equal(view.moved[:32, :4], want)
    np.testing.assert_array_equal(view.moved[32:64, :4], want)
    assert not view.moved[64:].any()
    assert any("not the identity" in r for r in view.remarks())
    assert any("loaded at pipe.py:12, stored at pipe.py:14" in r for r in view.remarks())


def test_a_reference_shows_which_words_differ():
    view = tmem_map(recorded(OTHER), reference=recorded())
    assert view.differs.any() and not view.differs[64:].any()
    assert any(r.startswith("words that differ from the reference: a ") for r in view.remarks())
    same = tmem_map(recorded(), reference=tmem_map(recorded()))
    assert not same.differs.any() and "a 0 %, b 0 %" in same.text()


def test_twin_fields_are_told():
    recorder = Recorder(fields={"x": (0, 2, "u32"), "y": (2, 2, "u32"), "z": (4, 2, "u32")})
    tensor(recorder, "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r11], {%r30, %r31, %r30, %r31};")
    view = tmem_map(recorder)
    # Lanes 64.. keep their first values, so x and y differ there.
    assert view.twins() == []
    view.words[:, 2:4] = view.words[:, :2]
    assert view.twins() == [("x", "y")]
    assert "x and y hold the same bits: two tiles of different data should not" in view.text()


def test_words_of_no_field_are_shown_too():
    recorder = Recorder()
    tensor(recorder)
    row = next(line for line in tmem_map(recorder).text().splitlines() if line.startswith("(no field)"))
    assert row.split()[2:6] == ["0..3", "-", "-", "100"] and tmem_map(recorder).shown == 36


def test_refusals_name_what_there_is():
    with pytest.raises(ViewError, match=r"CTA \(0, 0, 0\) has no tensor memory"):
        tmem_map(folded())
    with pytest.raises(ViewError, match="a int was given; allowed: a Recording or a Recorder"):
        tmem_map(3)
    with pytest.raises(ViewError, match="allowed: inside 0..511"):
        tmem_map(recorded(), {"x": (510, 4)})


def test_a_cta_of_the_machine_shows_values_without_owners():
    seen = []

    def look(record):
        if type(record).__name__ == "TensorAllocation" and record.release:
            seen.append(tmem_map(grid[0].resident[0].ctas[0], FIELDS))
        if type(record).__name__ == "LaunchBegin":
            grid.append(record.state)

    grid: list = []
    tensor(look)
    assert seen[0].words[5, :4].tolist() == [20, 21, 22, 23] and seen[0].allocated == ()
    assert "not recorded" in seen[0].text()


def panels(view):
    figure = view.figure()
    return [a for a in figure.axes if a.get_ylabel()], figure


def test_figure_has_a_panel_for_each_question():
    axes, figure = panels(tmem_map(recorded(OTHER), reference=recorded()))
    names = [a.get_ylabel().split("\n")[0] for a in axes]
    assert names[:4] == ["fields", "last writer", "value", "differs"]
    assert axes[3].get_xlabel().startswith("tensor-memory column")
    texts = [t.get_text() for t in figure.texts]
    assert any("not the identity" in t for t in texts)


def test_pinned_key_tile_makes_two_stages_twins(attend):
    right, wrong = attend(None, 384)[0], attend("kv_tile_pinned", 384)[0]
    assert tmem_map(right).twins() == [] and tmem_map(wrong).twins() == [("P[0]", "P[1]")]
    labels = [t.get_text() for t in tmem_map(wrong).figure().axes[0].texts]
    assert "P[1] f16 = P[0] !" in labels


def test_round_trip_of_the_output_is_seen_in_the_output_alone(attend):
    right, wrong = attend(None, 384)[0], attend("tmem_round_trip", 384)[0]
    assert not tmem_map(right).moved.any()
    view = tmem_map(wrong, reference=right)
    columns = np.flatnonzero(view.moved.any(axis=0))
    assert (columns.min(), columns.max()) == (256, 319)
    assert not view.differs[:, :256].any() and view.differs[:, 256:320].mean() > 0.9


def test_probabilities_own_the_half_of_the_scores_that_they_replace(attend):
    view = tmem_map(attend(None, 384)[0])
    names = [f.name for f in view.labels.fields]
    assert [names[k] for k in view.owner[0, [0, 63, 64, 128, 192, 256]]] == [
        "P[0]",
        "P[0]",
        "S[0]",
        "P[1]",
        "S[1]",
        "O",
    ]
    assert [(a.name, b.name) for a, b in view.aliases()] == [("S[0]", "P[0]"), ("S[1]", "P[1]")]
    assert view.field("P[0]").shape == (128, 128) and view.field("P[0]").max() <= 1
    assert view.shown < COLUMNS
