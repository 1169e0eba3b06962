"""Bulk copies of chosen bytes, st.bulk and red.async."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, UnknownInstruction
from tests.emulator.isa.tensors import WAIT, Bench, dump


def test_st_bulk_zeroes_bytes_of_shared_memory() -> None:
    bench = Bench(out=np.zeros(64, np.uint32))
    body = """shl.b32 %r9, %r1, 3; add.u32 %r9, %r5, %r9; mov.b64 %rd9, -1; st.shared.b64 [%r9], %rd9; bar.warp.sync -1;
    @%p1 st.bulk.weak.shared::cta [%r5+16], 64, 0; bar.warp.sync -1;"""
    bench.run(body + dump(256, "%rd1"), "out")
    want = np.full(64, 0xFFFFFFFF, np.uint32)
    want[4:20] = 0
    assert (bench.array("out", np.uint32) == want).all()
    with pytest.raises(IllegalInstruction, match="st.bulk of 12 bytes: a multiple of 8"):
        bench.run("@%p1 st.bulk.shared::cta [%r5], 12, 0;", "out")
    with pytest.raises(UnknownInstruction, match="initial value .*; the only one is 0"):
        bench.run("@%p1 st.bulk.shared::cta [%r5], 16, 1;", "out")


def test_a_bulk_store_of_chosen_bytes() -> None:
    bench = Bench(out=np.full(128, 0xAA, np.uint8))
    body = """shl.b32 %r9, %r1, 2; add.u32 %r10, %r5, %r9; mad.lo.u32 %r11, %r1, 0x04040404, 0x03020100;
    st.shared.u32 [%r10], %r11; fence.proxy.async.shared::cta; bar.warp.sync -1; mov.b16 %rs1, 0x8421;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r5], 128, %rs1;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    bench.run(body, "out")
    at = np.arange(128)
    assert (bench.array("out", np.uint8) == np.where(0x8421 >> (at % 16) & 1, at, 0xAA)).all()


@pytest.mark.parametrize(("operation", "want"), [("add.u32", 500 + 31), ("max.s32", 500), ("or.b32", 500 | 31)])
def test_red_async_signals_the_peers_barrier(operation: str, want: int) -> None:
    """Rank 1 updates a word of rank 0, which waits for its four bytes."""
    bench = Bench(out=np.zeros(64, np.uint32))
    body = f"""mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, 0; and.pred %p3, %p1, %p2; not.pred %p4, %p2;
    and.pred %p4, %p1, %p4; @%p3 st.shared.u32 [%r5], 500;
    @%p3 mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r6], 4;
    barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r8, 31;
    mapa.shared::cluster.u32 %r9, %r5, 0; mapa.shared::cluster.u32 %r10, %r6, 0;
    @%p4 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation} [%r9], %r8, [%r10];
    @!%p2 bra E; {WAIT} ld.shared.u32 %r11, [%r5]; @%p1 st.global.u32 [%rd1], %r11; E:
    barrier.cluster.arrive; barrier.cluster.wait;"""
    bench.run(body, "out", cluster=2)
    assert bench.array("out", np.uint32)[0] == want
