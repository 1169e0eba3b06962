"""What the hardware may refuse: every fault ends a process; the archive holds the CUDA error, if there was one."""

from __future__ import annotations

from emulator.errors import BarrierFault, EmulatorError, IllegalInstruction, MemoryFault, Trap
from tests.emulator.hw.case import Case, In, Map, Out
from tests.emulator.hw.clusters import SHARED, START, SYNC
from tests.emulator.hw.copies import SOURCE

_BAR = (
    "@%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster; bar.sync 0; ld.param.u64 %rd4, [p1];"
)
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_MAP = Map(1, "u32", (64, 64), (256,), (16, 8))


def _case(
    name: str, body: str, error: type[EmulatorError] | None, size: int = 1, tensor: bool = False
) -> tuple[Case, type[EmulatorError] | None]:
    arguments = (Out(256), In(SOURCE), _MAP) if tensor else (Out(256), In(SOURCE))
    ended = f"{body} mov.u32 %r50, 1; @%p1 st.global.u32 [%rd1], %r50; {SYNC if size > 1 else ''} ret;"
    return Case(name, START + ended, arguments, (size, 1, 1), cluster=(size, 1, 1), before=SHARED), error


CASES = [
    _case("load misaligned", "ld.global.u32 %r10, [%rd1+2]; st.global.u32 [%rd1+4], %r10;", MemoryFault),
    _case(
        "vector load misaligned",
        "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1+8]; st.global.v4.u32 [%rd1+16], {%r13, %r12, %r11, %r10};",
        MemoryFault,
    ),
    _case("load at null", "mov.u64 %rd5, 64; ld.global.u32 %r10, [%rd5]; st.global.u32 [%rd1+4], %r10;", MemoryFault),
    _case("store behind shared memory", "add.u32 %r10, %r5, 16384; st.shared.u32 [%r10], %r1;", MemoryFault),
    _case("store far behind shared memory", "add.u32 %r10, %r5, 1000000; st.shared.u32 [%r10], %r1;", MemoryFault),
    _case("shared store misaligned", "st.shared.u32 [%r5+2], %r1;", MemoryFault),
    _case("atomic misaligned", "atom.global.add.u32 %r10, [%rd1+2], 1; st.global.u32 [%rd1+4], %r10;", MemoryFault),
    _case(
        "ldmatrix misaligned",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r5+8]; st.global.u32 [%rd1+4], %r10;",
        MemoryFault,
    ),
    _case(
        "rank beyond the cluster",
        f"mapa.shared::cluster.u32 %r10, %r5, 5; {SYNC} st.shared::cluster.u32 [%r10], %r1;",
        MemoryFault,
        2,
    ),
    _case(
        "bulk copy of 24 bytes",
        f"{_BAR} mov.u32 %r10, 24; @%p1 {_BULK} [%r5], [%rd4], %r10, [%r4]; nanosleep.u32 100000;",
        IllegalInstruction,
    ),
    _case("bulk copy of no bytes", f"{_BAR} @%p1 {_BULK} [%r5], [%rd4], 0, [%r4]; nanosleep.u32 100000;", None),
    _case(
        "bulk copy from a misaligned address",
        f"{_BAR} @%p1 {_BULK} [%r5], [%rd4+8], 16, [%r4]; nanosleep.u32 100000;",
        MemoryFault,
    ),
    _case(
        "bulk copy to a misaligned address",
        f"{_BAR} @%p1 {_BULK} [%r5+8], [%rd4], 16, [%r4]; nanosleep.u32 100000;",
        MemoryFault,
    ),
    _case(
        "bulk copy behind shared memory",
        f"{_BAR} @%p1 {_BULK} [%r5+16384], [%rd4], 64, [%r4]; nanosleep.u32 100000;",
        MemoryFault,
    ),
    _case(
        "bulk copy from nowhere",
        f"{_BAR} mov.u64 %rd4, 4096; @%p1 {_BULK} [%r5], [%rd4], 64, [%r4]; nanosleep.u32 100000;",
        MemoryFault,
    ),
    _case(
        "multicast beyond the cluster",
        f"{_BAR} mov.u16 %h1, 5; @%p3 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r4], 64; "
        f"{SYNC} @%p3 {_BULK}.multicast::cluster [%r5], [%rd4], 64, [%r4], %h1; nanosleep.u32 100000;",
        IllegalInstruction,
        2,
    ),
    _case(
        "multicast to nobody",
        f"{_BAR} mov.u16 %h1, 0; {SYNC} @%p3 {_BULK}.multicast::cluster [%r5], [%rd4], 64, [%r4], %h1; "
        f"nanosleep.u32 100000;",
        None,
        2,
    ),
    _case(
        "reduction of 8 bytes",
        "mov.u32 %r10, 8; @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r5], %r10; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        IllegalInstruction,
    ),
    _case(
        "tensor map misaligned",
        f"{_BAR} mov.b64 %rd5, p2; cvta.param.u64 %rd5, %rd5; add.u64 %rd5, %rd5, 16; "
        f"@%p1 {_TENSOR} [%r5], [%rd5, {{0, 0}}], [%r4]; nanosleep.u32 100000;",
        IllegalInstruction,
        tensor=True,
    ),
    _case(
        "tensor map of noise",
        f"{_BAR} @%p1 {_TENSOR} [%r5], [%rd4, {{0, 0}}], [%r4]; nanosleep.u32 100000;",
        IllegalInstruction,
    ),
    _case(
        "tensor copy of another rank",
        f"{_BAR} mov.b64 %rd5, p2; cvta.param.u64 %rd5, %rd5; "
        f"@%p1 {_TENSOR.replace('2d', '3d')} [%r5], [%rd5, {{0, 0, 0}}], [%r4]; nanosleep.u32 100000;",
        IllegalInstruction,
        tensor=True,
    ),
    _case(
        "tensor copy to a misaligned address",
        f"{_BAR} mov.b64 %rd5, p2; cvta.param.u64 %rd5, %rd5; @%p1 {_TENSOR} [%r5+64], [%rd5, {{0, 0}}], [%r4]; "
        f"nanosleep.u32 100000;",
        MemoryFault,
        tensor=True,
    ),
    _case("mbarrier of count 0", "mov.u32 %r10, 0; mbarrier.init.shared.b64 [%r4], %r10;", BarrierFault),
    _case("mbarrier of count 2^20", "mov.u32 %r10, 1048576; @%p1 mbarrier.init.shared.b64 [%r4], %r10;", BarrierFault),
    _case("mbarrier misaligned", "@%p1 mbarrier.init.shared.b64 [%r4+4], 1;", MemoryFault),
    _case(
        "mbarrier never initialised",
        "st.shared.u64 [%r4], 0; mbarrier.arrive.shared.b64 %rd5, [%r4]; st.global.u64 [%rd1+8], %rd5;",
        BarrierFault,
    ),
    _case("cluster wait without an arrive", "barrier.cluster.wait.acquire;", BarrierFault, 2),
    _case("barrier of 33 threads", "mov.u32 %r10, 33; bar.sync 1, %r10;", BarrierFault),
    _case("trap", "@%p1 trap;", Trap),
    _case(
        "st.async misaligned",
        f"{_BAR} mapa.shared::cluster.u32 %r10, %r5, 0; "
        f"{SYNC} @%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r10+2], %r1, [%r4]; "
        f"nanosleep.u32 100000;",
        MemoryFault,
        2,
    ),
    _case(
        "red.async misaligned",
        f"{_BAR} mapa.shared::cluster.u32 %r10, %r5, 0; "
        f"{SYNC} @%p1 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10+2], %r1, "
        f"[%r4]; nanosleep.u32 100000;",
        MemoryFault,
        2,
    ),
    _case("cp.async misaligned", "cp.async.ca.shared.global [%r5], [%rd1+4], 8; cp.async.wait_all;", MemoryFault),
    _case(
        "tensormap.replace misaligned",
        "@%p1 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r5+16], 1;",
        IllegalInstruction,
    ),
]
"""(case, what the emulator raises; None: nothing)."""
