"""Barriers of every kind, deadlocks, clusters."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import BarrierFault, Deadlock, LaunchError
from tests.emulator.machine.arena import MY_WORD, Arena

TILE = ".shared .align 16 .b8 tile[1024];"


def test_bar_sync_orders_shared_memory_between_warps():
    out = np.zeros(128, np.uint32)
    body = (
        MY_WORD
        + """
    mov.u32 %r6, tile; shl.b32 %r7, %r1, 2; add.u32 %r8, %r6, %r7; st.shared.u32 [%r8], %r1; bar.sync 0;
    xor.b32 %r9, %r1, 127; shl.b32 %r9, %r9, 2; add.u32 %r9, %r6, %r9; ld.shared.u32 %r10, [%r9];
    st.global.u32 [%rd30], %r10; ret;"""
    )
    Arena(out=out).run(body, declarations=TILE, block=128)
    assert out.tolist() == list(range(127, -1, -1))


def test_producers_arrive_and_consumers_wait_on_a_named_barrier():
    out = np.zeros(64, np.uint32)
    body = (
        MY_WORD
        + """
    mov.u32 %r6, tile; setp.lt.u32 %p1, %r1, 32; @%p1 bra CONSUME;
    st.shared.u32 [%r6], %r1; bar.arrive 3, 64; ret;
    CONSUME: bar.sync 3, 64; ld.shared.u32 %r10, [%r6]; st.global.u32 [%rd30], %r10; ret;"""
    )
    Arena(out=out).run(body, declarations=TILE, block=64)
    assert set(out[:32].tolist()) == {63}


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize("late", [0, 40])
def test_a_barrier_of_the_whole_cta_does_not_wait_for_warps_that_have_ended(policy, late):
    """Warps 1 and 2 end before the second barrier, at once or long after the others have arrived there."""
    out = np.zeros(128, np.uint32)
    spin = f"mov.u32 %r20, 0; S: add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, {late * 64}; @%p3 bra S;"
    body = (
        MY_WORD
        + f"""
    bar.sync 0; shr.u32 %r5, %r1, 5; setp.eq.u32 %p1, %r5, 1; setp.eq.u32 %p2, %r5, 2; or.pred %p1, %p1, %p2;
    @!%p1 bra STAY; {spin} exit;
    STAY: barrier.sync 0; st.global.u32 [%rd30], 1; ret;"""
    )
    Arena(out=out).run(body, block=128, policy=policy)
    assert out.reshape(4, 32).sum(1).tolist() == [32, 0, 0, 32]


def test_a_barrier_with_a_count_waits_for_warps_that_have_ended():
    body = MY_WORD + "setp.lt.u32 %p1, %r1, 32; @%p1 bra STAY; exit; STAY: bar.sync 0, 64; ret;"
    with pytest.raises(Deadlock, match="barrier 0: 32 of 64 threads have arrived"):
        Arena(out=np.zeros(64, np.uint32)).run(body, block=64)


def test_a_barrier_reduces_a_predicate():
    out = np.zeros(64, np.uint32)
    body = MY_WORD + "setp.lt.u32 %p1, %r1, 40; bar.red.popc.u32 %r5, 1, 64, %p1; st.global.u32 [%rd30], %r5; ret;"
    Arena(out=out).run(body, block=64)
    assert set(out.tolist()) == {40}


WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p5, [%r6], {parity}; @!%p5 bra W;"


def test_an_mbarrier_lets_a_warp_through_after_all_arrivals():
    out = np.zeros(96, np.uint32)
    body = (
        MY_WORD
        + """
    mov.u32 %r6, tile; setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r6], 64;
    READY: bar.sync 0; setp.ge.u32 %p2, %r1, 64; @%p2 bra WAIT;
    st.shared.u32 [%r6+16], %r1; mbarrier.arrive.shared.b64 %rd5, [%r6]; ret;
    WAIT:"""
        + WAIT.format(parity=0)
        + "ld.shared.u32 %r9, [%r6+16]; st.global.u32 [%rd30], %r9; ret;"
    )
    Arena(out=out).run(body, declarations=TILE, block=96)
    assert set(out[64:].tolist()) == {63}


def test_a_deadlock_says_who_waits_for_what():
    body = (
        MY_WORD
        + """
    mov.u32 %r6, tile; mbarrier.init.shared.b64 [%r6], 3;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra GO; mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r6], 128;
    GO:"""
        + WAIT.format(parity=0)
        + "ret;"
    )
    with pytest.raises(Deadlock) as report:
        Arena(out=np.zeros(1, np.uint32)).run(body, declarations=TILE)
    text = str(report.value)
    assert "no warp can step and nothing is in flight" in text
    assert "mbarrier 0x400 of CTA 0, parity 0" in text
    assert "phase 0, 1 of 3 arrivals, 128 bytes still expected, 0 phases completed" in text
    assert report.value.waiting[0].warp == 0 and "try_wait" in report.value.waiting[0].text


def test_a_spin_on_memory_that_nobody_writes_is_a_deadlock():
    with pytest.raises(Deadlock, match="spins without changing any state"):
        Arena(x=np.zeros(1, np.uint32)).run(
            "L: ld.acquire.gpu.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;"
        )


def test_clusters_that_wait_for_each_other_become_resident_together():
    x = np.zeros(2, np.uint32)
    body = """
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra SECOND;
    L: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L; st.global.u32 [%rd1+4], %r2; ret;
    SECOND: mov.u32 %r3, 9; st.release.gpu.global.u32 [%rd1], %r3; ret;"""
    Arena(x=x).run(body, grid=2)
    assert x.tolist() == [9, 9]


def test_distributed_shared_memory_and_the_cluster_barrier():
    out = np.zeros(2, np.uint32)
    body = """
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r6, tile; xor.b32 %r2, %r1, 1; mapa.shared::cluster.u32 %r7, %r6, %r2;
    add.u32 %r3, %r1, 50; st.shared::cluster.u32 [%r7], %r3;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ld.shared.u32 %r8, [%r6]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r8; ret;"""
    Arena(out=out).run(body, declarations=TILE, grid=2, cluster=(2, 1, 1))
    assert out.tolist() == [51, 50]


def test_more_arrivals_than_expected_fault():
    body = "mov.u32 %r6, tile; mbarrier.init.shared.b64 [%r6], 1; mbarrier.arrive.shared.b64 %rd5, [%r6], 2; ret;"
    with pytest.raises(BarrierFault):
        Arena(out=np.zeros(1, np.uint32)).run(body, declarations=TILE)


def test_illegal_configurations_are_refused_before_the_first_step():
    arena = Arena(out=np.zeros(1, np.uint32))
    with pytest.raises(LaunchError, match="1056 threads"):
        arena.run("ret;", block=1056)
    with pytest.raises(LaunchError, match="not a multiple of the cluster"):
        arena.run("ret;", grid=3, cluster=(2, 1, 1))
    with pytest.raises(LaunchError, match="shared memory"):
        arena.run("ret;", shared_bytes=240_000)
    with pytest.raises(LaunchError, match="policy 'soon'"):
        arena.run("ret;", policy="soon")


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_cluster_arrivals_are_counted_by_phase(engine: str):
    """arrive, arrive, wait, wait: undefined by the manual, executed by flash-attn-4's two-CTA MLA kernel."""
    out = np.zeros(2, np.uint32)
    body = """
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r6, tile; xor.b32 %r2, %r1, 1; mapa.shared::cluster.u32 %r7, %r6, %r2;
    add.u32 %r3, %r1, 50; st.shared::cluster.u32 [%r7], %r3;
    barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned; barrier.cluster.wait.aligned;
    ld.shared.u32 %r8, [%r6]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r8; ret;"""
    Arena(out=out).run(body, declarations=TILE, grid=2, cluster=(2, 1, 1), engine=engine)
    assert out.tolist() == [51, 50]
