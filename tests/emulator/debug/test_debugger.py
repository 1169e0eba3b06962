"""Stopping a launch by a callback."""

from __future__ import annotations

import numpy as np
import pytest

from emulator import debug
from emulator.debug import STOP, BadBreakpoint, Debugger, LeftBehind, NeverReached, Step, Stopped
from tests.emulator.machine import pipeline
from tests.emulator.machine.arena import MY_WORD, Arena
from tests.emulator.views.samples import NAMES, TENSOR, fold, tensor

COUNT = f"""{MY_WORD}
mov.u32 %r5, 0; mov.f32 %f1, 0f3F800000;
LOOP: add.f32 %f1, %f1, %f1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra LOOP;
st.global.u32 [%rd30], %r5; ret;
"""


def stops(points, run=fold, answer=lambda stop: None, **names):
    """What a callback saw: (reason, warp, place) of every stop."""
    seen = []

    def look(stop):
        seen.append((stop.reason, stop.warp, stop.instruction.text))
        return answer(stop)

    debugger = Debugger(points, look, **{**NAMES, **names})
    run(debugger)
    assert debugger.stops == len(seen)
    return seen


def test_each_point_stops_once_and_the_result_is_untouched():
    seen = []
    debugger = Debugger([debug.python("pipe.py:23"), debug.python("pipe.py:30").of(warp=2)], seen.append, **NAMES)
    found, launch = fold(debugger)
    np.testing.assert_array_equal(found, pipeline.expected())
    assert launch.instructions == fold()[1].instructions
    assert sorted((s.reason, s.warp) for s in seen) == [
        ("Python line pipe.py:23", 0),
        ("Python line pipe.py:30, warp 2", 2),
    ]


@pytest.mark.parametrize(("which", "event", "warps"), [
    ("p.full[0]", "wait", {1, 2}), ("p.empty[1]", "arrive", {1, 2}), ("p.full[1]", "complete", {0}),
    ("p.empty[0]", "wait", {0}), ("p.full[0]", "arrive", {0}),
])  # fmt: skip
def test_barriers_by_name(which, event, warps):
    ((reason, warp, _),) = stops(debug.barrier(which, event))
    assert warp in warps and which in reason


def test_barriers_by_offset_and_number():
    offsets = {}
    stops(debug.barrier("p.full[0]"), answer=lambda s: offsets.update(s._warp.cta.mbarriers))
    first = min(offsets)
    ((reason, _, _),) = stops(debug.barrier(first), barriers=None)
    assert reason == f"completion of mbarrier {first:#x}"
    ((_, warp, text),) = stops(debug.named_barrier(0).of(warp=2))
    assert warp == 2 and text == "bar.sync 0;"


def test_times_counts_what_passes():
    ordinal = []
    arena = Arena(out=np.zeros(32, np.uint32))
    point = debug.instruction(10).of(times=3)  # the add.u32 of the loop
    arena.run(COUNT, listeners=[Debugger(point, lambda s: ordinal.append(int(s.register("%r5", 0))))])
    assert ordinal == [2]


def test_a_callback_chooses_how_to_go_on():
    values = []

    def look(stop):
        values.append((stop.instruction.opcode, float(stop.register("%f1", 0, "f32"))))
        if len(values) < 5:
            return Step()
        return debug.instruction(9).of(times=2) if len(values) == 5 else None

    Arena(out=np.zeros(32, np.uint32)).run(COUNT, listeners=[Debugger(debug.instruction(9), look)])
    assert values == [
        ("add.f32", 1.0), ("add.u32", 2.0), ("setp.lt.u32", 2.0), ("bra", 2.0), ("add.f32", 2.0), ("add.f32", 8.0),
    ]  # fmt: skip


def test_stepping_by_blocks_and_over_other_warps():
    blocks = stops(debug.python("pipe.py:20"), answer=lambda s: Step("block") if s.recording.steps < 200 else None)
    assert len(blocks) > 2 and {warp for _, warp, _ in blocks} == {0}
    anyone = []

    def look(stop):
        anyone.append((stop.warp, stop.step))
        return Step("any") if len(anyone) < 300 else None

    fold(Debugger(debug.instruction(0), look, **NAMES))
    assert [b[1] - a[1] for a, b in zip(anyone, anyone[1:], strict=False)] == [1] * 299
    assert len({warp for warp, _ in anyone}) > 1


def test_giving_up():
    with pytest.raises(Stopped, match="given up at completion of mbarrier p.full"):
        stops(debug.barrier("p.full[0]"), answer=lambda s: STOP)


def test_an_exception_of_the_callback_reaches_the_caller():
    def look(stop):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fold(Debugger(debug.python("pipe.py:23"), look, **NAMES))


@pytest.mark.parametrize(
    ("point", "near"),
    [
        (debug.python("pipe.py:23").of(times=7), r"Python line pipe.py:23, time 7 \(passed 6 times\)"),
        (debug.python("pipe.py:23").of(warp=1), r"Python line pipe.py:23, warp 1;"),
        (debug.mma(0), r"MMA 0 \(after it\) \(0 were issued\)"),
        (debug.named_barrier(3), "named barrier 3;"),
        (debug.barrier("p.full[0]").of(times=9), r"passed 3 times"),
        (debug.line(19).of(cta=(4, 0, 0)), r"PTX line 19, CTA \(4, 0, 0\)"),
    ],
)
def test_a_breakpoint_that_is_never_reached_says_so_and_where_the_run_ended(point, near):
    instructions = fold()[1].instructions
    with pytest.raises(NeverReached, match=near) as raised:
        stops(point)
    assert f"kernel ended after {instructions} warp-instructions, the last one in CTA (0, 0, 0), " in str(raised.value)


def test_places_that_do_not_exist_are_refused_before_the_first_instruction():
    for point in (debug.line(3), debug.python("pipe.py:5"), debug.barrier("q")):
        out = []
        with pytest.raises(BadBreakpoint):
            fold(Debugger(point, out.append, **NAMES))
        assert out == []
    with pytest.raises(BadBreakpoint, match="a int; allowed: what line"):
        Debugger([3], print)
    with pytest.raises(BadBreakpoint, match=r"step\('warp'\); allowed: instruction, block, any"):
        Step("warp")


def test_a_wrong_answer_is_refused():
    with pytest.raises(BadBreakpoint, match="on_break answered 'go'; allowed: None, a Point"):
        stops(debug.python("pipe.py:23"), answer=lambda s: "go")


def test_other_kernels_are_passed_by():
    assert stops(debug.line(3), kernel="other") == []


def test_a_stop_is_over_when_the_launch_goes_on():
    seen = []
    fold(Debugger(debug.python("pipe.py:23"), seen.append, **NAMES))
    with pytest.raises(LeftBehind, match="this stop .Python line pipe.py:23. is over"):
        seen[0].register("%r1")
    assert "pipe.py:23" in seen[0].text()


def test_registers_are_up_to_date_at_every_instruction_of_a_block():
    found = []

    def look(stop):
        found.append(stop.register("%r20", 5).item() - 4 * (32 * stop.warp + 5))
        found.append(int(stop.register("%r23", 5)) - int(stop.register("%r20", 5)))

    tensor(Debugger(debug.python("pipe.py:8").of(warp=3), look))
    assert found == [0, 3]
    assert TENSOR  # the kernel of `samples`, whose block computes them just before
