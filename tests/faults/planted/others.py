"""Faults of block-scaled GEMMs, of wgmma and of the attention kernel."""

from __future__ import annotations

from tests.faults.fault import VALUES, Fault, faults_of
from tests.faults.plant import change, double, drop, insert, move

WAIT, BAR = r"mbarrier\.try_wait", r"\tbar\.sync"
ARRIVE = r"mbarrier\.arrive\.shared"
CP, MMA, TC_COMMIT = r"tcgen05\.cp", r"tcgen05\.mma", r"tcgen05\.commit"
LOAD = r"cp\.async\.bulk\.tensor"

NVFP4 = faults_of(
    "nvfp4",
    ("scales-not-copied", "initcheck", "uninitialised tensor memory", "the scales of A never come to tensor memory",
     (drop(CP), drop(CP))),
    ("scales-not-loaded", "initcheck", "uninitialised shared memory", "the scales of B are neither loaded nor expected",
     (drop(LOAD, 3), change(r"mov\.b32 \t%r115, 18432", "18432", "17408"))),
    ("bytes-without-scales", "synccheck", "wrong tx bytes", "the bytes of the scales are not expected",
     (change(r"mov\.b32 \t%r115, 18432", "18432", "16384"),)),
    ("scales-past-allocation", "tmemcheck", "columns not allocated", "scales are copied behind the allocated columns",
     (insert("before", CP, "add.s32 %r16, %r5, 256;"),)),
    ("scales-over-accumulator", "initcheck", "uninitialised tensor memory", "scales are copied over the accumulator",
     (change(CP, r"\[%r16\]", "[%r5]"),)),
    ("no-operand-wait", "racecheck", "wait missing", "scales are copied before TMA has brought them", (drop(WAIT, 2),)),
    ("no-stage-wait", "racecheck", "wait missing", "TMA overwrites scales that are being copied", (drop(WAIT),)),
    ("accumulates-on-nothing", "initcheck", "uninitialised accumulator", "the first product adds to what was there",
     (change(r"setp\.ne\.b32 \t%p30, %r374, 0", "setp.ne", "setp.eq"),)),
    ("no-result-commit", "synccheck", "commit missing", "nobody says that the accumulator is complete",
     (drop(TC_COMMIT, 1),)),
)  # fmt: skip

MXFP8 = faults_of(
    "mxfp8",
    ("scales-not-copied", "initcheck", "uninitialised tensor memory", "the scales of A never come to tensor memory",
     (drop(CP),)),
    ("commit-before-products", "racecheck", "commit too early", "a stage is given back before the products read it",
     (move(TC_COMMIT, 0, "before", MMA),)),
    ("no-result-wait", "racecheck", "wait missing", "the accumulator is read before the products are in it",
     (drop(WAIT, 3),)),
    ("accumulator-not-allocated", "tmemcheck", "columns not allocated",
     "half of the columns that are used are allocated",
     (change(r"mov\.b32 \t%r\d+, 256;", "256;", "128;", 0), change(r"mov\.b32 \t%r\d+, 256;", "256;", "128;", 0))),
)  # fmt: skip

WGMMA, FENCE = r"wgmma\.mma_async", r"wgmma\.fence"
COMMIT, GROUP = r"wgmma\.commit_group", r"wgmma\.wait_group"
WGMMA_FAULTS = faults_of(
    "wgmma",
    ("no-fence", "racecheck", "wgmma fence missing", "accumulators are set and multiplied into without a fence",
     (drop(FENCE),)),
    ("no-commit", "racecheck", "commit missing", "products belong to no group, waits wait for nothing",
     (drop(COMMIT),)),
    ("no-wait-in-loop", "racecheck", "wait missing", "a stage is given back before the products have read it",
     (drop(GROUP),)),
    ("wait-off-by-one", "racecheck", "wait off by one", "one group more may be in flight than stages allow",
     (change(GROUP, "1;", "2;"),)),
    ("no-wait-at-end", "racecheck", "wait missing", "accumulators are read while products write them",
     (drop(GROUP, 1),)),
    ("wait-one-at-end", "racecheck", "wait off by one", "accumulators are read while the last products write them",
     (change(GROUP, "0;", "1;", 1),)),
    ("no-operand-wait", "racecheck", "wait missing", "operands are multiplied before TMA has brought them",
     (drop(WAIT, 1),)),
    ("no-stage-wait", "racecheck", "wait missing", "TMA overwrites operands that are being multiplied", (drop(WAIT),)),
    ("release-current-stage", "racecheck", "wrong stage", "the stage of the products just issued is given back",
     (drop(r"@%p7 bra"), change(ARRIVE, r"\[%r17\]", "[%r52+24]"))),
    ("no-release", "synccheck", "arrive missing", "stages are never given back", (drop(ARRIVE),)),
    ("accumulators-not-set", "initcheck", "uninitialised accumulator", "products add to registers that were never set",
     (drop(r"mov\.b32 \t%r98, %r97"),)),
    ("bytes-too-few", "synccheck", "wrong tx bytes", "the bytes of B are not expected",
     (change(r"mov\.b32 \t%r78, 12288", "12288", "8192"),)),
    ("a-warp-is-missing", "synccheck", "collective lanes", "one warp of the warpgroup does not multiply",
     (insert("before", FENCE, "setp.eq.b32 %p6, %r3, 2;\n@%p6 bra $L__BB0_16;"),)),
    ("write-past-tensor", "memcheck", "out of bounds", "rows behind the last one are written",
     (change(r"or\.pred \t%p12", r"or\.pred \t%p12, %p10", "and.pred \t%p12, %p11"),)),
)  # fmt: skip

