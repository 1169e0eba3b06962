"""Every rule of racecheck: a kernel that is right raises nothing; without one instruction it is reported."""

from __future__ import annotations

import pytest

from emulator.watch import Finding
from emulator.watch.racecheck import Racecheck
from tests.emulator.watch.checked import Checked, kinds

SHARED = """
.shared .align 128 .b8 tile[4096]; .shared .align 8 .b8 bar[16];
"""
START = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;
mov.u32 %r5, tile; mov.u32 %r6, bar; shl.b32 %r7, %r1, 2; add.u32 %r8, %r5, %r7;
xor.b32 %r9, %r7, 4; add.u32 %r9, %r5, %r9; xor.b32 %r10, %r7, 128; add.u32 %r10, %r5, %r10;
mul.wide.u32 %rd20, %r1, 4; add.s64 %rd21, %rd1, %rd20;
"""
"""%r1 thread, %r2 warp, %r3 lane; %p1 thread 0, %p2 warp 0; %r8 the thread's word of `tile`, %r9 the word of the other
lane of its pair, %r10 the word of the same lane of the other warp; %rd21 the thread's word of the output."""

BARRIER = """
@%p1 mbarrier.init.shared.b64 [%r6], {count}; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
"""
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p9, [%r6], 0; @!%p9 bra W;"
FILL = (
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 256; "
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 256, [%r6];"
)
OUT = "st.global.u32 [%rd21], %r20;"


def run(body: str, *, block: int = 64, words: int = 128, grid: int = 1, policy: str = "in_order") -> list[Finding]:
    """Findings of a body; %rd1 is an output of `words` words."""
    launch = Checked("racecheck", {"out": words})
    found = launch.run(START + body, declarations=SHARED, block=block, grid=grid, policy=policy, seed=4)
    assert launch.error is None, launch.error
    return found


