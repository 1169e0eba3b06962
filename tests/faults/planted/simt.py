"""Faults of plain threads: shuffles, shared memory, warp and named barriers, cp.async."""

from __future__ import annotations

from tests.faults.fault import faults_of
from tests.faults.plant import change, double, drop, insert

BAR, SHUFFLE, WARP_BAR = r"\tbar\.sync", r"shfl\.sync\.bfly", r"bar\.warp\.sync"
COMMIT, COPY, GROUP = r"cp\.async\.commit_group", r"cp\.async\.ca", r"cp\.async\.wait_group"

ROW_SUM = faults_of(
    "row_sum",
    ("no-barrier-before-read", "racecheck", "barrier missing", "partial sums are read without a barrier", (drop(BAR),)),
    ("no-barrier-before-reuse", "racecheck", "barrier missing", "partial sums are overwritten before all are read",
     (drop(BAR, 1),)),
    ("barrier-count-too-large", "synccheck", "barrier count", "a barrier of 128 threads waits for 160",
     (change(BAR, "0;", "0, 160;"),)),
    ("barrier-count-too-small", "synccheck", "barrier count", "a barrier of 128 threads waits for 96",
     (change(BAR, "0;", "0, 96;"),)),
    ("shuffle-mask-lacks-a-lane", "synccheck", "collective lanes", "lane 31 shuffles with a mask that lacks it",
     (change(SHUFFLE, "-1;", "0x7fffffff;"),)),
    ("lane-misses-the-shuffle", "synccheck", "collective lanes", "lane 0 does not execute a shuffle that names it",
     (change(SHUFFLE, r"\tshfl", "\t@%p9 shfl"),)),
    ("read-past-tensor", "memcheck", "out of bounds", "row m of x is read, its sum is not used",
     (change(r"setp\.le\.s32 \t%p6", "le", "lt"),)),
    ("write-past-tensor", "memcheck", "out of bounds", "y[m] is written",
     (change(r"setp\.le\.s32 \t%p12", "le", "lt"),)),
    ("read-past-shared", "memcheck", "out of bounds", "a partial sum is read past the end of shared memory",
     (change(r"ld\.shared\.b32 .*\+96\]", r"\+96", "+1120"),)),
    ("misaligned-load", "memcheck", "misaligned", "a float is loaded from an address that is no multiple of 4",
     (change(r"ld\.global\.b32", r"\]", "+2]"),)),
    ("row-not-summed", "initcheck", "uninitialised shared memory", "the last row of a tile is never summed",
     (change(r"setp\.ne\.b32 \t%p10", "8;", "7;"),)),
    ("register-not-set", "initcheck", "uninitialised register", "the sum does not begin with zero",
     (drop(r"mov\.b32 \t%r44, 0f00000000", 1), drop(r"mov\.b32 \t%r44, 0f00000000"))),
    ("two-warps-one-element", "racecheck", "written twice", "two warps put different sums into one element",
     (change(r"shr\.u32 \t%r6, %r2, 2", "2;", "3;"),)),
    ("two-ctas-one-row", "racecheck", "written twice", "both CTAs compute the tiles from the second on",
     (change(r"add\.s32 \t%r41, %r41, 2", "2;", "1;"),)),
    ("barrier-twice-for-one-warp", "racecheck", "barrier doubled", "warp 0 passes a barrier once more than the others",
     (insert("before", BAR, "setp.lt.u32 %p1, %r2, 32;\n@%p1 bar.sync 0;"),)),
)  # fmt: skip

WARP_REVERSE = faults_of(
    "warp_reverse",
    ("no-warp-sync-before-read", "racecheck", "warp sync missing", "lanes read what other lanes wrote without a sync",
     (drop(WARP_BAR),)),
    ("no-warp-sync-before-reuse", "racecheck", "warp sync missing", "lanes overwrite what other lanes still read",
     (drop(WARP_BAR, 1),)),
    ("sync-mask-too-small", "synccheck", "collective lanes", "lanes 16 to 31 sync with a mask that lacks them",
     (change(WARP_BAR, "-1;", "0xffff;"),)),
    ("lanes-skip-the-sync", "synccheck", "collective lanes", "lane 0 does not come to a sync that names it",
     (insert("before", WARP_BAR, "setp.ne.b32 %p1, %r2, 0;"), change(WARP_BAR, r"\tbar", "\t@%p1 bar"))),
    ("index-past-shared", "memcheck", "out of bounds", "elements are reversed within all that is left instead of 32",
     (change(r"min\.s32 \t%r14, %r6, 32", "%r6, 32", "%r6, 1024"),)),
)  # fmt: skip

ASYNC_COPIES = faults_of(
    "async_copies",
    ("no-wait-group", "racecheck", "wait missing", "a stage is read without waiting for its group", (drop(GROUP),)),
    ("wait-group-off-by-one", "racecheck", "wait off by one", "one group more may be in flight than stages allow",
     (change(GROUP, "1;", "2;"),)),
    ("no-commit", "racecheck", "commit missing", "copies of the loop belong to no group", (drop(COMMIT, 2),)),
    ("no-barrier", "racecheck", "barrier missing", "threads read what the copies of others bring", (drop(BAR),)),
    ("first-stage-wrong", "racecheck", "wrong stage", "tile i + 2 goes to the stage of tile i + 1",
     (change(r"mov\.b32 \t%r44, 2", "2;", "1;"),)),
    ("copy-past-tensor", "memcheck", "out of bounds", "16 bytes behind x are copied and not used",
     (change(r"setp\.le\.s32 \t%p7", "le", "lt"),)),
    ("copy-misaligned", "memcheck", "misaligned", "16 bytes are copied from an address that is a multiple of 4",
     (change(COPY, r"\[%rd10\]", "[%rd10+4]", 2),)),
)  # fmt: skip

ARRIVE = r"bar\.arrive"
HANDOVER = faults_of(
    "handover",
    ("no-arrive-full", "synccheck", "arrive missing", "the producers never say that a stage is full",
     (drop(ARRIVE, 1),)),
    ("arrive-full-twice", "synccheck", "arrive doubled", "the producers arrive twice for each stage",
     (double(ARRIVE, 1),)),
    ("full-count-too-large", "synccheck", "barrier count", "the consumers wait for 160 threads, the producers for 128",
     (change(BAR, "128;", "160;"),)),
    ("no-wait-full", "racecheck", "wait missing", "the consumers arrive instead of waiting",
     (change(BAR, r"bar\.sync", "bar.arrive"),)),
    ("no-wait-empty", "racecheck", "wait missing", "the producers arrive instead of waiting for an empty stage",
     (change(BAR, r"bar\.sync", "bar.arrive", 1),)),
    ("wrong-barrier", "synccheck", "wrong barrier", "the consumers release the barrier with the next number",
     (change(r"add\.s32 \t%r24, %r8, 3", "3;", "4;"),)),
    ("wrong-stage", "racecheck", "wrong stage", "the consumers read the stage that is being filled",
     (change(r"shl\.b32 \t%r18, %r8, 6", "shl.b32 \t%r18, %r8, 6;", "xor.b32 %r18, %r8, 1;\nshl.b32 %r18, %r18, 6;"),)),
)  # fmt: skip
