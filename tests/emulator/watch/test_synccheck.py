"""Every rule of synccheck, with a kernel that keeps it and one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.errors import Trap
from emulator.watch import Finding
from emulator.watch.faults import finding_of
from tests.emulator.watch.checked import Checked

SHARED = ".shared .align 128 .b8 tile[1024]; .shared .align 8 .b8 bar[16];"
START = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;
setp.eq.u32 %p3, %r3, 0; mov.u32 %r5, tile; mov.u32 %r6, bar;
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r6], 1;"
FENCE = "@%p1 fence.mbarrier_init.release.cluster;"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p9, [%r6], 0; @!%p9 bra W;"
FILL = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 256;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 256, [%r6];"""


def run(body: str, *, block: int = 64, **settings: Any) -> list[Finding]:
    """Findings of a body, those of the error that ended it included."""
    launch = Checked("synccheck", {"out": 128})
    return launch.run(START + body, declarations=SHARED, block=block, **settings)


def kinds(body: str, **settings: Any) -> set[str]:
    """Their kinds."""
    return {finding.kind for finding in run(body, **settings)}


# ---------------------------------------------------------------- mbarriers
def test_init_fence_barrier_and_use() -> None:
    assert kinds(INIT + FENCE + "bar.sync 0;" + FILL + WAIT) == set()
    assert kinds(INIT + "bar.sync 0;" + FILL + WAIT) == {"mbarrier.init without fence"}
    assert kinds(INIT + "@%p1 fence.proxy.async.shared::cta; bar.sync 0;" + FILL + WAIT) == set()


def test_the_init_must_be_ordered_before_every_use() -> None:
    (finding,) = run(INIT + FENCE + FILL + WAIT)
    assert finding.kind == "mbarrier used before its init" and finding.where.warp == 1
    assert finding.other is not None and "mbarrier.init" in finding.other.text and "0x800 (bar+0x0)" in finding.memory


def test_a_barrier_of_threads_needs_no_fence() -> None:
    one = INIT + "bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [%r6];" + WAIT
    assert kinds(one) == set()


def test_a_peer_needs_the_fence() -> None:
    body = (
        """@%p1 mbarrier.init.shared.b64 [%r6], 2; {fence} barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r20, %r6, 0; @%p1
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r20]; mov.u32 %r21, %cluster_ctarank;
    setp.ne.u32 %p4, %r21, 0; @%p4 bra E;"""
        + WAIT
        + "E: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    )
    assert kinds(body.format(fence=FENCE), grid=2, cluster=(2, 1, 1)) == set()
    assert kinds(body.format(fence=""), grid=2, cluster=(2, 1, 1)) == {"mbarrier.init without fence"}


def test_a_barrier_is_made_once() -> None:
    first = INIT + FENCE + "bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [%r6];" + WAIT + "bar.sync 0;"
    assert kinds(first + INIT) == {"mbarrier initialised again"}
    assert kinds(first + "@%p1 mbarrier.inval.shared.b64 [%r6];" + INIT) == set()
    assert kinds(INIT.replace("%p1", "%p3")) == {"mbarrier initialised again"}, "by every warp"
    assert kinds(INIT.replace("%p1", "%p2")) == set(), "by all lanes of one warp at once"


def test_bytes_that_nobody_expected() -> None:
    body = INIT + FENCE + "bar.sync 0; @%p1 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r6], 32;"
    (finding,) = run(body)
    assert finding.kind == "byte count left over" and "32 bytes more than expected" in finding.missing
    expect = "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r6], 32;"
    assert kinds(body + expect) == set()
    assert kinds(body + expect + expect) == set(), "a pending phase that nobody waits for"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("@%p1 mbarrier.arrive.shared.b64 _, [%r6];", "mbarrier not initialised"),
        (
            INIT + "@%p1 mbarrier.inval.shared.b64 [%r6]; @%p1 mbarrier.arrive.shared.b64 _, [%r6];",
            "mbarrier not initialised",
        ),
        (INIT + "@%p1 mbarrier.arrive.shared.b64 _, [%r6], 2;", "too many arrivals"),
        (INIT + "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r6], 1048575; "
         "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r6], 1;", "byte count overflow"),
        (INIT + FENCE + "bar.sync 0;" + WAIT, "deadlock"),
        ("@%p2 bra A; bar.sync 1, 64; bra E; A: bar.sync 1, 96; E:", "thread counts differ"),
        ("@%p2 bra E; bar.sync 1, 64; E:", "deadlock"),
        ("setp.lt.u32 %p4, %r3, 7; @%p4 bra E; bar.warp.sync 0xffffffff; bra F; E: bar.sync 1; F:", "deadlock"),
    ],
)  # fmt: skip
def test_what_the_machine_refuses(body: str, kind: str) -> None:
    found = run(body)
    assert kind in {finding.kind for finding in found} or (kind == "deadlock" and "missing lanes" in kinds(body))
    assert all(f.tool == "synccheck" and f.missing for f in found)