CASES = {
    "two warps and a barrier": (
        "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r20, [%r10];" + OUT,
        "bar.sync 0;",
        "race",
        "no barrier or mbarrier connects them",
    ),
    "a read, then a write by the other warp": (
        "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r20, [%r10]; barrier.sync 1; st.shared.u32 [%r8], %r20;",
        "barrier.sync 1;",
        "race",
        "no barrier or mbarrier connects them",
    ),
    "lanes of a warp": (
        "st.shared.u32 [%r8], %r1; bar.warp.sync 0xffffffff; ld.shared.u32 %r20, [%r9];" + OUT,
        "bar.warp.sync 0xffffffff;",
        "race",
        "bar.warp.sync (__syncwarp) is missing",
    ),
    "half a warp": (
        """st.shared.u32 [%r8], %r1; setp.lt.u32 %p3, %r3, 16; @!%p3 bra E; bar.warp.sync 0xffff;
        ld.shared.u32 %r20, [%r9]; E:"""
        + OUT,
        "bar.warp.sync 0xffff;",
        "race",
        "bar.warp.sync (__syncwarp) is missing",
    ),
    "a shuffle lets lanes meet": (
        "st.shared.u32 [%r8], %r1; shfl.sync.bfly.b32 %r21, %r1, 1, 31, 0xffffffff; ld.shared.u32 %r20, [%r9];" + OUT,
        "shfl.sync.bfly.b32 %r21, %r1, 1, 31, 0xffffffff;",
        "race",
        "bar.warp.sync (__syncwarp) is missing",
    ),
    "one lane arrives for its warp": (
        BARRIER.format(count=1) + "@!%p2 bra C; st.shared.u32 [%r8], %r1; bar.warp.sync 0xffffffff;"
        "@%p1 mbarrier.arrive.shared.b64 _, [%r6]; bra E; C:" + WAIT + "ld.shared.u32 %r20, [%r10];" + OUT + "E:",
        "bar.warp.sync 0xffffffff;",
        "race",
        "bar.warp.sync is missing before it",
    ),
    "all lanes arrive": (
        BARRIER.format(count=32) + "@!%p2 bra C; st.shared.u32 [%r8], %r1; mbarrier.arrive.shared.b64 _, [%r6];"
        "bra E; C:" + WAIT + "ld.shared.u32 %r20, [%r10];" + OUT + "E:",
        WAIT,
        "race",
        "no barrier or mbarrier connects them",
    ),
    "a bulk copy and its mbarrier": (
        BARRIER.format(count=1) + "@%p1 " + FILL.replace("; cp", "; @%p1 cp") + WAIT + "ld.shared.u32 %r20, [%r8];"
        "bar.sync 0; st.shared.u32 [%r8], %r20;",
        WAIT,
        "race",
        "no wait on mbarrier 0x1400, phase 0",
    ),
    "a generic write and a bulk store": (
        """st.shared.u32 [%r8], %r1; fence.proxy.async.shared::cta; bar.sync 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256; @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0;""",
        "fence.proxy.async.shared::cta;",
        "missing proxy fence",
        "fence.proxy.async is missing",
    ),
    "a bulk store that still reads": (
        """st.shared.u32 [%r8], %r1; fence.proxy.async.shared::cta; bar.sync 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256; @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group.read 0; bar.sync 1; st.shared.u32 [%r8], %r3;""",
        "@%p1 cp.async.bulk.wait_group.read 0;",
        "race",
        "cp.async.bulk.wait_group.read after the store that still reads",
    ),
    "a bulk store that still writes": (
        """st.shared.u32 [%r8], %r1; fence.proxy.async.shared::cta; bar.sync 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256; @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0; bar.sync 1; ld.global.u32 %r20, [%rd21];""",
        "@%p1 cp.async.bulk.wait_group 0;",
        "race",
        "cp.async.bulk.wait_group after the store",
    ),
    "cp.async": (
        """cp.async.ca.shared.global [%r8], [%rd21], 4; cp.async.commit_group; cp.async.wait_group 0;
        ld.shared.u32 %r20, [%r8];""",
        "cp.async.wait_group 0;",
        "race",
        "cp.async.wait_group, and a barrier for other lanes",
    ),
    "cp.async of another lane": (
        """cp.async.ca.shared.global [%r8], [%rd21], 4; cp.async.commit_group; cp.async.wait_group 0;
        bar.warp.sync 0xffffffff; ld.shared.u32 %r20, [%r9];""",
        "bar.warp.sync 0xffffffff;",
        "race",
        "cp.async.wait_group, and a barrier for other lanes",
    ),
    "a flag with fences": (
        """@!%p2 bra C; st.global.u32 [%rd21+256], %r1; bar.warp.sync 0xffffffff; membar.gl;
        @%p1 st.volatile.global.u32 [%rd1], 7; bra E;
        C: ld.volatile.global.u32 %r20, [%rd1]; setp.ne.u32 %p5, %r20, 7; @%p5 bra C; fence.acq_rel.gpu;
        ld.global.u32 %r21, [%rd21+128]; E:""",
        "membar.gl;",
        "race",
        "no barrier or mbarrier connects them",
    ),
    "a flag released and acquired": (
        """@!%p2 bra C; st.global.u32 [%rd21+256], %r1; bar.warp.sync 0xffffffff;
        @%p1 st.release.gpu.global.u32 [%rd1], 7; bra E;
        C: ld.acquire.gpu.global.u32 %r20, [%rd1]; setp.ne.u32 %p5, %r20, 7; @%p5 bra C;
        ld.global.u32 %r21, [%rd21+128]; E:""",
        "bar.warp.sync 0xffffffff;",
        "race",
        "no barrier or mbarrier connects them",
    ),
}


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize("name", CASES)
def test_a_right_kernel_is_silent(name: str, policy: str) -> None:
    assert run(CASES[name][0], policy=policy) == []


@pytest.mark.parametrize("name", CASES)
def test_one_instruction_less_is_reported(name: str) -> None:
    body, dropped, kind, words = CASES[name]
    assert body.count(dropped) == 1
    found = run(body.replace(dropped, ""))
    assert kind in {finding.kind for finding in found} <= {kind, "exit before a copy has read"}
    assert any(words in finding.missing for finding in found), [finding.missing for finding in found]
    assert all(finding.tool == "racecheck" and finding.where.line for finding in found)


def test_a_finding_names_both_sides_and_the_variable() -> None:
    (finding,) = run("st.shared.u32 [%r8], %r1; ld.shared.u32 %r20, [%r10];" + OUT)
    # The two instructions race in both directions: one finding, and the pair that was met first is told.
    assert finding.memory == "shared memory offset 0x480 (tile+0x80): write after read" and finding.count == 2
    assert finding.other is not None
    assert (finding.where.warp, finding.other.warp) == (1, 0)
    assert finding.where.text.startswith("st.shared") and finding.other.text.startswith("ld.shared")
    assert finding.role == "warp 1" and finding.other_role == "warp 0"


def test_repetitions_are_counted() -> None:
    loop = """setp.eq.u32 %p3, %r3, 0; mov.u32 %r30, 0; L: @%p3 st.shared.u32 [%r5], %r1; add.u32 %r30, %r30, 1;
    setp.lt.u32 %p7, %r30, 5; @%p7 bra L;"""
    assert kinds(run(loop)) == [("race", 1)]
    assert kinds(run(loop.replace("add.u32", "bar.sync 0; add.u32", 1))) == [("race", 5)]


