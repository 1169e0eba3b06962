"""Faults of a TMA pipeline with mbarriers, and of clusters."""

from __future__ import annotations

from tests.faults.fault import faults_of
from tests.faults.plant import change, double, drop, insert, move

WAIT, INIT, BAR = r"mbarrier\.try_wait", r"mbarrier\.init", r"\tbar\.sync"
ARRIVE, EXPECT = r"mbarrier\.arrive\.shared", r"mbarrier\.arrive\.expect_tx"
LOAD, STORE = r"cp\.async\.bulk\.tensor.*mbarrier", r"cp\.async\.bulk\.tensor.*bulk_group"
GROUP, COMMIT = r"cp\.async\.bulk\.wait_group", r"cp\.async\.bulk\.commit_group"
PROXY, INIT_FENCE = r"fence\.proxy\.async", r"fence\.mbarrier_init"
BYTES = r"mov\.b32 \t%r51, 2048"

TMA_DOUBLE = faults_of(
    "tma_double",
    ("no-full-wait", "racecheck", "wait missing", "a stage is read without waiting for TMA", (drop(WAIT, 1),)),
    ("no-empty-wait", "racecheck", "wait missing", "TMA overwrites a stage that is being read", (drop(WAIT),)),
    ("full-parity-wrong", "racecheck", "wrong parity", "the consumers wait for the phase before",
     (change(r"and\.b32 \t%r24, %r63, 1", "and.b32 \t%r24, %r63, 1;", "not.b32 %r24, %r63;\nand.b32 %r24, %r24, 1;"),)),
    ("empty-parity-wrong", "synccheck", "wrong parity", "the producer waits for a fresh barrier's first phase",
     (change(r"not\.b32 \t%r49", "not", "mov"),)),
    ("bytes-too-many", "synccheck", "wrong tx bytes", "16 bytes more are expected than TMA delivers",
     (change(BYTES, "2048", "2064"),)),
    ("bytes-too-few", "synccheck", "wrong tx bytes", "half of the bytes are expected",
     (change(BYTES, "2048", "1024"),)),
    ("no-expect", "synccheck", "wrong tx bytes", "the producer arrives and expects nothing",
     (change(EXPECT, r"arrive\.expect_tx(.*), %r51;", r"arrive\1;"),)),
    ("expect-twice", "synccheck", "arrive doubled", "the producer arrives and expects twice", (double(EXPECT),)),
    ("no-release", "synccheck", "arrive missing", "the consumers never give a stage back", (drop(ARRIVE),)),
    ("release-twice", "synccheck", "arrive doubled", "the consumers give a stage back twice", (double(ARRIVE),)),
    ("release-before-read", "racecheck", "arrive too early", "the consumers give a stage back before they read it",
     (move(ARRIVE, 0, "before", r"ld\.shared\.b32 \t%r31"), insert("before", ARRIVE, "mov.b32 %r39, 1;"))),
    ("empty-count-too-small", "racecheck", "wrong arrival count", "an empty barrier counts half of the consumers",
     (change(r"mov\.b32 \t%r22, 128", "128", "64"),)),
    ("init-twice", "synccheck", "mbarrier init", "a barrier is initialised twice", (double(INIT),)),
    ("init-missing", "synccheck", "mbarrier init", "the second full barrier is not initialised", (drop(INIT, 2),)),
    ("no-init-fence", "synccheck", "mbarrier init", "initialised barriers are not made visible to the async proxy",
     (drop(INIT_FENCE),)),
    ("no-barrier-after-init", "synccheck", "mbarrier init", "barriers are used before thread 0 initialised them",
     (drop(BAR),)),
    ("init-by-every-warp", "synccheck", "mbarrier init", "each warp initialises the barriers",
     (change(r"setp\.ne\.b32 \t%p4, %r2, 0", r"%r2, 0;", "%r2, %r2;"),)),
    ("no-proxy-fence", "racecheck", "proxy fence missing", "TMA stores what threads wrote, without fence.proxy.async",
     (drop(PROXY),)),
    ("proxy-fence-by-one-warp", "racecheck", "proxy fence missing",
     "only the storing warp fences, before the barrier that brings it the writes of the others",
     (change(PROXY, r"\tfence", "\t@!%p8 fence"),)),
    ("no-wait-before-reuse", "racecheck", "bulk wait missing", "a stage is rewritten while TMA may read it",
     (drop(GROUP),)),
    ("wait-off-by-one", "racecheck", "wait off by one", "one store more may be in flight than stages allow",
     (change(GROUP, "1;", "2;"),)),
    ("no-commit", "racecheck", "commit missing", "stores belong to no group, waits wait for nothing", (drop(COMMIT),)),
    ("exit-before-store", "racecheck", "bulk wait missing", "the CTA ends while TMA may read its shared memory",
     (drop(GROUP, 1),)),
    ("no-barrier-before-store", "racecheck", "barrier missing", "one warp stores what the other three still write",
     (drop(BAR, 2),)),
    ("no-barrier-after-wait", "racecheck", "barrier missing", "only one warp knows that a stage is free to rewrite",
     (drop(BAR, 1),)),
    ("wrong-stage", "racecheck", "wrong stage", "every tile goes to stage 0", (change(LOAD, r"%r9\+128", "%r1+128"),)),
    ("wrong-barrier", "synccheck", "wrong barrier", "the bytes of every tile are counted on the barrier of stage 0",
     (change(LOAD, r"\[%r8\]", "[%r1]"),)),
    ("store-twice", "racecheck", "written twice", "every tile is stored twice", (double(STORE),)),
    ("store-wrong-tile", "racecheck", "written twice", "every tile is stored to the place of tile 0",
     (change(STORE, r"\{%r61,", "{%r7,"), insert("before", STORE, "mov.b32 %r7, 0;"))),
    ("named-barrier-count", "synccheck", "barrier count", "a barrier of the four consumer warps waits for five",
     (change(BAR, "128;", "160;", 1),)),
    ("destination-misaligned", "memcheck", "misaligned", "TMA writes to an address that is no multiple of 128",
     (change(LOAD, r"%r9\+128", "%r9+132"),)),
    ("source-past-shared", "memcheck", "out of bounds", "TMA stores from behind the shared memory of the CTA",
     (change(STORE, r"\+4224", "+65664"),)),
    ("load-twice", "synccheck", "wrong tx bytes", "every tile is loaded twice, its bytes are expected once",
     (double(LOAD),)),
)  # fmt: skip

