"""The bodies of the kernels that are mutated, one per part of the instruction set; `seeds.py` says what is where."""

from __future__ import annotations

BODIES: dict[str, tuple[str, int, int]] = {}
"""Name -> (body, threads of a block, CTAs of a cluster)."""


def _seed(name: str, body: str, block: int = 32, cluster: int = 1) -> None:
    BODIES[name] = (body, block, cluster)


_seed(
    "integers",
    """
ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1+16];
add.s32 %r9, %r5, %r1; sub.u32 %r10, %r6, 7; mad.lo.s32 %r11, %r5, %r6, %r7; mul.hi.u32 %r12, %r5, %r6;
mul.wide.s32 %rd5, %r5, %r6; div.s32 %r13, %r5, %r1; rem.u32 %r14, %r6, %r1; div.u64 %rd6, %rd5, 3;
shl.b32 %r15, %r5, %r1; shr.s32 %r16, %r6, 33; shf.l.wrap.b32 %r17, %r5, %r6, %r1; prmt.b32 %r18, %r5, %r6, 0x5140;
lop3.b32 %r19, %r5, %r6, %r7, 0xE8; bfe.s32 %r20, %r5, 4, 9; bfi.b32 %r21, %r5, %r6, 3, 11; popc.b64 %r22, %rd5;
clz.b32 %r23, %r5; brev.b64 %rd7, %rd5; bfind.shiftamt.u32 %r24, %r6; fns.b32 %r25, %r5, 3, 2;
szext.clamp.s32 %r26, %r5, 9;
bmsk.wrap.b32 %r27, %r1, 7; dp4a.u32.s32 %r28, %r5, %r6, %r7; dp2a.lo.s32.u32 %r29, %r5, %r6, %r7;
sad.u32 %r30, %r5, %r6, 1;
add.cc.u32 %r31, %r5, %r6; addc.cc.u32 %r32, %r7, %r8; subc.u32 %r33, %r7, 1; madc.lo.u32 %r34, %r5, %r6, %r7;
min.s16x2 %r35, %r5, %r6; add.u16x2 %r36, %r7, %r8; mul24.lo.s32 %r37, %r5, %r6; abs.s64 %rd8, %rd5; neg.s32 %r38, %r5;
selp.b32 %r9, %r9, %r10, %p1; slct.s32.s32 %r10, %r11, %r12, %r13; setp.lt.and.u32 %p2|%p3, %r5, 0x10, !%p1;
set.gt.u32.s32 %r11, %r5, %r6; mov.b64 {%r12, %r13}, %rd5; mov.b128 %q1, {%rd5, %rd6}; mov.b128 {%rd7, %rd8}, %q1;
cvt.sat.u8.s32 %r14, %r5; cvt.u16.u32 %h1, %r5; mul.wide.u16 %r15, %h1, %h1; cnot.b32 %r16, %r5;
isspacep.shared %p4, %rd3;
@%p2 add.s32 %r9, %r9, 1; xor.b32 %r9, %r9, %r28; st.global.u32 [%rd4], %r9; ret;""",
)
_seed(
    "floats",
    """
ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]; ld.global.f64 %d1, [%rd1+64];
add.rn.f32 %f5, %f1, %f2; fma.rz.ftz.f32 %f6, %f1, %f2, %f3; mul.rm.sat.f32 %f7, %f1, 0f3F000000;
div.rn.f32 %f8, %f1, %f2;
sqrt.approx.ftz.f32 %f9, %f3; rcp.rn.f32 %f10, %f4; ex2.approx.f32 %f11, %f1; lg2.approx.f32 %f5, %f9;
tanh.approx.f32 %f6, %f1;
sin.approx.f32 %f7, %f2; min.NaN.f32 %f8, %f1, %f2; max.f32 %f9, %f1, -1.5;
fma.rn.f64 %d2, %d1, %d1, 0d3FF0000000000000;
copysign.f32 %f10, %f1, %f2; testp.finite.f32 %p2, %f1; setp.ltu.f32 %p3, %f1, %f2; neg.ftz.f32 %f11, %f3;
abs.f32 %f1, %f1;
cvt.rn.f16.f32 %h1, %f2; cvt.f32.f16 %f3, %h1; cvt.rn.bf16x2.f32 %r5, %f1, %f2;
cvt.rn.satfinite.e4m3x2.f32 %h2, %f1, %f2;
cvt.rn.f16x2.e4m3x2 %r6, %h2; fma.rn.bf16x2 %r7, %r5, %r5, %r5; add.f16x2 %r8, %r6, %r6; max.bf16 %h3, %h1, %h1;
mov.b64 %rd5, {%f1, %f2}; add.rn.f32x2 %rd6, %rd5, %rd5; fma.rn.f32x2 %rd7, %rd5, %rd5, %rd6; cvt.rzi.s32.f32 %r9, %f4;
cvt.rna.tf32.f32 %r10, %f2; cvt.f64.f32 %d3, %f1; cvt.rn.f32.f64 %f2, %d1; cvt.rni.s64.f64 %rd8, %d2;
ex2.approx.ftz.bf16x2 %r11, %r5;
set.lt.f32.f32 %f4, %f1, %f2; selp.f32 %f5, %f1, %f2, %p3; cvt.rn.f32.u64 %f6, %rd8; tanh.approx.f16x2 %r12, %r6;
mov.b32 %r13, %f5; xor.b32 %r13, %r13, %r7; st.global.u32 [%rd4], %r13; st.global.f32 [%rd4+128], %f8; ret;""",
)
_seed(
    "memory",
    """
mul.wide.u32 %rd5, %r1, 16; add.s64 %rd6, %rd1, %rd5; mad.lo.u32 %r5, %r1, 16, %r4; mov.u64 %rd7, stack;
cvta.local.u64 %rd7, %rd7;
ld.global.nc.L1::no_allocate.v4.b32 {%r6, %r7, %r8, %r9}, [%rd6]; ld.global.v2.b64 {%rd8, %rd9}, [%rd6];
ld.global.b128 %q1, [%rd6];
st.shared.v4.b32 [%r5], {%r6, %r7, %r8, %r9}; ld.shared.v2.u16 {%h1, %h2}, [%r5+4]; ld.shared.s8 %r10, [%r5+1];
st.local.v2.b32 [stack+8], {%r6, %r7}; ld.local.b32 %r11, [stack+12]; st.b32 [%rd7+4], %r8; ld.b32 %r12, [%rd7+4];
cvta.shared.u64 %rd10, %rd8; mov.u64 %rd11, tile; cvta.shared.u64 %rd11, %rd11; ld.u32 %r13, [%rd11+8];
cvta.to.shared.u64 %rd12, %rd11;
ld.const.u32 %r14, [table+8]; ld.param.u32 %r15, [map+4]; mov.u64 %rd13, table; cvta.const.u64 %rd13, %rd13;
ld.u32 %r16, [%rd13];
atom.global.add.u32 %r17, [%rd2], 1; atom.shared.cas.b32 %r18, [%r4], 0, 5; atom.global.exch.b64 %rd14, [%rd2+8], %rd8;
atom.global.add.noftz.f16x2 %r19, [%rd2+16], %r6; red.global.max.s32 [%rd2+20], %r6; red.global.add.f32 [%rd2+24], %f1;
atom.shared.inc.u32 %r20, [%r4+4], 9; red.global.v2.f32.add [%rd2+32], {%f1, %f2}; prefetch.global.L2 [%rd6];
ld.volatile.global.u8 %h3, [%rd6+3]; st.global.b128 [%rd2+64], %q1; ld.acquire.gpu.global.u32 %r21, [%rd1]; membar.gl;
st.global.u8 [%rd4], %r10; st.release.gpu.global.u32 [%rd4+256], %r11; ret;""".replace(
        "red.global.v2.f32.add", "red.global.add.v2.f32"
    ),
)
_seed(
    "control",
    """
mov.u32 %r5, 0; mov.u32 %r6, %r1;
TOP: setp.ge.u32 %p1, %r5, 6; @%p1 bra OUT; mad.lo.u32 %r6, %r6, 5, %r5; and.b32 %r7, %r6, 3; add.u32 %r5, %r5, 1;
setp.eq.u32 %p2, %r7, 2; @%p2 bra TOP; choices: .branchtargets A, B, TOP, A; brx.idx %r7, choices;
A: add.u32 %r6, %r6, 7; bra.uni TOP; B: add.u32 %r6, %r6, 100; bra TOP;
OUT: vote.sync.ballot.b32 %r8, %p2, 0xffffffff; vote.sync.any.pred %p3, %p2, -1; activemask.b32 %r9;
match.any.sync.b32 %r10, %r7, 0xffffffff; match.all.sync.b32 %r11|%p4, %r7, -1; redux.sync.add.u32 %r12, %r6, -1;
shfl.sync.bfly.b32 %r13|%p5, %r6, 9, 31, 0xffffffff; shfl.sync.idx.b32 %r14, %r6, %r1, 0x1c1f, -1;
elect.sync %r15|%p6, -1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r6; call.uni (b), twice, (a); ld.param.b32 %r6, [b]; }
@%p6 bra SAY; bra.uni SAID;
SAY: st.local.u32 [stack], %r6; st.local.f64 [stack+8], 0d3FF8000000000000; mov.u64 %rd5, text; mov.u64 %rd6, stack;
{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd5; st.param.b64 [b], %rd6;
call.uni (c), vprintf, (a, b);
ld.param.b32 %r16, [c]; }
SAID: bar.warp.sync 0xffffffff; setp.gt.u32 %p7, %r1, 60; @%p7 trap; @%p7 exit; st.global.u32 [%rd4], %r6;
nanosleep.u32 20;
mov.u32 %r17, %clock; mov.u64 %rd7, %globaltimer; mov.u32 %r18, %laneid; mov.u32 %r19, %nsmid; ret;""",
)
_seed(
    "barriers",
    """
mapa.shared::cluster.u32 %r5, %r4, 1; mov.u32 %r6, %cluster_ctarank; xor.b32 %r7, %r6, 1;
mapa.shared::cluster.u32 %r8, %r4, %r7;
mad.lo.u32 %r9, %r1, 4, %r8; bar.sync 0; st.shared::cluster.u32 [%r9], %r1; barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned; mad.lo.u32 %r10, %r1, 4, %r4; ld.shared.u32 %r11, [%r10];
getctarank.shared::cluster.u32 %r12, %r9;
setp.lt.u32 %p2, %r1, 32; @%p2 bra FIRST; bar.arrive 1, 64; bra.uni MEET; FIRST: bar.sync 1, 64;
MEET: barrier.sync.aligned 2, 64; bar.red.popc.u32 %r13, 3, %p2; barrier.red.or.pred %p3, 4, %p2;
@%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r14, %r3, %r7; @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r3], 12;
add.u32 %r15, %r8, 512; setp.eq.u32 %p4, %r1, 0;
@%p4 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r15], {%r1, %r6}, [%r14];
@%p4 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r15+16], %r6, [%r14];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r3], 0; @!%p5 bra W;
atom.shared::cluster.add.u32 %r16, [%r8+600], 1; ld.shared::cluster.u32 %r17, [%r8+512];
mov.u32 %r18, %cluster_nctarank;
barrier.cluster.arrive; barrier.cluster.wait; add.u32 %r11, %r11, %r13; st.global.u32 [%rd4], %r11; ret;""",
    block=64,
    cluster=2,
)
_seed(
    "mbarriers",
    """
@%p1 mbarrier.init.shared.b64 [%r3], 32; @%p1 mbarrier.init.shared::cta.b64 [%r3+8], 2; bar.sync 0;
mbarrier.arrive.shared.b64 %rd5, [%r3]; W1: mbarrier.test_wait.shared.b64 %p2, [%r3], %rd5; @!%p2 bra W1;
@!%p1 bra NEXT; mbarrier.arrive.shared.b64 %rd6, [%r3+8], 1; mbarrier.expect_tx.relaxed.cta.shared.b64 [%r3+8], 64;
mbarrier.complete_tx.relaxed.cta.shared.b64 [%r3+8], 64; mbarrier.arrive.noComplete.shared.b64 %rd7, [%r3], 3;
mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd8, [%r3+8], 16; mbarrier.complete_tx.shared.b64 [%r3+8], 16;
mbarrier.pending_count.b64 %r5, %rd7; mbarrier.arrive_drop.shared.b64 %rd9, [%r3+8];
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+8];
NEXT: W2: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r3+8], 1, 100; @!%p3 bra W2;
mbarrier.test_wait.parity.shared.b64 %p4, [%r3+8], 1; bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%r3];
ld.shared.u64 %rd10, [%r3];
st.global.u32 [%rd4], %r5; ret;""",
)
_seed(
    "copies",
    """
mad.lo.u32 %r5, %r1, 16, %r4; mul.wide.u32 %rd5, %r1, 16; add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd2, 1024;
cp.async.cg.shared.global [%r5], [%rd6], 16; cp.async.ca.shared.global [%r5+1024], [%rd6], 8, 4; cp.async.commit_group;
cp.async.ca.shared.global.L2::128B [%r5+2048], [%rd6], 4; cp.async.wait_group 1; cp.async.wait_all;
@%p1 mbarrier.init.shared.b64 [%r3], 32; @%p1 mbarrier.init.shared.b64 [%r3+8], 1; bar.sync 0;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r3]; W0: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra W0;
@!%p1 bra REST; mbarrier.arrive.expect_tx.shared.b64 _, [%r3+8], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r3+8];
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4+256], [%r4+512], 128, [%r3+8];
REST: W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r3+8], 0, 5000; @!%p3 bra W1;
@!%p1 bra DONE; st.bulk.weak.shared::cta [%r4+4096], 64, 0; fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%rd7], [%r4], 128; cp.async.bulk.prefetch.L2.global [%rd1], 64;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd7], [%r4], 64;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd7+256], [%r4+64], 32; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
DONE: ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd4], %r6; ret;""",
)
_seed(
    "tensors",
    """
mov.u32 %r6, %cluster_ctarank; add.u32 %r7, %r4, 1024; mov.b16 %h1, 3; @%p1 mbarrier.init.shared.b64 [%r3], 1;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait; prefetch.tensormap [%rd3];
@!%p1 bra REST; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1536; setp.eq.u32 %p2, %r6, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {0, 1}], [%r3];
@%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r7],
[%rd3, {4, 2}], [%r3], %h1;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r4+2048], [%rd3, {-4, 62}],
[%r3], %rd5;
REST: W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0, 5000; @!%p3 bra W1;
ld.param.v4.b32 {%r8, %r9, %r10, %r11}, [map]; ld.param.v4.b32 {%r12, %r13, %r14, %r15}, [map+16];
ld.param.v4.b32 {%r16, %r17, %r18, %r19}, [map+32];
ld.param.v4.b32 {%r20, %r21, %r22, %r23}, [map+48]; st.shared.v4.b32 [%r4+4096], {%r8, %r9, %r10, %r11};
st.shared.v4.b32 [%r4+4112], {%r12, %r13, %r14, %r15};
st.shared.v4.b32 [%r4+4128], {%r16, %r17, %r18, %r19}; st.shared.v4.b32 [%r4+4144], {%r20, %r21, %r22, %r23};
bar.sync 0;
@%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4+4096], %rd2;
@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r4+4096], 1, 4;
@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4+4096], 1, 8;
@%p1 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r4+4096], 2;
@%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r4+4096], 0, 256;
@%p1 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r4+4096], 1;
bar.sync 0; add.s64 %rd7, %rd2, 8192;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd7], [%r4+4096], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128; @!%p1 bra DONE;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd7, {0, 3}], [%r4];
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd7, {4, 4}], [%r7];
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd3, {0, 0}];
mov.u64 %rd8, 0; st.global.u64 [%rd7], %rd8;
DONE: barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r5, [%r4+1024]; st.global.u32 [%rd4], %r5; ret;""",
    cluster=2,
)
_seed(
    "pixels",
    """
@%p1 mbarrier.init.shared.b64 [%r3], 1; mov.u32 %r5, -1; mov.u32 %r6, 0; mov.b16 %h1, 1; mov.b16 %h2, 2; bar.sync 0;
@!%p1 bra REST; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1024;
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r4],
[%rd3, {0, %r5, -1, 0}], [%r3],
{%h1, %h2};
cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r4+1024],
[%rd3, {8, 2, %r6, 1}], [%r3],
{0, 1};
REST: W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0, 5000; @!%p3 bra W1; @!%p1 bra DONE;
cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%rd3, {0, 0, 0, 0}], {0, 0};
@%p4 cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd3, {0, 0, 0, 1}], [%r4];
@%p4 cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group [%rd3, {8, 1, 1, 0}], [%r4+512];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE: ld.shared.u32 %r7, [%r4+1028]; st.global.u32 [%rd4], %r7; ret;""",
)
_seed(
    "slices",
    """
@%p1 mbarrier.init.shared.b64 [%r3], 1; mov.u32 %r5, 3; bar.sync 0; @!%p1 bra REST;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512; fence.proxy.async.shared::cta;
cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {4, 1, 0}], [%r3];
cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%r4+1024], [%rd3, {12, %r5, -1}], [%r3];
REST: W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0, 5000; @!%p3 bra W1; @!%p1 bra DONE;
cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd3, {0, 2, 1}], [%r4];
cp.reduce.async.bulk.tensor.3d.global.shared::cta.xor.tile.bulk_group [%rd3, {12, %r5, 2}], [%r4+1024];
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
DONE: ld.shared.u32 %r7, [%r4+1028]; st.global.u32 [%rd4], %r7; ret;""",
)
_seed(
    "matrices",
    """
mad.lo.u32 %r5, %r1, 16, %r4; st.shared.v4.b32 [%r5], {%r1, %r2, %r3, %r1}; bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r5];
ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r10, %r11}, [%r5];
stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r6, %r7};
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r12, %r13}, [%r5];
ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r14}, [%r5];
stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r5], {%r14};
movmatrix.sync.aligned.m8n8.trans.b16 %r15, %r6;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r6, %r7, %r8, %r9}, {%r10, %r11}, {%f1,
%f2, %f3, %f4};
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r6, %r7, %r8, %r9}, {%r10, %r11}, {%f1,
%f2, %f3, %f4};
mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r20, %r21, %r22, %r23}, {%r6, %r7, %r8, %r9}, {%r10,
%r11}, {%r1, %r1, %r1, %r1};
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f5, %f6, %f7, %f8}, {%r6, %r7, %r8, %r9}, {%r10, %r11}, {%f1,
%f2, %f3, %f4};
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r6, %r7, %r8, %r9},
{%r10, %r11, %r12, %r13}, {%f1, %f2, %f3, %f4}, 0x44444444, 0x0;
mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc {%r24, %r25}, {%r6}, {%r10}, {%r1, %r1};
mov.b32 %r30, %f1; xor.b32 %r30, %r30, %r20; st.global.u32 [%rd4], %r30; ret;""",
)
_seed(
    "warpgroup",
    """
mad.lo.u32 %r5, %r1, 64, %r4; and.b32 %r5, %r5, 0xfff0; add.u32 %r5, %r5, 0; mov.u32 %r6, 0x3c003c00;
st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6}; fence.proxy.async.shared::cta; bar.sync 0; setp.ne.b32 %p2, %r2, 0;
shr.u32 %r15, %r4, 4; and.b32 %r15, %r15, 0x3fff; cvt.u64.u32 %rd5, %r15; or.b64 %rd5, %rd5, 68720001024;
add.s64 %rd6, %rd5, 128;
mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0; mov.b32 %f4, 0; mov.u32 %r20, 0; mov.u32 %r21, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd5, %rd6, %p2, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f5, %f6, %f7, %f8}, {%r6, %r6, %r6, %r6}, %rd6, 1, -1, 1, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r20, %r21}, %rd5, %rd6, %p2, 1, -1, 1, 1;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2, %f3, %f4}, %rd5, %rd6, %p2, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r22, %r23, %r24, %r25}, %rd5, %rd6, %p2;
wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f9, %f10, %f11, %f8}, {%r6, %r6, %r6, %r6}, %rd6, 0, 1, 1;
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f5, %f6, %f7, %f8}, %rd5, %rd6, 0x44444444, 0, %p2, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; setmaxnreg.inc.sync.aligned.u32 208;
mov.b32 %r30, %f1; xor.b32 %r30, %r30, %r22; st.global.u32 [%rd4], %r30; ret;""",
    block=128,
)
_TENSOR_HEAD = """
shr.u32 %r5, %r1, 5; setp.eq.u32 %p2, %r5, 0; @!%p2 bra A1;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3+16], 128;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; A1: @%p1 mbarrier.init.shared.b64 [%r3], 1;
mad.lo.u32 %r6, %r1, 64, %r4; and.b32 %r6, %r6, 0xfff0; mov.u32 %r7, 0x3c003800;
st.shared.v4.b32 [%r6], {%r7, %r7, %r7, %r7}; bar.sync 0;
tcgen05.fence::after_thread_sync; ld.shared.u32 %r8, [%r3+16]; shl.b32 %r9, %r5, 21; add.u32 %r9, %r8, %r9;
"""
_TENSOR_TAIL = """
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];
REST: W1: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0, 5000; @!%p4 bra W1; tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r10, %r11, %r12, %r13}, [%r9];
tcgen05.ld.sync.aligned.16x64b.x2.b32 {%r14, %r15}, [%r9];
tcgen05.ld.sync.aligned.16x32bx2.x2.pack::16b.b32 {%r16, %r17}, [%r9], 2;
tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r18, %r19, %r20, %r21}, [%r9+8];
tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; st.global.u32 [%rd4], %r10;
@!%p2 bra DONE; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 128; DONE: ret;"""
_seed(
    "tensor memory",
    _TENSOR_HEAD
    + """tcgen05.st.sync.aligned.32x32b.x4.b32 [%r9], {%r1, %r2, %r3, %r4};
tcgen05.st.sync.aligned.16x128b.x1.b32 [%r9+4], {%r1, %r2};
tcgen05.st.sync.aligned.16x64b.x1.unpack::16b.b32 [%r9+16], {%r7}; tcgen05.wait::st.sync.aligned; bar.sync 0;
@!%p1 bra REST;
shr.u32 %r15, %r4, 4; cvt.u64.u32 %rd5, %r15; or.b64 %rd5, %rd5, 0x4000400000000000; or.b64 %rd5, %rd5, 0x400010000;
add.s64 %rd6, %rd5, 128;
tcgen05.cp.cta_group::1.128x256b [%r8+32], %rd5; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r8+64], %rd5;
tcgen05.cp.cta_group::1.64x128b.warpx2::02_13 [%r8+64], %rd5; tcgen05.cp.cta_group::1.4x256b [%r8+96], %rd6;
mov.u32 %r16, 136316048; setp.ne.b32 %p3, %r2, 0;
tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd5, %rd6, %r16, {0, 0, 0, 0}, %p3;
tcgen05.mma.cta_group::1.kind::f16 [%r8], [%r8+64], %rd6, %r16, 1;
"""
    + _TENSOR_TAIL,
    block=128,
)
_seed(
    "scaled products",
    _TENSOR_HEAD
    + """@!%p1 bra REST; shr.u32 %r15, %r4, 4; cvt.u64.u32 %rd5, %r15; or.b64 %rd5, %rd5, 0x4000400000010000;
add.s64 %rd6, %rd5, 64;
mov.u32 %r16, 0x08040010; mov.u32 %r17, 0x08840480; mov.u32 %r18, 0x08840080;
tcgen05.cp.cta_group::1.32x128b.warpx4 [%r8+64], %rd5; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r8+80], %rd5;
tcgen05.mma.cta_group::1.kind::f8f6f4 [%r8], %rd5, %rd6, %r16, 0;
tcgen05.mma.cta_group::1.kind::tf32.collector::a::fill [%r8], %rd5, %rd6, 0x08040910, 0;
tcgen05.mma.cta_group::1.kind::i8 [%r8], %rd5, %rd6, 0x08040020, 0;
tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], %rd5, %rd6, 0x04100010, 0;
tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r8], %rd5, %rd6, 0x08840000, [%r8+64], [%r8+80], 0;
tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%r8], %rd5, %rd6, %r17, [%r8+64], [%r8+80], 0;
tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%r8], %rd5, %rd6, 0x08840480, [%r8+64], [%r8+80], 1;
"""
    + _TENSOR_TAIL,
    block=128,
)
_seed(
    "pairs",
    """
shr.u32 %r5, %r1, 5; setp.eq.u32 %p2, %r5, 0; mov.u32 %r6, %cluster_ctarank; @!%p2 bra A1;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3+16], 64;
tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
A1: @%p1 mbarrier.init.shared.b64 [%r3], 1; @%p1 mbarrier.init.shared.b64 [%r3+8], 1;
fence.mbarrier_init.release.cluster; mad.lo.u32 %r7, %r1, 64, %r4;
and.b32 %r7, %r7, 0xfff0; st.shared.v4.b32 [%r7], {0x3c003800, %r1, %r2, %r3}; barrier.cluster.arrive;
barrier.cluster.wait;
ld.shared.u32 %r8, [%r3+16]; setp.eq.u32 %p3, %r6, 0; and.pred %p3, %p3, %p1; mov.b16 %h1, 3; @!%p1 bra REST;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3+8], 512; and.b32 %r9, %r3, 0xfeffffff;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r4+4096], [%rd3, {0,
1}], [%r3+8];
@!%p3 bra REST; shr.u32 %r15, %r4, 4; cvt.u64.u32 %rd5, %r15; or.b64 %rd5, %rd5, 0x4000400000010000;
add.s64 %rd6, %rd5, 128;
tcgen05.cp.cta_group::2.128x256b [%r8+32], %rd5; tcgen05.mma.cta_group::2.kind::f16 [%r8], %rd5, %rd6, 0x10040010, 0;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r3], %h1;
REST: W1: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0, 5000; @!%p4 bra W1;
W2: mbarrier.try_wait.parity.shared.b64 %p4, [%r3+8], 0, 5000; @!%p4 bra W2;
shl.b32 %r9, %r5, 21; add.u32 %r9, %r8, %r9; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%r9];
st.global.u32 [%rd4], %r10;
barrier.cluster.arrive; barrier.cluster.wait; @!%p2 bra DONE; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 64;
DONE: ret;""",
    block=128,
    cluster=2,
)
_seed(
    "work queue",
    """
@%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0; griddepcontrol.wait; griddepcontrol.launch_dependents;
@!%p1 bra REST;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r4], [%r3];
REST: W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0, 5000; @!%p3 bra W1; ld.shared.b128 %q1, [%r4];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1; @!%p2 bra DONE;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r5, %r6, %r7, _}, %q1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r8, %q1;
createpolicy.fractional.L2::evict_last.b64 %rd5, 0f3F800000;
DONE: st.global.u32 [%rd4], %r5; ret;""",
)
