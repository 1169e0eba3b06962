"""Cases of clusters: ranks, distributed shared memory, the cluster barrier, remote mbarriers, st.async, red.async."""

from __future__ import annotations

from tests.emulator.hw.case import Case, Out

NUMBERS = (
    "ctaid.x ctaid.y ctaid.z cluster_ctaid.x cluster_ctaid.y cluster_ctaid.z cluster_nctaid.x cluster_nctaid.y "
    "cluster_nctaid.z "
    "clusterid.x clusterid.y clusterid.z nclusterid.x nclusterid.y nclusterid.z cluster_ctarank cluster_nctarank "
    "nctaid.x "
    "nctaid.y nctaid.z"
).split()

# %r1 thread, %r2 rank, %r3 number of CTAs in the cluster, %rd1 p0, %r4 and %r5 shared addresses of `bars` and `tile`
START = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank; ld.param.u64 %rd1, [p0];
mov.u32 %r4, bars; mov.u32 %r5, tile; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; and.pred %p3, %p1, %p2;
mov.u32 %r6, %ctaid.x;
"""
SHARED = ".shared .align 8 .b64 bars[8];\n.shared .align 1024 .b8 tile[16384];\n"
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
# %rd2 = p0 + 1024 * CTA of the grid + 4 * thread
MINE = "mad.wide.u32 %rd2, %r6, 1024, %rd1; mad.wide.u32 %rd2, %r1, 4, %rd2;"


def _ranks(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> Case:
    count = grid[0] * grid[1] * grid[2]
    stores = "".join(f"mov.u32 %r10, %{name}; st.global.u32 [%rd2+{4 * k}], %r10;\n" for k, name in enumerate(NUMBERS))
    body = f"""
ld.param.u64 %rd1, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.x;
mov.u32 %r5, %nctaid.y; mad.lo.u32 %r2, %r3, %r5, %r2; mad.lo.u32 %r1, %r2, %r4, %r1; mad.wide.u32 %rd2, %r1, 128, %rd1;
mov.u32 %r6, %tid.x; mov.u32 %r7, %tid.y; mov.u32 %r8, %tid.z; or.b32 %r9, %r6, %r7; or.b32 %r9, %r9, %r8;
mov.u32 %r11, %laneid; shl.b32 %r12, %r6, 8; shl.b32 %r13, %r7, 4; or.b32 %r12, %r12, %r13; or.b32 %r12, %r12, %r8;
setp.eq.u32 %p1, %r11, 21; @%p1 st.global.u32 [%rd2+120], %r12; setp.ne.u32 %p2, %r9, 0; @%p2 ret;
mov.pred %p3, %is_explicit_cluster; selp.u32 %r14, 1, 0, %p3; st.global.u32 [%rd2+124], %r14;
{stores} ret;"""
    name = f"ranks {'x'.join(map(str, grid))} of {'x'.join(map(str, cluster))}"
    return Case(name, body, (Out(128 * count),), grid, (3, 4, 2), cluster)


def zeroed(words: int) -> str:
    """Zero at least the first words of `tile`, by all threads of a warp."""
    return f"""
mad.lo.u32 %r50, %r1, 4, %r5; add.u32 %r51, %r5, {4 * words}; ZERO: st.shared.u32 [%r50], 0; add.u32 %r50, %r50, 128;
setp.lt.u32 %p11, %r50, %r51; @%p11 bra ZERO;"""


_RING = Case(
    "ring of shared memory",
    f"""{START}
add.u32 %r7, %r2, 1; setp.ge.u32 %p4, %r7, %r3; @%p4 mov.u32 %r7, 0; mapa.shared::cluster.u32 %r8, %r5, %r7;
getctarank.shared::cluster.u32 %r9, %r8; mad.lo.u32 %r10, %r1, 16, %r8; mad.lo.u32 %r11, %r2, 1000, %r1;
{zeroed(2048)} {SYNC}
st.shared::cluster.v4.u32 [%r10], {{%r11, %r9, %r2, %r3}}; mov.u64 %rd5, tile; cvta.shared.u64 %rd6, %rd5;
mapa.u64 %rd7, %rd6, %r7; getctarank.u64 %r12, %rd7; mad.wide.u32 %rd8, %r1, 4, %rd7; st.u32 [%rd8+2048], %r11;
sub.u64 %rd9, %rd7, %rd6; mapa.shared::cluster.u32 %r13, tile, 0; atom.shared::cluster.add.u32 %r14, [%r13+4096], %r1;
red.shared::cluster.max.u32 [%r13+4100], %r11; isspacep.shared::cluster %p5, %rd7; isspacep.shared::cta %p6, %rd7;
isspacep.shared::cta %p7, %rd6; selp.u32 %r15, 1, 0, %p5; selp.u32 %r16, 2, 0, %p6;
selp.u32 %r17, 4, 0, %p7; or.b32 %r15, %r15, %r16; or.b32 %r15, %r15, %r17;
{SYNC}
{MINE} mad.lo.u32 %r20, %r1, 16, %r5; ld.shared.v4.u32 {{%r21, %r22, %r23, %r24}}, [%r20]; st.global.u32 [%rd2], %r21;
st.global.u32 [%rd2+128], %r22; st.global.u32 [%rd2+256], %r23; mad.lo.u32 %r20, %r1, 4, %r5;
ld.shared.u32 %r25, [%r20+2048];
st.global.u32 [%rd2+384], %r25; ld.shared::cluster.u32 %r26, [%r13+4100]; st.global.u32 [%rd2+512], %r26;
st.global.u32 [%rd2+640], %r15;
cvt.u32.u64 %r27, %rd9; st.global.u32 [%rd2+768], %r27; st.global.u32 [%rd2+896], %r12; {SYNC} ret;""",
    (Out(4096),),
    (4, 1, 1),
    cluster=(4, 1, 1),
    before=SHARED,
)


_REMOTE = Case(
    "arrivals of other CTAs",
    f"""{START} @%p3 mbarrier.init.shared.b64 [%r4], 96; @%p3 mbarrier.init.shared.b64 [%r4+8], 3;