CLUSTER_ARRIVE, CLUSTER_WAIT = r"barrier\.cluster\.arrive", r"barrier\.cluster\.wait"

CLUSTER_SUM = faults_of(
    "cluster_sum",
    ("no-barrier-before-read", "racecheck", "cluster barrier missing",
     "the sums of peers are read before they are written",
     (drop(CLUSTER_ARRIVE), drop(CLUSTER_WAIT))),
    ("no-barrier-before-reuse", "racecheck", "cluster barrier missing",
     "sums are overwritten before peers have read them",
     (drop(CLUSTER_ARRIVE, 1), drop(CLUSTER_WAIT, 1))),
    ("no-barrier-before-exit", "racecheck", "cluster barrier missing",
     "a CTA may end while peers read its shared memory",
     (insert("before", CLUSTER_ARRIVE, "add.s32 %r10, %r50, 1;\nsetp.eq.s32 %p1, %r10, %r4;", 1),
      insert("before", CLUSTER_ARRIVE, "@%p1 bra $L__BB0_10;", 1))),
    ("relaxed-arrive", "racecheck", "cluster barrier missing", "the arrive before the reads is relaxed",
     (change(CLUSTER_ARRIVE, r"arrive;", "arrive.relaxed;"),)),
    ("no-wait", "synccheck", "wait missing", "a CTA arrives at the cluster barrier twice without waiting",
     (drop(CLUSTER_WAIT),)),
    ("no-arrive-in-one-cta", "synccheck", "arrive missing", "CTA 3 does not arrive at the cluster barrier",
     (insert("before", CLUSTER_ARRIVE, "setp.ne.b32 %p1, %r3, 3;"),
      change(CLUSTER_ARRIVE, r"\tbarrier", "\t@%p1 barrier"))),
    ("no-such-rank", "memcheck", "out of bounds", "shared memory of a fifth CTA is read",
     (change(r"mapa.*%r13, 3", "3;", "4;"),)),
    ("two-ctas-one-row", "racecheck", "written twice", "ranks 0 and 1 both write every row of rank 0 and 1",
     (change(r"setp\.ne\.b32 \t%p6, %r49, %r3", "setp.ne.b32 \t%p6, %r49, %r3;",
             "xor.b32 %r10, %r49, %r3;\nsetp.gt.u32 %p6, %r10, 1;"),)),
)  # fmt: skip

SEND = r"st\.async"
CLUSTER_PUSH = faults_of(
    "cluster_push",
    ("no-cluster-barrier", "synccheck", "cluster barrier missing", "bytes are sent to barriers that may not exist yet",
     (drop(CLUSTER_ARRIVE), drop(CLUSTER_WAIT))),
    ("no-init-fence", "synccheck", "mbarrier init", "the initialised barrier is not made visible to the cluster",
     (drop(INIT_FENCE),)),
    ("bytes-too-few", "synccheck", "wrong tx bytes", "half of the bytes are expected",
     (change(r"shl\.b32 \t%r7, %r4, 4", "4;", "3;"),)),
    ("no-wait", "racecheck", "wait missing", "rows are read before they have come", (drop(WAIT),)),
    ("wrong-peer", "synccheck", "wrong barrier", "bytes sent to CTA 3 are counted by CTA 2",
     (change(r"mapa.*%r24, %r25, 3", "3;", "2;"),)),
    ("one-row-not-sent", "synccheck", "wrong tx bytes", "nothing is sent to CTA 3", (drop(SEND, 3),)),
    ("place-taken-twice", "racecheck", "written twice", "every CTA sends to the place of CTA 0",
     (change(r"or\.b32 \t%r10, %r9, %r8", "%r9, %r8", "%r8, %r8"),)),
    ("parity-wrong", "racecheck", "wrong parity", "the phase before the first is waited for",
     (change(WAIT, r", 0, 10000000", ", 1, 10000000"),)),
)  # fmt: skip
