"""Cluster launch control: running clusters take over pending ones, until none is left."""

from __future__ import annotations

import numpy as np
import pytest

import emulator
from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.globals import GlobalMemory

# Every CTA counts its own work item and those it takes over; `owner` says who did it.
KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry persistent(.param .u64 pcount, .param .u64 powner)
{
.shared .align 16 .b8 response[16]; .shared .align 8 .b8 bar[8];
.reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b128 %q<2>;
ld.param.u64 %rd1, [pcount]; ld.param.u64 %rd2, [powner];
mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, response; mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r2, 0; and.pred %p2, %p1, %p2;
@%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z; mov.b32 %r20, 0;
mov.u32 %r30, %nctaid.x; mov.u32 %r31, %nctaid.y; mov.u32 %r15, %ctaid.x;
WORK:
mad.lo.u32 %r13, %r12, %r31, %r11; mad.lo.u32 %r13, %r13, %r30, %r10; mul.wide.u32 %rd3, %r13, 4;
add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
@%p1 red.global.add.u32 [%rd4], 1; @%p1 st.global.u32 [%rd5], %r15;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd6, [%r4], 16;
barrier.cluster.arrive; barrier.cluster.wait;
@%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128
    [%r3], [%r4];
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r4], %r20; @!%p3 bra W;
xor.b32 %r20, %r20, 1;
ld.shared.b128 %q0, [%r3];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q0;
@!%p4 ret;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r10, %r11, %r12, _}, %q0;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r21, %q0;
clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r22, %q0;
clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r23, %q0;
setp.ne.u32 %p5, %r10, %r21; @%p5 trap; setp.ne.u32 %p5, %r11, %r22; @%p5 trap; setp.ne.u32 %p5, %r12, %r23; @%p5 trap;
add.u32 %r10, %r10, %r2;
bra WORK;
}
"""


def run(grid: tuple[int, int, int], cluster: int, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """(how often each work item was done, by which CTA)."""
    memory, count = GlobalMemory(), grid[0] * grid[1] * grid[2]
    regions = [memory.allocate(4 * count, name, fill=0) for name in ("count", "owner")]
    parameters = [r.address.to_bytes(8, "little") for r in regions]
    emulator.run(
        emulator.parse(KERNEL),
        "persistent",
        grid,
        (32, 1, 1),
        parameters,
        memory,
        cluster=(cluster, 1, 1),
        policy=policy,
    )
    return regions[0].views[4].copy(), regions[1].views[4].copy()


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize(("grid", "cluster"), [((7, 1, 1), 1), ((4, 3, 2), 2), ((8, 2, 1), 4), ((1, 1, 1), 1)])
def test_every_work_item_is_done_once(grid: tuple[int, int, int], cluster: int, policy: str) -> None:
    count, owner = run(grid, cluster, policy)
    assert (count == 1).all()
    # Clusters start one after the other, so the first takes over everything.
    assert set(owner.tolist()) == set(range(cluster))


def test_a_response_that_is_misaligned_or_outside() -> None:
    memory = GlobalMemory()
    region = memory.allocate(64, "count", fill=0)
    parameters = [region.address.to_bytes(8, "little")] * 2
    for text, kind, message in (
        ("[%r3+8]", IllegalInstruction, "response at .* must be a multiple of 16"),
        ("[%r3+65536]", MemoryFault, "try_cancel of 16 bytes"),
    ):
        module = emulator.parse(KERNEL.replace("[%r3], [%r4]", f"{text}, [%r4]"))
        with pytest.raises(kind, match=message):
            emulator.run(module, "persistent", (2, 1, 1), (32, 1, 1), parameters, memory)