LD, WAIT_LD, WAIT_ST = r"tcgen05\.ld", r"tcgen05\.wait::ld", r"tcgen05\.wait::st"
BEFORE, AFTER = r"tcgen05\.fence::before", r"tcgen05\.fence::after"
BULK_WAIT = r"cp\.async\.bulk\.wait_group"
FMHA = faults_of(
    "fmha",
    ("no-q-wait", "racecheck", "wait missing", "Q is multiplied before TMA has brought it", (drop(WAIT, 3),)),
    ("no-v-wait", "racecheck", "wait missing", "V is multiplied before TMA has brought it", (drop(WAIT, 6),)),
    ("no-p-wait", "racecheck", "wait missing", "P is multiplied before the softmax warps have stored it",
     (drop(WAIT, 7),)),
    ("no-rescale-wait", "racecheck", "wait missing", "PV adds to O while it is being rescaled", (drop(WAIT, 8),)),
    ("no-s-wait", "racecheck", "wait missing", "S is loaded before the products are in it", (drop(WAIT, 9),)),
    ("no-row-wait", "initcheck", "wait missing", "row factors are read before they are written", (drop(WAIT, 12),)),
    ("no-o-wait", "racecheck", "wait missing", "O is rescaled while PV writes it", (drop(WAIT, 13),)),
    ("no-wait-st-p", "tmemcheck", "tcgen05 wait missing", "P may not be stored when the MMA warp is told",
     (drop(WAIT_ST),)),
    ("no-wait-ld-s", "tmemcheck", "tcgen05 wait missing", "scores are used before the load has happened",
     (drop(WAIT_LD),)),
    ("no-fence-p", "racecheck", "tcgen05 fence missing", "no fence between the store of P and the arrive",
     (drop(BEFORE, 1),)),
    ("no-fence-pv", "racecheck", "tcgen05 fence missing", "no fence between the wait for P and PV", (drop(AFTER, 3),)),
    ("o-over-s", "racecheck", "columns overlap", "O begins in the second stage of S",
     (change(r"add\.s32 \t%r29, %r19, 256", "256", "192"), change(r"add\.s32 \t%r231, %r19, 256", "256", "192"))),
    ("p-of-other-stage", "racecheck", "wrong stage", "PV reads P from the stage that holds the next scores",
     (change(r"and\.b32 \t%r367, %r366, 128", "128;", "128;\nxor.b32 %r367, %r367, 128;"),)),
    ("k-commit-early", "racecheck", "commit too early", "the stage of K is given back before QK reads it",
     (move(TC_COMMIT, 0, "before", MMA),)),
    ("no-proxy-fence", "racecheck", "proxy fence missing", "TMA stores what threads wrote, without fence.proxy.async",
     (drop(r"fence\.proxy\.async"),)),
    ("no-epilogue-barrier", "racecheck", "barrier missing", "TMA stores rows that other warps still write",
     (drop(BAR, 1),)),
    ("exit-before-store", "racecheck", "bulk wait missing", "the CTA ends while TMA may read its shared memory",
     (drop(BULK_WAIT),)),
    ("v-parity-wrong", "synccheck", "wrong parity", "PV waits for the phase of V that comes after",
     (change(r"and\.b32 \t%r356, %r1721, 1", "1;", "1;\nxor.b32 %r356, %r356, 1;"),)),
    ("row-arrive-twice", "synccheck", "arrive doubled", "row factors are announced twice", (double(ARRIVE),)),
)  # fmt: skip

_MUTANTS = {
    "kv_tile_pinned": (VALUES, "wrong tile", "every key tile is tile 0"),
    "tmem_round_trip": (VALUES, "wrong layout", "O is loaded in one shape and stored in another"),
    "no_rescale": (VALUES, "step missing", "O is not rescaled when a row's maximum rises"),
    "first_pv_accumulates": ("initcheck", "uninitialised accumulator", "the first PV adds to what was there"),
    "p_wrong_layout": (VALUES, "wrong layout", "P is packed in another order than PV reads it in"),
    "tail_not_masked": (VALUES, "step missing", "keys past the end take part"),
    "row_max_tile_0": (VALUES, "wrong tile", "later tiles start from the maximum of tile 0"),
    "wrong_tx_count": ("synccheck", "wrong tx bytes", "16 bytes more are expected than TMA delivers"),
    "missing_commit": ("synccheck", "commit missing", "no commit after QK"),
    "stage_never_released": ("synccheck", "arrive missing", "K and V stages are never given back"),
    "k_for_v": (VALUES, "wrong tensor", "PV multiplies K"),
}
MUTANTS = tuple(Fault("fmha", name, tool, kind, what, mutant=name) for name, (tool, kind, what) in _MUTANTS.items())