fence.mbarrier_init.release.cluster;
{zeroed(1024)} {SYNC} mapa.shared::cluster.u32 %r7, %r4, 0; mapa.shared::cluster.u32 %r8, %r5, 0; mov.u32 %r9, 0;
mov.u32 %r17, 0; {MINE}
AGAIN: and.b32 %r10, %r9, 1; @%p2 bra TAKE;
mad.lo.u32 %r11, %r2, 128, %r8; mad.lo.u32 %r11, %r1, 4, %r11; mad.lo.u32 %r12, %r9, 100, %r1;
st.shared::cluster.u32 [%r11], %r12;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7+8], 1;
bra NEXT;
TAKE: W1: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r4], %r10; @!%p4 bra W1;
W2: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r4+8], %r10, 1000000; @!%p4 bra W2;
mad.lo.u32 %r13, %r1, 4, %r5; ld.shared.u32 %r14, [%r13+128]; ld.shared.u32 %r15, [%r13+256];
ld.shared.u32 %r16, [%r13+384];
add.u32 %r14, %r14, %r15; add.u32 %r14, %r14, %r16; add.u32 %r17, %r17, %r14;
NEXT: {SYNC} add.u32 %r9, %r9, 1; setp.lt.u32 %p5, %r9, 5; @%p5 bra AGAIN; setp.ne.u32 %p6, 0, 0;
@%p2 mbarrier.test_wait.parity.shared.b64 %p6, [%r4], 0;
selp.u32 %r18, 1, 0, %p6; @%p2 st.global.u32 [%rd2], %r17; @%p2 st.global.u32 [%rd2+128], %r18; {SYNC} ret;""",
    (Out(4096),),
    (4, 1, 1),
    cluster=(4, 1, 1),
    before=SHARED,
    note="three CTAs arrive on a barrier of the first, five phases, with and without a time limit",
)
_EXPECT = Case(
    "bytes expected by another CTA",
    f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 2; fence.mbarrier_init.release.cluster; {zeroed(1024)} {SYNC}
xor.b32 %r7, %r2, 1; mapa.shared::cluster.u32 %r8, %r4, %r7; mapa.shared::cluster.u32 %r9, %r5, %r7; {MINE}
@%p1 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r8], 768;
@%p1 mbarrier.arrive.release.cta.shared::cta.b64 _, [%r4]; mad.lo.u32 %r10, %r1, 16, %r9;
mad.lo.u32 %r11, %r2, 1000, %r1;
cvt.u64.u32 %rd5, %r11;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r10], {{%r11, %r1, %r2, %r3}}, [%r8];
mad.lo.u32 %r12, %r1, 8, %r9; st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r12+1024], %rd5, [%r8];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r4], 0; @!%p4 bra W;
mad.lo.u32 %r13, %r1, 16, %r5; ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r13]; mad.lo.u32 %r14, %r1, 8, %r5;
ld.shared.v2.u32 {{%r24, %r25}}, [%r14+1024];
st.global.u32 [%rd2], %r20; st.global.u32 [%rd2+128], %r21; st.global.u32 [%rd2+256], %r22;
st.global.u32 [%rd2+384], %r23;
st.global.u32 [%rd2+512], %r24; st.global.u32 [%rd2+640], %r25; {SYNC} ret;""",
    (Out(2048),),
    (2, 1, 1),
    cluster=(2, 1, 1),
    before=SHARED,
)

