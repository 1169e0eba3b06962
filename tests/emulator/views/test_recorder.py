"""What a recorder hears, and that it changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import Deadlock
from emulator.views import Recorder, ViewError
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import NAMES, fold, folded, tensor


def test_results_and_counts_are_those_of_an_unwatched_run():
    recorder = Recorder(**NAMES)
    watched, launch = fold(recorder)
    plain, native = fold()
    np.testing.assert_array_equal(watched, plain)
    np.testing.assert_array_equal(watched, pipeline.expected())
    recording = recorder.recording
    assert recording.ended and recording.counts.sum() == native.instructions == launch.instructions
    by_line: dict[int, int] = {}
    for line, count in zip(recording.lines, recording.counts.tolist(), strict=True):
        if count:
            by_line[line.line] = by_line.get(line.line, 0) + count
    assert by_line == native.by_line
    assert (recording.kernel, recording.block, recording.policy) == ("kernel", (96, 1, 1), "in_order")


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_runs_and_waits_of_a_warp_do_not_overlap_on_either_clock(policy):
    record = folded(policy=policy).recording.cta()
    for clock in ("logical", "step"):
        for warp in range(record.warps):
            spans = [s.on(clock) for s in (*record.runs, *record.waits) if s.warp == warp]
            spans.sort()
            assert all(begin <= end for begin, end in spans)
            assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False)), (clock, warp)


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_a_wait_ends_when_the_last_arrival_is_there(policy):
    recording = folded(policy=policy).recording
    record = recording.cta()
    named = [w for w in record.waits if w.offset >= 0]
    assert named and all(w.by is not None and w.logical_end >= w.by_logical for w in named)
    lanes = {(recording.waited_for(record, w).split("[")[0], w.by) for w in named if w.logical_end > w.logical_begin}
    # The producer waits for a consumer, consumers wait for the copy.
    assert ("p.full", "bulk") in lanes and {by for what, by in lanes if what == "p.empty"} <= {1, 2}


def test_every_phase_of_every_barrier_is_marked():
    record = folded().recording.cta()
    assert sorted(record.barriers.values()) == [1, 1, 2, 2]
    done = [(m.offset, m.phase) for m in record.marks if m.kind == "complete"]
    offsets = sorted(record.barriers)
    assert sorted(done) == [(offset, phase) for offset in offsets for phase in range(pipeline.TILES // 2)]
    arrivals = [m for m in record.marks if m.kind == "arrive" and m.offset in offsets[2:]]
    assert [m.by for m in arrivals].count(1) == [m.by for m in arrivals].count(2) == pipeline.TILES
    expects = [m for m in record.marks if m.kind == "expect"]
    assert len(expects) == pipeline.TILES and {m.by for m in expects} == {0}


def test_copies_are_work_of_their_unit():
    recording = folded().recording
    work = recording.cta().work
    assert len(work) == pipeline.TILES and {w.unit for w in work} == {"bulk"} and {w.warp for w in work} == {0}
    assert recording.lines[work[0].index].place == "pipe.py:23"
    assert recording.cta().lanes == [0, 1, 2, "bulk"]


def test_a_hang_is_recorded_up_to_where_it_hangs():
    recorder = Recorder(**NAMES)
    with pytest.raises(Deadlock):
        fold(recorder, pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl"))
    recording = recorder.recording
    record = recording.cta()
    stuck = {w.warp: recording.waited_for(record, w) for w in record.waits if not w.ended}
    assert not recording.ended
    assert stuck == {0: "p.empty[0]", 1: "p.full[0]", 2: "p.full[0]"}


def test_the_first_cluster_is_recorded_by_default_and_all_are_counted():
    first, both, second = Recorder(), Recorder(ctas="all"), Recorder(ctas=[(1, 0, 0)])
    launches = [tensor(recorder, grid=2) for recorder in (first, both, second)]
    assert [list(r.recording.ctas) for r in (first, both, second)] == [
        [(0, 0, 0)],
        [(0, 0, 0), (1, 0, 0)],
        [(1, 0, 0)],
    ]
    assert {int(r.recording.counts.sum()) for r in (first, both, second)} == {launches[0].instructions}
    with pytest.raises(ViewError, match=r"cta=\(1, 0, 0\) was not recorded; recorded: \(0, 0, 0\)"):
        first.recording.cta((1, 0, 0))


def test_nothing_recorded_and_wrong_selections_are_refused_by_name():
    with pytest.raises(ViewError, match="nothing was recorded"):
        _ = Recorder().recording
    assert Recorder().finished() == []
    with pytest.raises(ViewError, match="ctas='none'; allowed: 'all'"):
        Recorder(ctas="none")


def test_each_launch_is_a_recording_of_its_own():
    recorder = Recorder(**NAMES)
    fold(recorder)
    tensor(recorder)
    assert [r.block for r in recorder.finished()] == [(96, 1, 1), (128, 1, 1)]
    assert recorder.recording.cta().tensor is not None and recorder.recordings[0].cta().tensor is None


CLUSTER = """
mov.u32 %r1, %cluster_ctarank; mov.u32 %r10, ready; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0;
setp.eq.u32 %p2, %r1, 1; mapa.shared::cluster.u32 %r11, %r10, 1;
@%p1 mbarrier.init.shared.b64 [%r10], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@!%p1 bra DONE; @%p2 bra TAKE;
mbarrier.arrive.shared::cluster.b64 _, [%r11]; bra DONE;
TAKE:
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra W;
DONE: ret;
"""


def test_an_arrival_from_another_cta_of_the_cluster_is_told_by_its_warp():
    recorder = Recorder(barriers=["ready"])
    from tests.emulator.machine.arena import Arena

    Arena().run(CLUSTER, declarations=".shared .align 8 .b64 ready;", grid=2, cluster=(2, 1, 1), listeners=[recorder])
    recording = recorder.recording
    assert list(recording.ctas) == [(0, 0, 0), (1, 0, 0)]
    first, second = recording.cta((0, 0, 0)), recording.cta((1, 0, 0))
    assert [m.kind for m in first.marks] == ["init"]
    assert [m.kind for m in second.marks] == ["init", "arrive", "complete", "wait"]
    waits = {recording.waited_for(r, w) for r in (first, second) for w in r.waits}
    assert "cluster barrier" in waits


def test_a_warp_that_polls_in_vain_and_ends_waits_no_longer():
    recorder = Recorder()
    from tests.emulator.machine.arena import Arena

    body = """
    mov.u32 %r10, never; mbarrier.init.shared.b64 [%r10], 2; mov.u32 %r1, 0;
    POLL: mbarrier.test_wait.parity.shared.b64 %p1, [%r10], 0; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3;
    @%p2 bra POLL; ret;
    """
    Arena().run(body, declarations=".shared .align 8 .b64 never;", listeners=[recorder])
    (wait,) = recorder.recording.cta().waits
    assert wait.ended and wait.by is None and recorder.recording.ended


def test_a_warp_that_asks_once_and_goes_on_does_not_wait():
    recorder = Recorder()
    from tests.emulator.machine.arena import Arena

    ask = "mbarrier.test_wait.parity.shared.b64 %p1, [%r10], 0;"
    body = f"mov.u32 %r10, never; mbarrier.init.shared.b64 [%r10], 2; {ask} mov.u32 %r1, 1; mov.u32 %r1, 2; ret;"
    Arena().run(body, declarations=".shared .align 8 .b64 never;", listeners=[recorder])
    record = recorder.recording.cta()
    assert record.waits == [] and [(r.begin, r.end) for r in record.runs] == [(0, 2), (3, 6)]
    assert record.last("logical") == 6
