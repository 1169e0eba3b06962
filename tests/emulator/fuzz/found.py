"""What mutated kernels have found: bodies that ended in an exception of Python, a hang or a wrong report."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulator.fuzz.seeds import HEAD, Seed
from tests.emulator.fuzz.watch import Case


@dataclass(frozen=True)
class Found:
    """`kind` of outcome and a part of its message now; `at`: a part of the instruction that a fault names."""

    name: str
    body: str
    kind: str
    says: str = ""
    at: str = ""
    block: int = 32
    cluster: int = 1
    flips: tuple[tuple[int, int], ...] = ()
    before: str = ""
    shared_bytes: int = 0

    def case(self) -> Case:
        """The launch."""
        head = HEAD.replace(".visible .entry", f"{self.before}\n.visible .entry")
        seed = Seed(self.name, f"{head}{self.body}\nret;\n}}\n", block=self.block, cluster=self.cluster)
        return Case(seed, self.flips, shared_bytes=self.shared_bytes)


_BAR = "@%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0;"
_RANK = "the cluster has 1 CTA(s)"
_ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3+16], 64; ld.shared.u32 %r8, [%r3+16];"

CASES = (
    Found(
        "arrive elsewhere",
        f"{_BAR} add.u32 %r5, %r3, 0x5000000; mbarrier.arrive.shared::cluster.b64 _, [%r5];",
        "MemoryFault",
        _RANK,
        "mbarrier.arrive",
    ),
    Found(
        "init elsewhere",
        "add.u32 %r5, %r3, 0x80000000; mbarrier.init.shared.b64 [%r5], 1;",
        "MemoryFault",
        _RANK,
        "mbarrier.init",
    ),
    Found(
        "bulk copy elsewhere",
        f"{_BAR} add.u32 %r5, %r4, 0x1000000; "
        f"@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 16, [%r3];",
        "MemoryFault",
        _RANK,
        "cp.async.bulk",
    ),
    Found(
        "bulk store elsewhere",
        "add.u32 %r5, %r4, 0x2000000; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r5], 16;",
        "MemoryFault",
        _RANK,
        "cp.async.bulk",
    ),
    Found(
        "cp.async elsewhere",
        "add.u32 %r5, %r4, 0x3000000; cp.async.ca.shared.global [%r5], [%rd1], 4; cp.async.wait_all;",
        "MemoryFault",
        _RANK,
        "cp.async",
    ),
    Found(
        "tensor load elsewhere",
        f"{_BAR} add.u32 %r5, %r4, 0x1000000; "
        f"@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd3, {{0, 0}}], "
        f"[%r3];",
        "MemoryFault",
        _RANK,
        "cp.async.bulk.tensor",
    ),
    Found(
        "tensor load signals elsewhere",
        f"{_BAR} add.u32 %r5, %r3, 0x1000000; "
        f"@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd3, {{0, 0}}], "
        f"[%r5];",
        "MemoryFault",
        _RANK,
        "cp.async.bulk.tensor",
    ),
    Found(
        "tensor store elsewhere",
        "add.u32 %r5, %r4, 0x1000000; "
        "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {0, 0}], [%r5];",
        "MemoryFault",
        _RANK,
        "cp.async.bulk.tensor",
    ),
    Found(
        "alloc elsewhere",
        "add.u32 %r5, %r3, 0x1000000; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 64;",
        "MemoryFault",
        _RANK,
        "tcgen05.alloc",
    ),
    Found(
        "commit elsewhere",
        f"{_ALLOC} add.u32 %r5, %r3, 0x1000000; "
        f"@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5];",
        "MemoryFault",
        _RANK,
        "tcgen05.commit",
    ),
    Found(
        "try_cancel elsewhere",
        f"{_BAR} add.u32 %r5, %r4, 0x1000000; "
        f"@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r5], [%r3];",
        "MemoryFault",
        _RANK,
        "clusterlaunchcontrol",
    ),
    Found(
        "fault of an indirect branch",
        "add.u32 %r5, %r1, 0x80000000; t: .branchtargets A, B; brx.idx %r5, t; A: B:",
        "IllegalInstruction",
        "brx.idx index",
        "brx.idx %r5",
    ),
    Found(
        "a 64-bit register where 128 bits are needed",
        "ld.global.b128 %rd5, [%rd1];",
        "UnknownInstruction",
        "cannot hold 128 bits",
    ),
    Found(
        "a 64-bit register stored as 128 bits",
        "st.global.b128 [%rd2], %rd5;",
        "UnknownInstruction",
        "where one of 128 bits is needed",
    ),
    Found("a literal stored as 128 bits", "st.global.b128 [%rd2], 5;", "UnknownInstruction", "do not fit"),
    Found(
        "a 128-bit register read after a refusal",
        "min.f64 %q1, %q1, _; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1;",
        "UnknownInstruction",
        "where one of at most 64 bits is needed",
    ),
    Found(
        "fewer values than the vector has",
        "st.global.v4.b32 [%rd2], {%r1, %r2};",
        "UnknownInstruction",
        "v4 needs 4 values, not 2",
    ),
    Found("an unknown special register", "mov.u32 %r5, %envreg3;", "UnknownInstruction", "special register %envreg3"),
    Found(
        "halves far apart",
        f"{_ALLOC} tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {{%r16, %r17}}, [%r8], 0xffffffffffffff00;",
        "UnknownInstruction",
        "halves",
    ),
    Found(
        "lanes outside the quarter",
        f"{_ALLOC} add.u32 %r8, %r8, 0x30000; tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8], {{%r1, %r2}};",
        "IllegalInstruction",
        "the last one is 31",
        "tcgen05.st",
    ),
    Found(
        "a map of far away",
        f"{_BAR} @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd3, "
        f"{{0, 0}}], [%r3];",
        "MemoryFault",
        "tensor load",
        "cp.async.bulk.tensor",
        flips=((1, 1 << 31),),
    ),
    Found(
        "strides beyond 64 bits",
        f"{_BAR} @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd3, "
        f"{{0, 2147483647}}], [%r3]; mbarrier.arrive.shared.b64 _, [%r3];",
        "BarrierFault",
        "",
        "mbarrier.arrive",
        flips=((7, 15), (3, 1 << 31)),
    ),
    Found(
        "local memory without end",
        ".local .align 4 .b8 huge[600000]; mov.u64 %rd5, huge;",
        "LaunchError",
        "bytes of local memory per thread",
    ),
    Found(
        "variables without end",
        "mov.u64 %rd5, huge;",
        "LaunchError",
        "at most",
        before=".global .b8 huge[1000000000000];",
    ),
    Found("less than no shared memory", "mov.u32 %r5, 1;", "LaunchError", "dynamic shared memory", shared_bytes=-1),
    Found("a call of nothing", "call;", "UnknownInstruction", "do not fit"),
    Found(
        "diverged lanes at the cluster barrier",
        "@%p1 bra A; barrier.cluster.arrive; bra B; A: barrier.cluster.arrive; B: barrier.cluster.wait;",
        "ok",
        cluster=2,
    ),
    Found(
        "two arrivals at the cluster barrier",
        "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.wait;",
        "ok",
        cluster=2,
    ),
)
"""One line a bug."""
