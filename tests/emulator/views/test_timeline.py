"""Who waits for whom."""

from __future__ import annotations

import pytest

from emulator.views import ViewError, timeline
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import folded


def test_text_has_a_line_for_each_lane_and_each_reason():
    text = timeline(folded()).text()
    lanes = [line.split("  ")[0] for line in text.splitlines()[3:7]]
    assert lanes == ["load (0)", "fold (1)", "fold (2)", "bulk copy"]
    assert "6 operations" in text
    reasons = [line.split() for line in text.splitlines() if line.startswith(("load ", "fold ")) and "p." in line]
    who = {(r[0], r[1].split("[")[0], r[2]) for r in reasons}
    assert ("load", "p.empty", "fold") in who and ("fold", "p.full", "bulk") in who
    assert {r[-1] for r in reasons} <= {"pipe.py:20", "pipe.py:30"}


def test_logical_waits_are_what_the_longer_side_needs():
    view = timeline(folded())
    # Folding a tile takes longer than asking for one: consumers wait at the start only, the producer from tile 2 on.
    full = [w for w in view.waits if view.recording.waited_for(view.cta, w).startswith("p.full")]
    empty = [w for w in view.waits if view.recording.waited_for(view.cta, w).startswith("p.empty")]
    assert len(full) <= 2 and len(empty) == pipeline.TILES - 2
    assert view.waited(0) == sum(w.logical_end - w.logical_begin for w in view.waits if w.warp == 0) > 100


def test_clocks_and_ranges_are_checked():
    recorder = folded()
    assert timeline(recorder, clock="step").end == recorder.recording.steps
    assert (timeline(recorder, begin=5, end=20).begin, timeline(recorder, begin=5, end=20).end) == (5, 20)
    with pytest.raises(ViewError, match="clock='time'; allowed: logical, step"):
        timeline(recorder, clock="time")
    for begin, end in ((-1, None), (9, 9), (10, 4)):
        with pytest.raises(ViewError, match=f"begin={begin}"):
            timeline(recorder, begin=begin, end=end)


def test_figure_names_lanes_and_says_that_the_axis_is_no_time():
    for clock in ("logical", "step"):
        (axes,) = timeline(folded(), clock=clock).figure().axes
        assert [t.get_text() for t in axes.get_yticklabels()] == ["load (0)", "fold (1)", "fold (2)", "bulk copy"]
        assert "(no time)" in axes.get_xlabel()
        assert [t.get_text() for t in axes.get_legend().get_texts()][:2] == ["runs", "waits"]
        assert len(axes.texts) >= 3  # arrows


def test_a_hang_says_who_waits_for_what():
    hung = pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl")
    view = timeline(folded(hung))
    assert view.remarks() == ["waiting when the launch stopped: load (0) for p.empty[0]; fold (1, 2) for p.full[0]"]
    assert "nobody, ever" in view.text()
    assert "waits when the launch stopped" in [t.get_text() for t in view.figure().axes[0].get_legend().get_texts()]


def test_attention_waits_by_role(attend):
    view = timeline(attend(None, 384)[0])
    text = view.text()
    assert "softmax (0)" in text and "mma (8)" in text and "tensor core" in text
    rows = {tuple(line.split()[:3]) for line in text.splitlines()}
    assert ("correction", "row.full[0]", "softmax") in rows and ("mma", "s.empty[0]", "softmax") in rows
    assert view.remarks() == []
