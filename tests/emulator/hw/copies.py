"""Cases of asynchronous copies: multicast within a cluster, bulk copies and reductions, cp.async groups."""

from __future__ import annotations

import numpy as np

from tests.emulator.hw.case import Case, In, Map, Out
from tests.emulator.hw.clusters import SHARED, START, SYNC

SOURCE = np.arange(64 * 64, dtype=np.uint32) * 2654435761
_WAIT = "W{0}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%r4+{1}], {2}; @!%p9 bra W{0};"


def dump(words: int, out: str = "p0") -> str:
    """All threads of a CTA of 32 write the first words of `tile` to the CTA's part of a buffer."""
    return f"""
ld.param.u64 %rd30, [{out}]; mad.wide.u32 %rd30, %r6, {4 * words}, %rd30; mad.wide.u32 %rd30, %r1, 4, %rd30;
mad.lo.u32 %r40, %r1, 4, %r5; mov.u32 %r41, 0;
DUMP: ld.shared.u32 %r42, [%r40]; st.global.u32 [%rd30], %r42; add.u32 %r40, %r40, 128; add.u64 %rd30, %rd30, 128;
add.u32 %r41, %r41, 32;
setp.lt.u32 %p10, %r41, {words}; @%p10 bra DUMP;"""


def blank(words: int) -> str:
    """All threads of a CTA of 32 fill the first words of `tile` with ones."""
    return f"""
mad.lo.u32 %r40, %r1, 4, %r5; mov.u32 %r41, 0; BLANK: st.shared.u32 [%r40], -1; add.u32 %r40, %r40, 128;
add.u32 %r41, %r41, 32;
setp.lt.u32 %p10, %r41, {words}; @%p10 bra BLANK; fence.proxy.async.shared::cta;"""