def test_errors_that_say_nothing_about_barriers() -> None:
    assert finding_of(Trap("the kernel executed trap")) is None
    assert finding_of(ValueError("tcgen05.alloc")) is None


# ---------------------------------------------------------------- named barriers
def test_a_warp_arrives_twice() -> None:
    right = "@%p2 bra A; bar.sync 1, 64; bra E; A: bar.arrive 1, 64; E:"
    assert kinds(right) == set()
    wrong = "@%p2 bra A; bra E; A: bar.arrive 1, 64; bar.arrive 1, 64; E:"
    (finding,) = run(wrong)
    assert finding.other is not None
    assert finding.kind == "arrives twice" and finding.where.warp == finding.other.warp == 0
    opened = "@%p2 bra A; bra E; A: bar.arrive 1, 64; bar.sync 1, 64; E:"
    assert kinds(opened) == set(), "a warp may open a barrier for itself"


def test_lanes_arrive_separately() -> None:
    body = "setp.lt.u32 %p4, %r3, 16; @%p4 bra A; {name} 1; bra E; A: {name} 1; E:"
    assert "diverged at a barrier" in kinds(body.format(name="bar.sync"), block=32)
    assert kinds(body.format(name="barrier.sync"), block=32) == set()


def test_two_sets_of_warps_need_two_barriers() -> None:
    """Warps 0 and 1 meet three times, 2 and 3 as often; with one number for both, warp 0 meets warp 2."""
    body = """shr.u32 %r20, %r2, 1; mad.lo.u32 %r21, %r20, {apart}, 1; mov.u32 %r22, 0;
    L: bar.sync %r21, 64; setp.eq.u32 %p5, %r2, 1; @%p5 nanosleep.u32 20; add.u32 %r22, %r22, 1;
    setp.lt.u32 %p4, %r22, 4; @%p4 bra L;"""
    assert kinds(body.format(apart=1), block=128, policy="random", seed=1) == set()
    assert any("barrier shared by two sets" in kinds(body.format(apart=0), block=128, policy="random", seed=s)
               for s in range(4))  # fmt: skip


# ---------------------------------------------------------------- collectives
def test_lanes_that_never_come() -> None:
    shuffle = "shfl.sync.bfly.b32 %r20, %r1, 1, 31, {mask};"
    assert kinds(shuffle.format(mask="0xffffffff")) == set()
    gone = "setp.ge.u32 %p4, %r3, 24; @%p4 exit;"
    (finding,) = run(gone + shuffle.format(mask="0xffffffff"))
    assert finding.kind == "missing lanes" and finding.memory == "lanes 24..31 of warp 0" and finding.count == 2
    assert kinds(gone + shuffle.format(mask="0xffffff")) == set()


def test_a_short_last_warp_misses_nobody() -> None:
    assert kinds("shfl.sync.bfly.b32 %r20, %r1, 1, 31, 0xffffffff;", block=40) == set()


def test_lanes_outside_their_mask() -> None:
    (finding,) = run("shfl.sync.bfly.b32 %r20, %r1, 1, 31, 0xffff;", block=32)
    assert finding.kind == "lane outside its mask" and finding.memory == "lanes 16..31 of warp 0"


# ---------------------------------------------------------------- the cluster barrier
def test_two_arrivals_without_a_wait() -> None:
    arrive, wait = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
    assert kinds((arrive + wait) * 2, grid=2, cluster=(2, 1, 1)) == set()
    assert kinds(arrive * 2 + wait * 2, grid=2, cluster=(2, 1, 1)) == {"cluster barrier arrives twice"}
    assert kinds(wait, grid=2, cluster=(2, 1, 1)) == {"cluster wait without arrive"}
