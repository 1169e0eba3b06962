"""Traces: Chrome's format, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from emulator.views import Recorder, TraceError, hot_lines, load_trace, stages, timeline, tmem_map, trace
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import OTHER, folded, tensor

# The Trace Event Format: what every event must have, by phase.
COMMON = {"ph": str, "pid": int, "tid": int, "ts": int, "name": str}
BY_PHASE = {
    "X": {"dur": int, "cat": str, "args": dict},
    "M": {"args": dict},
    "C": {"args": dict},
    "s": {"id": int, "cat": str},
    "f": {"id": int, "cat": str, "bp": str},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "t.json"
    return trace(folded(), path), path


def test_every_event_has_what_the_format_asks_for(written):
    whole = json.loads(written[1].read_text())
    assert set(whole) == {"traceEvents", "displayTimeUnit", "otherData", "recording"}
    assert whole["displayTimeUnit"] in ("ms", "ns")
    for event in whole["traceEvents"]:
        for key, kind in (COMMON | BY_PHASE[event["ph"]]).items():
            assert isinstance(event[key], kind), (event, key)
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(v, int) and 0 <= v <= 2 for v in event["args"].values())


def test_threads_are_named_and_slices_of_one_thread_do_not_overlap(written):
    events = json.loads(written[1].read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {1: "load (0)", 2: "fold (1)", 3: "fold (2)", 4: "bulk copy"}
    for tid in names:
        slices = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == tid)
        assert slices and all(a[1] <= b[0] or a == b for a, b in zip(slices, slices[1:], strict=False))


def test_arrows_start_and_end_inside_a_slice_of_their_thread(written):
    events = json.loads(written[1].read_text())["traceEvents"]
    slices = [(e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    starts, ends = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert starts and set(starts) == set(ends)
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        for end in (start, ends[number]):
            assert any(tid == end["tid"] and a <= end["ts"] <= b for tid, a, b in slices), end


def test_counters_return_to_zero_when_all_is_released(written):
    events = json.loads(written[1].read_text())["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    assert {e["name"] for e in counters} == {"p: stages in use"} and counters[-1]["args"] == {"stages": 0}


def test_what_is_loaded_draws_the_same(written):
    loaded = load_trace(written[1]).recording
    recorder = folded()
    for view in (timeline, stages, hot_lines):
        assert view(loaded).text() == view(recorder).text()
    assert loaded.cta().marks == recorder.recording.cta().marks


def test_tensor_memory_is_kept_as_it_was_at_the_end(tmp_path):
    recorder = Recorder(fields={"a": (0, 4, "u32")})
    tensor(recorder, OTHER)
    loaded = load_trace(trace(recorder, tmp_path / "t.json").path)
    before, after = tmem_map(recorder), tmem_map(loaded.recording)
    assert before.text() == after.text()
    np.testing.assert_array_equal(before.words, after.words)


def test_a_hang_can_be_traced(tmp_path):
    hung = folded(pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl"))
    view = timeline(load_trace(trace(hung, tmp_path / "t.json").path).recording)
    assert view.remarks() == timeline(hung).remarks() != []


def test_text_says_how_to_open_it(written):
    made, path = written
    assert made.text().startswith(f"{path}: {made.events} events of kernel, 1 CTA(s), format 1")
    assert "ui.perfetto.dev" in made.text() and made.figure().axes


def damaged(path, tmp_path, change):
    whole = json.loads(path.read_text())
    change(whole)
    target = tmp_path / "bad.json"
    target.write_text(json.dumps(whole))
    return target


@pytest.mark.parametrize("part", [0, 1, 5, 100, 5000, -1])
def test_a_truncated_file_is_refused(written, tmp_path, part):
    text = written[1].read_text()
    target = tmp_path / "cut.json"
    target.write_text(text[:part])
    with pytest.raises(TraceError, match="cut off or damaged at character"):
        load_trace(target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w["otherData"].update(version=0), "version 0 of the format; this reads version 1 only"),
        (lambda w: w["otherData"].update(version=2), "version 2 of the format"),
        (lambda w: w["otherData"].update(format="x"), "not a trace of this emulator"),
        (lambda w: w.pop("otherData"), "not a trace of this emulator"),
        (lambda w: w["traceEvents"].pop(), r"cut off: \d+ of \d+ events"),
        (lambda w: w.pop("traceEvents"), "cut off: 0 of"),
        (lambda w: w.pop("recording"), "no recording"),
        (lambda w: w["recording"].pop("lines"), "damaged .KeyError: 'lines'"),
        (lambda w: w["recording"]["ctas"][0]["runs"][0].pop(), "damaged .ValueError: a Run of 6 values; it has 7"),
        (lambda w: w["recording"].update(counts=None), "damaged"),
    ],
)
def test_other_versions_and_damage_are_refused_by_name(written, tmp_path, change, message):
    with pytest.raises(TraceError, match=message):
        load_trace(damaged(written[1], tmp_path, change))


def test_a_list_and_a_missing_file_are_no_trace(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(TraceError, match="not a trace of this emulator"):
        load_trace(tmp_path / "list.json")
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        load_trace(tmp_path / "none.json")


def test_nothing_is_left_beside_a_written_trace(tmp_path):
    trace(folded(), tmp_path / "t.json")
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