_RED = (
    ("add", "u32"),
    ("add", "s32"),
    ("add", "u64"),
    ("min", "u32"),
    ("min", "s32"),
    ("max", "u32"),
    ("max", "s32"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("and", "b32"),
    ("or", "b32"),
    ("xor", "b32"),
)


def _red_async() -> Case:
    """Every operation on its own column of words, from both CTAs of a pair, two rounds."""
    lines = []
    for k, (name, type) in enumerate(_RED):
        value = "%rd6" if type == "u64" else "%r12"
        wide = 8 if type == "u64" else 4
        lines.append(
            f"mad.lo.u32 %r10, %r1, {wide}, %r9; "
            f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{name}.{type} "
            f"[%r10+{256 * k}], {value}, [%r8];"
        )
    total = 2 * sum(32 * (8 if t == "u64" else 4) for _, t in _RED)
    return Case(
        "red.async",
        f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
mad.lo.u32 %r50, %r1, 4, %r5; add.u32 %r52, %r1, 0x7ffffff0; add.u32 %r51, %r5, 4096;
FILL: st.shared.u32 [%r50], %r52; add.u32 %r50, %r50, 128; setp.lt.u32 %p11, %r50, %r51; @%p11 bra FILL;
{SYNC} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], {total};
xor.b32 %r7, %r2, 1; mapa.shared::cluster.u32 %r8, %r4, %r7; mapa.shared::cluster.u32 %r9, %r5, %r7; {MINE}
mad.lo.u32 %r12, %r1, 0x20000001, 0x7ffffff8; add.u32 %r12, %r12, %r2; cvt.u64.u32 %rd6, %r12;
or.b64 %rd6, %rd6, 0xF000000000000000; mov.u32 %r13, 0;
R: {" ".join(lines)} add.u32 %r13, %r13, 1; setp.lt.u32 %p5, %r13, 2; @%p5 bra R;
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r4], 0; @!%p4 bra W;
mad.wide.u32 %rd7, %r6, 4096, %rd1; mad.wide.u32 %rd7, %r1, 4, %rd7; mad.lo.u32 %r14, %r1, 4, %r5; mov.u32 %r15, 0;
D: ld.shared.u32 %r16, [%r14]; st.global.u32 [%rd7], %r16; add.u32 %r14, %r14, 128; add.u64 %rd7, %rd7, 128;
add.u32 %r15, %r15, 1;
setp.lt.u32 %p6, %r15, {2 * len(_RED)}; @%p6 bra D; {SYNC} ret;""",
        (Out(8192),),
        (2, 1, 1),
        cluster=(2, 1, 1),
        before=SHARED,
    )


_SPLIT = Case(
    "cluster barrier in parts",
    f"""{START} {MINE} mov.u32 %r7, 0; mov.u32 %r10, 0; mapa.shared::cluster.u32 %r8, %r5, 0; {zeroed(64)} {SYNC}
AGAIN: setp.lt.u32 %p4, %r1, 11; @%p4 bra FEW; red.shared::cluster.add.u32 [%r8], 1; barrier.cluster.arrive.release;
bra MEET;
FEW: red.shared::cluster.add.u32 [%r8], 100; barrier.cluster.arrive.release;
MEET: barrier.cluster.wait.acquire; ld.shared::cluster.u32 %r9, [%r8]; mad.lo.u32 %r10, %r10, 31, %r9;
barrier.cluster.arrive; barrier.cluster.wait;
add.u32 %r7, %r7, 1; setp.lt.u32 %p5, %r7, 4; @%p5 bra AGAIN; st.global.u32 [%rd2], %r10; ret;""",
    (Out(2048),),
    (2, 1, 1),
    (32, 1, 1),
    (2, 1, 1),
    SHARED,
    note="lanes arrive from different branches; all threads of the cluster wait",
)
_ENDED = Case(
    "cluster barrier after threads have ended",
    f"""{START} {MINE} {zeroed(64)} {SYNC} setp.ge.u32 %p4, %r1, 40; @%p4 exit; mapa.shared::cluster.u32 %r8, %r5, 0;
red.shared::cluster.add.u32 [%r8], 1; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
ld.shared::cluster.u32 %r9, [%r8];
st.global.u32 [%rd2], %r9; barrier.cluster.arrive; barrier.cluster.wait; ret;""",
    (Out(2048),),
    (2, 1, 1),
    (96, 1, 1),
    (2, 1, 1),
    SHARED,
    note="ended threads do not have to arrive: a part of a warp and a whole warp",
)

CASES = [
    _ranks((4, 2, 2), (2, 1, 1)),
    _ranks((4, 4, 1), (2, 2, 1)),
    _ranks((2, 4, 4), (1, 2, 2)),
    _ranks((8, 1, 1), (8, 1, 1)),
    _ranks((3, 2, 1), (1, 1, 1)),
    _RING,
    _REMOTE,
    _EXPECT,
    _red_async(),
    _SPLIT,
    _ENDED,
]