def test_ctas_that_write_one_element() -> None:
    body = "@%p1 st.global.u32 [%rd1], %r1;"
    assert run(body) == []
    (finding,) = run(body, grid=3)
    assert finding.memory == "global memory out[0]: write after write" and finding.count == 2
    assert "different clusters" in finding.missing
    assert run("@%p1 red.global.add.u32 [%rd1], %r1;", grid=3) == []


def test_one_lane_releases_its_own_write() -> None:
    """The other lanes of its warp have written elsewhere and have not met since: that is not told."""
    body = """mov.u32 %r30, %ctaid.x; setp.eq.u32 %p4, %r30, 1; @%p4 bra C; setp.ne.u32 %p5, %r1, 0;
    @%p5 st.global.u32 [%rd21+128], %r1; @%p1 st.global.u32 [%rd1+128], 5; @%p1 st.release.gpu.global.u32 [%rd1], 1;
    bra E; C: @!%p1 bra E; S: ld.acquire.gpu.global.u32 %r20, [%rd1]; setp.ne.u32 %p6, %r20, 1; @%p6 bra S;
    ld.global.u32 %r21, [%rd1+{offset}]; E:"""
    assert run(body.format(offset=128), grid=2, block=32) == []
    assert [f.kind for f in run(body.format(offset=132), grid=2, block=32)] == ["race"]


def test_all_lanes_may_issue_one_store() -> None:
    """All lanes execute a store that one should: they write the same. Two stores are two."""
    store = "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256;"
    body = "st.shared.u32 [%r8], %r1; fence.proxy.async.shared::cta; bar.sync 0;{store}"
    done = "@%p2 cp.async.bulk.commit_group; @%p2 cp.async.bulk.wait_group 0;"
    assert run(body.format(store=store) + done) == []
    assert [f.kind for f in run(body.format(store=store + store) + done)] == ["race"]


def test_ctas_that_hand_over_through_a_flag() -> None:
    """CTA 1 waits for CTA 0, which has ended or not; the data and the flag lie in different words."""
    body = """mov.u32 %r30, %ctaid.x; setp.eq.u32 %p4, %r30, 1; @%p4 bra C;
    st.global.u32 [%rd21+128], %r1; bar.sync 0; {fence} @%p1 red.relaxed.gpu.global.add.u32 [%rd1], 1; bra E;
    C: @!%p1 bra J; S: ld.relaxed.gpu.global.u32 %r20, [%rd1]; setp.eq.u32 %p5, %r20, 0xffffffff; @%p5 bra S; {fence}
    J: bar.sync 0; ld.global.u32 %r21, [%rd21+128]; E:"""
    assert run(body.format(fence="fence.acq_rel.gpu;"), grid=2) == []
    assert {f.kind for f in run(body.format(fence=""), grid=2)} == {"race"}


def test_bytes_of_one_word_are_told_apart() -> None:
    body = """mad.lo.u32 %r33, %r3, 2, {which}; add.u32 %r31, %r5, %r33; st.shared.u8 [%r31], %r1;
    ld.shared.u8 %r20, [%r31];"""
    assert run(body.format(which="%r2")) == []
    assert {f.kind for f in run(body.format(which="0"))} == {"race"}


def test_a_cta_ends_while_a_store_reads() -> None:
    body = """st.shared.u32 [%r8], %r1; fence.proxy.async.shared::cta; bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 256; @%p1 cp.async.bulk.commit_group;"""
    assert [f.kind for f in run(body)] == ["exit before a copy has read"]
    assert run(body + "@%p1 cp.async.bulk.wait_group.read 0;") == []


PEERS = """mov.u32 %r40, %cluster_ctarank; st.shared.u32 [%r8], %r40; barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned; xor.b32 %r41, %r40, 1; mapa.shared::cluster.u32 %r42, %r8, %r41;
ld.shared::cluster.u32 %r20, [%r42]; """


@pytest.mark.parametrize(
    ("body", "kinds_wanted"),
    [
        (PEERS + "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", set()),
        (PEERS, {"exit before a peer's access"}),
        (PEERS.replace("barrier.cluster.wait.aligned;", "") + "barrier.cluster.wait.aligned;", {"race"}),
    ],
)
def test_ctas_of_a_cluster(body: str, kinds_wanted: set[str]) -> None:
    launch = Checked("racecheck", {"out": 128})
    found = launch.run(START + body, declarations=SHARED, block=64, grid=2, cluster=(2, 1, 1))
    assert launch.error is None
    assert {finding.kind for finding in found} - {"exit before a peer's access"} == kinds_wanted - {
        "exit before a peer's access"
    }
    assert ("exit before a peer's access" in {f.kind for f in found}) == (body.count("cluster.wait") < 2)


