"""Divergence, reconvergence, loops and exits."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import Trap, Watchdog
from tests.emulator.machine.arena import MY_WORD, Arena


def test_every_lane_takes_its_own_path_and_they_meet_again():
    out = np.zeros(70, np.uint32)
    body = (
        MY_WORD
        + """
    mov.u32 %r10, 0; mov.u32 %r11, 0;
    LOOP: setp.ge.u32 %p1, %r11, %r1; @%p1 bra DONE;
    add.u32 %r10, %r10, %r11; add.u32 %r11, %r11, 1; bra LOOP;
    DONE: bar.sync 0;
    and.b32 %r12, %r1, 1; setp.eq.u32 %p2, %r12, 0; @%p2 bra EVEN;
    add.u32 %r10, %r10, 1000; bra JOIN;
    EVEN: add.u32 %r10, %r10, 2000;
    JOIN: activemask.b32 %r13; setp.eq.u32 %p3, %r1, 69; @%p3 mov.u32 %r10, %r13;
    st.global.u32 [%rd30], %r10; ret;"""
    )
    Arena(out=out).run(body, block=70)
    want = np.array([t * (t - 1) // 2 + (2000 if t % 2 == 0 else 1000) for t in range(70)])
    # The last warp has 6 lanes, and they are together again after the branch.
    want[69] = 0b111111
    assert out.tolist() == want.tolist()


def test_lanes_that_exit_early_do_not_hold_up_the_others():
    out = np.zeros(32, np.uint32)
    body = (
        MY_WORD
        + """
    setp.lt.u32 %p1, %r1, 5; @%p1 ret;
    bar.warp.sync 0xffffffff;
    vote.sync.ballot.b32 %r5, 1, 0xffffffff;
    st.global.u32 [%rd30], %r5; ret;"""
    )
    Arena(out=out).run(body)
    assert out[:5].tolist() == [0] * 5
    assert set(out[5:].tolist()) == {0xFFFFFFFF & ~0b11111}


def test_an_indirect_branch_sends_every_lane_to_its_label():
    out = np.zeros(32, np.uint32)
    body = (
        MY_WORD
        + """
    and.b32 %r5, %r1, 3; mov.u32 %r6, 7;
    TABLE: .branchtargets L0, L1, L2, L3;
    brx.idx %r5, TABLE;
    L0: mov.u32 %r6, 10; bra END;
    L1: mov.u32 %r6, 11; bra END;
    L2: mov.u32 %r6, 12; bra END;
    L3: mov.u32 %r6, 13;
    END: st.global.u32 [%rd30], %r6; ret;"""
    )
    Arena(out=out).run(body)
    assert out.tolist() == [10 + t % 4 for t in range(32)]


def test_trap_names_kernel_and_lanes():
    with pytest.raises(Trap, match=r"lanes \[3\][\s\S]*kernel, CTA \(0, 0, 0\), warp 0, PTX line"):
        Arena(out=np.zeros(32, np.uint32)).run(MY_WORD + "setp.eq.u32 %p1, %r1, 3; @%p1 trap; ret;")


def test_an_endless_loop_is_stopped_with_its_hottest_line():
    with pytest.raises(Watchdog, match="stopped after .* hottest lines"):
        Arena(out=np.zeros(32, np.uint32)).run(
            MY_WORD + "L: add.u32 %r5, %r5, 1; st.global.u32 [%rd30], %r5; bra L;", watchdog=100_000
        )
