"""Places to stop at."""

from __future__ import annotations

import pytest

import emulator
from emulator.debug import BadBreakpoint, barrier, instruction, line, mma, named_barrier, python
from emulator.debug.points import indices
from tests.emulator.machine.arena import HEADER

TEXT = f"""{HEADER}.file 1 "/src/kernels/a.py"
.file 2 "/src/shared/b.py"
.visible .entry k()
{{
.reg .b32 %r<4>;
.loc 1 10 0
mov.u32 %r1, 1;
add.u32 %r1, %r1, 1;
.loc 2 10 0
add.u32 %r1, %r1, 2;
.loc 1 10 0
add.u32 %r1, %r1, 3;
.loc 1 30 0
ret;
}}
"""
INSTRUCTIONS = emulator.parse(TEXT).functions["k"].instructions
LINES = [i.line for i in INSTRUCTIONS]


def test_places_in_the_code():
    assert indices(instruction(2), INSTRUCTIONS) == {2}
    assert indices(line(LINES[1]), INSTRUCTIONS) == {1}
    # A line is entered where its first instruction is, and again where it is entered again.
    assert indices(python("a.py:10"), INSTRUCTIONS) == {0, 3}
    assert indices(python("kernels/a.py:10"), INSTRUCTIONS) == {0, 3}
    assert indices(python("/src/shared/b.py:10"), INSTRUCTIONS) == {2}
    assert indices(mma(0), INSTRUCTIONS) == indices(barrier("x"), INSTRUCTIONS) == set()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (instruction(5), r"instruction 5: the kernel has instructions 0\.\.4"),
        (instruction(-1), "instruction -1"),
        (line(1), f"PTX line 1 holds no instruction; near: {', '.join(map(str, LINES[:4]))}"),
        (python("a.py:11"), "Python line a.py:11 holds no instruction; near: 10, 30"),
        (python("c.py:10"), "no instruction came from c.py; files: a.py, b.py"),
        (python("xa.py:10"), "no instruction came from xa.py"),
    ],
)
def test_a_place_that_is_none_names_the_nearest(point, message):
    with pytest.raises(BadBreakpoint, match=message):
        indices(point, INSTRUCTIONS)


def test_without_line_information_there_are_no_python_lines():
    bare = emulator.parse(HEADER + ".visible .entry k() { ret; }").functions["k"].instructions
    with pytest.raises(BadBreakpoint, match="files: none: it was compiled without line information"):
        indices(python("a.py:1"), bare)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: python("a.py"), "allowed: FILE:LINE"),
        (lambda: python(":3"), "allowed: FILE:LINE"),
        (lambda: barrier("x", "leave"), "event='leave'.*allowed: arrive, complete, wait"),
        (lambda: named_barrier(16), "allowed: 0..15"),
        (lambda: mma(-1), "allowed: k at least 0"),
        (lambda: mma(0, "while"), "'before' or 'after'"),
        (lambda: mma(0).of(times=0), "times=0; allowed: at least 1"),
    ],
)
def test_wrong_points_are_refused(make, message):
    with pytest.raises(BadBreakpoint, match=message):
        make()


def test_points_in_words():
    assert str(barrier("k.full[0]", "wait").of(warp=3)) == "wait for mbarrier k.full[0], warp 3"
    assert str(barrier(0x40)) == "completion of mbarrier 0x40"
    assert str(mma(3)) == "MMA 3 (after it)" and str(named_barrier(2)) == "named barrier 2"
    assert str(line(7).of(cta=(1, 0, 0), times=4)) == "PTX line 7, CTA (1, 0, 0), time 4"