WGMMA = """
mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0; mov.b64 %rd30, 0x800400040;
setp.eq.u32 %p8, %r1, %r1; wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd30, %rd30, %p8, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; add.f32 %f5, %f1, %f2; mov.b32 %r24, %f5;
st.global.u32 [%rd21], %r24;
"""


@pytest.mark.parametrize(
    ("dropped", "kind", "words"),
    [
        ("", "", ""),
        ("wgmma.fence.sync.aligned;", "missing wgmma.fence", "since the last wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "race", "wgmma.wait_group is missing"),
    ],
)
def test_registers_of_wgmma(dropped: str, kind: str, words: str) -> None:
    launch = Checked("racecheck", {"out": 128})
    body = WGMMA.replace("mov.u32 %r20, 0;", "mov.f32 %f1, 0f00000000;")
    body = body.replace(dropped, "") if dropped else body
    found = launch.run(START + body, declarations=SHARED, block=128)
    assert launch.error is None
    assert {f.kind for f in found} == ({kind} if kind else set())
    assert all(words in f.missing for f in found)


TWO_GROUPS = """
mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u32 %r32, 0; mov.u32 %r33, 0; mov.u32 %r34, 0; mov.u32 %r35, 0; mov.u32 %r36, 0;
mov.u32 %r37, 0; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
mov.b64 %rd30, 0x800400040; setp.eq.u32 %p8, %r1, %r1; wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r30, %r31, %r32, %r33}, %rd30, %p8, 1, 1, 0;
wgmma.commit_group.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r34, %r35, %r36, %r37}, %rd30, %p8, 1, 1, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; EARLY wgmma.wait_group.sync.aligned 0; LATE
add.f32 %f5, %f1, %f2; mov.b32 %r24, %f5; st.global.u32 [%rd21], %r24;
"""


@pytest.mark.parametrize(
    ("early", "late", "found"),
    [
        ("", "add.u32 %r37, %r1, 1;", 0),
        ("add.u32 %r30, %r1, 1; ld.shared.u32 %r33, [%r8];", "", 0),  # the first product's: complete
        ("add.u32 %r38, %r37, 1; mov.b32 %r39, %r34;", "", 0),  # reading is free
        ("add.u32 %r37, %r1, 1;", "", 1),
        ("mov.b32 %r34, %r1;", "", 1),
        ("ld.shared.v2.u32 {%r35, %r36}, [%r5];", "", 1),
        ("@%p1 add.u32 %r34, %r1, 1; add.u32 %r35, %r1, 1;", "", 2),
    ],
)
def test_registers_of_a_are_read_until_the_wait(early: str, late: str, found: int) -> None:
    findings = _wgmma(TWO_GROUPS.replace("EARLY", early).replace("LATE", late))
    assert [(f.kind, f.memory) for f in findings] == [("race", "registers of A of a wgmma")] * found
    assert all("may still read them: wgmma.wait_group is missing" in f.missing for f in findings)


FENCE = "fence.proxy.async.shared::cta;"


def test_wgmma_reads_what_a_generic_store_wrote() -> None:
    body = "st.shared.u32 [%r8], %r1; {fence} bar.sync 0;" + WGMMA
    assert {f.kind for f in _wgmma(body.replace("{fence}", FENCE))} == set()
    assert {f.kind for f in _wgmma(body.replace("{fence}", ""))} == {"missing proxy fence"}
    overwritten = body.replace("wgmma.commit", "st.shared.u32 [%r8], %r3; wgmma.commit")
    (finding,) = _wgmma(overwritten.replace("{fence}", FENCE))
    assert finding.kind == "race" and "wgmma.wait_group after the product" in finding.missing


def _wgmma(body: str) -> list[Finding]:
    launch = Checked("racecheck", {"out": 128})
    found = launch.run(START + body, declarations=SHARED, block=128)
    assert launch.error is None
    return found


def test_one_listener_serves_several_launches() -> None:
    launch = Checked("racecheck", {"out": 128})
    for _ in range(2):
        launch.run(START + "st.shared.u32 [%r10], %r1; st.shared.u32 [%r8], %r1;", declarations=SHARED, block=64)
    (checker,) = launch.checkers
    assert isinstance(checker, Racecheck) and kinds(checker.findings) == [("race", 4)]