def _multicast(size: int, masks: tuple[int, ...], swizzle: int, name: str) -> Case:
    """CTA r of a cluster copies box r to the CTAs of masks[r]; each waits for the boxes that it gets."""
    box = (8, 16) if swizzle == 1 else (16, 8)
    nbytes = 4 * box[0] * box[1]
    expected = [sum(nbytes for m in masks if m >> r & 1) for r in range(size)]
    choose = "".join(
        f"setp.eq.u32 %p4, %r2, {r}; @%p4 mov.u32 %r7, {e}; @%p4 mov.u16 %h1, {masks[r]};\n"
        for r, e in enumerate(expected)
    )
    body = f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
{blank(size * nbytes // 4)} {SYNC}
mov.u32 %r7, 0; mov.u16 %h1, 0; {choose} setp.ne.u32 %p5, %r7, 0; mov.b64 %rd3, p2; cvta.param.u64 %rd3, %rd3;
mad.lo.u32 %r8, %r2, {nbytes}, %r5; mul.lo.u32 %r9, %r2, 8; mov.u32 %r10, 4;
mul.lo.u32 %r10, %r10, %r2; and.b32 %r10, %r10, 8; setp.ne.u16 %p6, %h1, 0; and.pred %p6, %p6, %p1;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], %r7; {SYNC}
@%p6 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r8],
[%rd3, {{%r10, %r9}}], [%r4], %h1;
{_WAIT.format(0, 0, 0)} {dump(size * nbytes // 4)} {SYNC} ret;"""
    tmap = Map(1, "u32", (64, 64), (256,), box, swizzle=swizzle)
    arguments = (Out(size * size * nbytes), In(SOURCE), tmap)
    return Case(name, body, arguments, (size, 1, 1), cluster=(size, 1, 1), before=SHARED)


_BULK = Case(
    "bulk copies, multicast too",
    f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
{blank(512)} ld.param.u64 %rd4, [p1]; mov.u16 %h1, 3;
mad.lo.u32 %r12, %r2, 1000, %r1; mad.lo.u32 %r13, %r1, 8, %r5; st.shared.v2.u32 [%r13+1536], {{%r12, %r1}};
fence.proxy.async.shared::cta; {SYNC}
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 784; {SYNC} xor.b32 %r7, %r2, 1;
mapa.shared::cluster.u32 %r8, %r5, %r7;
mapa.shared::cluster.u32 %r9, %r4, %r7; mad.wide.u32 %rd5, %r2, 512, %rd4; mov.u32 %r10, 16;
mad.lo.u32 %r11, %r2, 256, %r5;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r11], [%rd5], 256, [%r4],
%h1;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+512], [%rd5+128], %r10, [%r4];
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8+1024], [%r5+1536], 256, [%r9];
{_WAIT.format(0, 0, 0)} {dump(512)} {SYNC} ret;""",
    (Out(4096), In(SOURCE[:1024])),
    (2, 1, 1),
    cluster=(2, 1, 1),
    before=SHARED,
    note="global to shared, to both CTAs, and from shared memory to a peer",
)

_SPECIAL = {
    4: (
        "0 1 7F800000 FF800000 7FC00000 7F800001 80000000 7FFFFF 800000 80000001 3F800000 BF800000 "
        "7F7FFFFF FF7FFFFF 33800000 4B800001"
    ),
    8: (
        "0 1 7FF0000000000000 FFF0000000000000 7FF8000000000000 7FF0000000000001 8000000000000000 "
        "FFFFFFFFFFFFFFFF 3FF0000000000000 BFF0000000000000 7FEFFFFFFFFFFFFF FFFFFFFFFFFFF "
        "3CA0000000000000 4340000000000001 5 4000000000000000"
    ),
    2: (
        "0 1 7C00 FC00 7E00 7C01 8000 8001 3FF 400 3C00 BC00 7BFF FBFF 1400 6400 7F80 FF80 7FC0 3F80 "
        "BF80 7F7F 80 7F 7FFF 3B80"
    ),
}
_PATTERNS = {width: [int(word, 16) for word in words.split()] for width, words in _SPECIAL.items()}

_PAIRS = ((2, 3), (3, 2), (2, 2), (4, 5), (5, 4), (6, 6), (0, 6), (6, 0), (10, 10), (12, 12), (5, 5), (7, 5))
"""Pairs of special patterns that must not be missing: infinities, NaN of both kinds, zeros, the largest numbers."""


def pairs(width: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of patterns: pairs of special ones first, then ordinary numbers, then random bits."""
    random = np.random.default_rng(seed)
    special = np.array(_PATTERNS[width], f"u{width}")
    kind = {2: np.float16, 4: np.float32, 8: np.float64}[width]

    def draw() -> np.ndarray:
        noise = random.integers(0, 1 << 8 * width, count, np.uint64)
        numbers = (random.standard_normal(count) * 10.0 ** random.integers(-3, 4, count)).astype(kind).view(f"u{width}")
        half = np.where(np.arange(count) % 2, numbers, noise.astype(f"u{width}"))
        return np.where(np.arange(count) < count // 2, random.choice(special, count), half).astype(f"u{width}")

    a, b = draw(), draw()
    a[: len(_PAIRS)] = [_PATTERNS[width][i] for i, _ in _PAIRS]
    b[: len(_PAIRS)] = [_PATTERNS[width][j] for _, j in _PAIRS]
    return a, b


BULK = {
    "add": "u32 s32 u64 f32 f64 f16 bf16",
    "min": "u32 s32 u64 s64 f16 bf16",
    "max": "u32 s32 u64 s64 f16 bf16",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "inc": "u32",
    "dec": "u32",
}
"""Operations and types of bulk reductions to global memory."""


def _bulk_reduce(name: str, type: str) -> Case:
    width = 2 if "f16" in type else int(type[1:]) // 8
    a, b = pairs(width, 1024 // width, len(name) * 100 + len(type))
    noftz = ".noftz" if name == "add" and width == 2 else ""
    body = f"""{START} ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd5, %r1, 16, %rd4; mad.lo.u32 %r7, %r1, 16, %r5;
ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd5]; st.shared.v4.u32 [%r7], {{%r10, %r11, %r12, %r13}};
ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd5+512];
st.shared.v4.u32 [%r7+512], {{%r10, %r11, %r12, %r13}}; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 ret;
cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}{noftz}.{type} [%rd1], [%r5], 1024;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;"""
    return Case(f"bulk {name} {type}", body, (Out(1024, a), In(b)), before=SHARED)


PEER = "add.u32 add.s32 add.u64 min.s32 max.u32 inc.u32 dec.u32 and.b32 or.b32 xor.b32".split()
"""Operations and types of bulk reductions to the shared memory of a CTA of the cluster."""


def _peer_reduce(name: str, type: str) -> Case:
    a, b = pairs(int(type[1:]) // 8, 1024 * 8 // int(type[1:]), len(name) * 7 + len(type))
    fill = "".join(
        f"ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd5+{o}]; "
        f"st.shared.v4.u32 [%r7+{o}], {{%r10, %r11, %r12, %r13}};\n"
        for o in range(0, 2048, 512)
    )
    body = f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
ld.param.u64 %rd4, [p1];
mad.wide.u32 %rd5, %r1, 16, %rd4; mad.lo.u32 %r7, %r1, 16, %r5; {fill} fence.proxy.async.shared::cta; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 1024; {SYNC} xor.b32 %r14, %r2, 1;
mapa.shared::cluster.u32 %r8, %r5, %r14; mapa.shared::cluster.u32 %r9, %r4, %r14;
@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{name}.{type} [%r8], [%r5+1024],
1024, [%r9];
{_WAIT.format(0, 0, 0)} {dump(256)} {SYNC} ret;"""
    return Case(
        f"peer {name} {type}",
        body,
        (Out(2048), In(np.concatenate([a, b]))),
        (2, 1, 1),
        cluster=(2, 1, 1),
        before=SHARED,
    )


_ASYNC = Case(
    "cp.async in groups",
    f"""{START} {blank(2048)} bar.sync 0; ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd5, %r1, 16, %rd4;
mad.lo.u32 %r7, %r1, 16, %r5; setp.lt.u32 %p4, %r1, 20;
cp.async.cg.shared.global [%r7], [%rd5], 16; cp.async.ca.shared.global [%r7+512], [%rd5+8], 8; cp.async.commit_group;
cp.async.ca.shared.global [%r7+1024], [%rd5+4], 4; and.b32 %r8, %r1, 15;
cp.async.cg.shared.global [%r7+1536], [%rd5], 16, %r8; cp.async.commit_group;
and.b32 %r9, %r1, 7; cp.async.ca.shared.global.L2::128B [%r7+2048], [%rd5], 8, %r9;
cp.async.ca.shared.global [%r7+2560], [%rd5], 4, 0;
@%p4 cp.async.ca.shared.global [%r7+3072], [%rd5+512], 16; cp.async.ca.shared.global [%r7+3584], [%rd5], 16, 3;
cp.async.commit_group;
cp.async.wait_group 2; ld.shared.u32 %r20, [%r7]; cp.async.wait_group 1; ld.shared.u32 %r21, [%r7+1024];
cp.async.wait_group 0; cp.async.wait_all; bar.sync 0;
{dump(1024)} ld.param.u64 %rd6, [p2]; mad.wide.u32 %rd6, %r1, 8, %rd6; st.global.v2.u32 [%rd6], {{%r20, %r21}}; ret;""",
    (Out(4096), In(SOURCE[:1024]), Out(256)),
    before=SHARED,
    note="4, 8 and 16 bytes, sources of every shorter size, a part of the warp, three groups",
)
_ASYNC_ARRIVE = Case(
    "cp.async arrives on mbarriers",
    f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 32; @%p1 mbarrier.init.shared.b64 [%r4+8], 33;
@%p1 mbarrier.init.shared.b64 [%r4+16], 5; bar.sync 0;
ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd5, %r1, 16, %rd4; mad.lo.u32 %r7, %r1, 16, %r5;
cp.async.cg.shared.global [%r7], [%rd5], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r4]; cp.async.mbarrier.arrive.noinc.shared.b64 [%r4+8];
cp.async.mbarrier.arrive.shared.b64 [%r4+16];
{_WAIT.format(0, 0, 0)} ld.shared.u32 %r20, [%r7]; @%p1 mbarrier.arrive.shared.b64 _, [%r4+8];
{_WAIT.format(1, 8, 0)} cp.async.wait_all; nanosleep.u32 100000; bar.sync 0;
mov.u32 %r21, 7; @!%p1 bra OUT; mbarrier.arrive.shared.b64 %rd6, [%r4+16]; mbarrier.pending_count.b64 %r21, %rd6;
mbarrier.inval.shared.b64 [%r4+16]; ld.shared.v2.u32 {{%r22, %r23}}, [%r4+16];
ld.param.u64 %rd7, [p2]; st.global.v2.u32 [%rd7], {{%r22, %r23}};
OUT: mad.wide.u32 %rd8, %r1, 8, %rd1; st.global.v2.u32 [%rd8], {{%r20, %r21}}; ret;""",
    (Out(256), In(SOURCE[:1024]), Out(8)),
    before=SHARED,
    note="with .noinc the copies are counted arrivals; without, the barrier's pending count is raised and lowered",
    policies=("in_order",),
)

CASES = [
    _multicast(2, (3, 0), 0, "multicast from one CTA to two"),
    _multicast(2, (3, 3), 2, "multicast both ways, 64B swizzle"),
    _multicast(4, (0b1111, 0b0101, 0b1010, 0b1000), 0, "multicast with four masks"),
    _multicast(4, (0b0110, 0b1111, 0, 0b0001), 1, "multicast that leaves the sender out, 32B swizzle"),
    _BULK,
    _ASYNC,
    _ASYNC_ARRIVE,
    *(_bulk_reduce(name, type) for name, types in BULK.items() for type in types.split()),
    *(_peer_reduce(*form.split(".")) for form in PEER),
]
