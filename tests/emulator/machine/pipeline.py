"""A small pipeline of bulk copies, right or with one fault that only some schedules show.

Warp 0 copies tiles of 16 x 32 words into two stages; warps 1 and 2 fold every tile into a word per lane, row by row. A
stage may be filled again when both have given it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import emulator
from tests.emulator.machine.arena import Arena

TILES = 6
DECLARATIONS = ".shared .align 16 .b32 tile[1024]; .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];"

BODY = f"""
.loc 1 10 0
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;
mov.u32 %r10, tile; mov.u32 %r11, full; mov.u32 %r12, empty;
@%p1 mbarrier.init.shared.b64 [%r11], 1; @%p1 mbarrier.init.shared.b64 [%r11+8], 1;
@%p1 mbarrier.init.shared.b64 [%r12], COUNT; @%p1 mbarrier.init.shared.b64 [%r12+8], COUNT;
bar.sync 0;
mov.u32 %r4, 0; mov.u32 %r5, 0; setp.ne.u32 %p3, %r3, 0; @%p3 bra TAKE;
@!%p2 bra DONE;
GIVE:
and.b32 %r6, %r4, 1; shl.b32 %r7, %r6, 3; add.u32 %r13, %r11, %r7; add.u32 %r14, %r12, %r7;
shr.u32 %r8, %r4, 1; not.b32 %r8, %r8; and.b32 %r8, %r8, 1;
.loc 1 20 0
W1: mbarrier.try_wait.parity.shared.b64 %p4, [%r14], %r8; @!%p4 bra W1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r13], 2048;
shl.b32 %r9, %r6, 11; add.u32 %r15, %r10, %r9; mul.wide.u32 %rd5, %r4, 2048; add.s64 %rd6, %rd1, %rd5;
.loc 1 23 0
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r15], [%rd6], 2048, [%r13];
add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, {TILES}; @%p5 bra GIVE; bra DONE;
TAKE:
and.b32 %r6, %r4, 1; shl.b32 %r7, %r6, 3; add.u32 %r13, %r11, %r7; add.u32 %r14, %r12, %r7;
shr.u32 %r8, %r4, 1; and.b32 %r8, %r8, 1;
.loc 1 30 0
W2: mbarrier.try_wait.parity.shared.b64 %p4, [%r13], %r8; @!%p4 bra W2;
shl.b32 %r9, %r6, 11; add.u32 %r15, %r10, %r9; shl.b32 %r16, %r2, 2; add.u32 %r15, %r15, %r16;
mov.u32 %r19, 0;
.loc 1 32 0
ROW: ld.shared.u32 %r17, [%r15]; mad.lo.u32 %r5, %r5, 3, %r17;
add.u32 %r15, %r15, 128; add.u32 %r19, %r19, 1; setp.lt.u32 %p7, %r19, 16; @%p7 bra ROW;
bar.warp.sync 0xffffffff;
@GIVES mbarrier.arrive.shared.b64 _, [%r14];
add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, {TILES}; @%p5 bra TAKE;
sub.u32 %r18, %r1, 32; mul.wide.u32 %rd7, %r18, 4; add.s64 %rd8, %rd2, %rd7; st.global.u32 [%rd8], %r5;
DONE: ret;
"""

RIGHT = BODY.replace("COUNT", "2").replace("GIVES", "%p2")
"""Both consumers give a stage back."""
ONE_WAITS = (
    BODY.replace("COUNT", "1")
    .replace("GIVES", "%p6")
    .replace("TAKE:\n", "setp.eq.u32 %p6, %r1, 32; bra TAKE;\nTAKE:\n", 1)
    .replace("@%p3 bra TAKE", "@%p3 bra CONSUMER")
    .replace("setp.eq.u32 %p6", "CONSUMER: setp.eq.u32 %p6")
)
"""The producer waits for warp 1 only: as long as warp 2 keeps up, nobody sees it."""
_GIVE = "@%p2 mbarrier.arrive.shared.b64 _, [%r14];\n"
GIVEN_EARLY = RIGHT.replace(_GIVE, "").replace("mov.u32 %r19, 0;\n", f"mov.u32 %r19, 0;\n{_GIVE}")
"""The consumers give a stage back before they have read it: who is not stopped in between never sees it."""


def words() -> np.ndarray:
    """The tiles, uint32 [TILES, 16, 32]."""
    return np.random.default_rng(7).integers(0, 1 << 32, (TILES, 16, 32), np.uint32)


def expected() -> np.ndarray:
    """What both consumers find, uint32 [2, 32]."""
    folded = np.zeros(32, np.uint32)
    for row in words().reshape(-1, 32):
        folded = folded * np.uint32(3) + row
    return np.stack([folded, folded])


def run(body: str, **settings: Any) -> tuple[np.ndarray, emulator.Launch]:
    """Run a pipeline; what the consumers found, and the record of the launch."""
    out = np.zeros((2, 32), np.uint32)
    launch = Arena(source=words(), out=out).run(body, declarations=DECLARATIONS, block=96, **settings)
    return out, launch
