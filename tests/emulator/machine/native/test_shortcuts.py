"""Native code in front of handlers does exactly what they do: results, faults and who is told, on both engines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from emulator.errors import EmulatorError
from tests.emulator.machine.arena import MY_WORD, Arena

DECLARATIONS = ".shared .align 16 .b8 tile[512]; .shared .align 8 .b64 gate; .shared .align 4 .b32 home;"
PLACE = "mov.u32 %r5, tile; mov.u32 %r6, gate; "
INIT = "setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r6], 40; bar.sync 0; "
TENSOR = (
    "mov.u32 %r7, home; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 64; ld.shared.u32 %r8, [%r7]; "
)
FREE = " tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;"

FAULTS = {
    "a shared load that is misaligned": "mad.lo.u32 %r7, %r1, 4, %r5; add.u32 %r7, %r7, 2; ld.shared.u32 %r8, [%r7];",
    "a shared vector that is misaligned": "mad.lo.u32 %r7, %r1, 8, %r5; ld.shared.v4.u32 {%r8,%r9,%r10,%r11}, [%r7];",
    "a shared store past the end": "mad.lo.u32 %r7, %r1, 65536, %r5; st.shared.u8 [%r7], %r1;",
    "a peer that does not exist": "add.u32 %r7, %r5, 0x1000000; ld.shared.u32 %r8, [%r7];",
    "a global load of nothing": "ld.global.u32 %r8, [%rd1+-4096];",
    "a global load that is misaligned": "ld.global.v2.u32 {%r8, %r9}, [%rd1+4];",
    "a store to read-only memory": "st.global.u32 [%rd2], %r1;",
    "a store across the end": "shl.b32 %r7, %r1, 4; cvt.u64.u32 %rd5, %r7; add.u64 %rd5, %rd1, %rd5; "
    "st.global.v4.u32 [%rd5], {%r1,%r1,%r1,%r1};",
    "a generic address of nowhere": "mov.u64 %rd5, 64; ld.u32 %r8, [%rd5];",
    "a generic shared address past the end": "cvta.shared.u64 %rd5, 100000; st.u32 [%rd5], %r1;",
    "an mbarrier that was never made": PLACE + "mbarrier.arrive.shared.b64 _, [%r6];",
    "too many arrivals": PLACE + INIT + "mbarrier.arrive.shared.b64 _, [%r6], 2;",
    "too many arrivals with tokens": PLACE + INIT + "mbarrier.arrive.shared.b64 %rd5, [%r6], 41;",
    "an arrival of none": PLACE + INIT + "mbarrier.arrive.shared.b64 %rd5, [%r6], 0;",
    "too many bytes": PLACE + INIT + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 1048576;",
    "a wait for no barrier": PLACE + "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra W;",
    "columns that are not allocated": PLACE + TENSOR + "add.u32 %r9, %r8, 40; "
    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {" + ",".join(f"%r{k}" for k in range(10, 42)) + "}, [%r9];" + FREE,
    "lanes of another warp": PLACE + TENSOR + "add.u32 %r9, %r8, 0x200000; "
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%r1};" + FREE,
    "a table that is too short": "table: .branchtargets A, B; add.u32 %r7, %r1, 0; brx.idx %r7, table; A: B:",
    "a kernel that waits for ever": PLACE + INIT + "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra W;",
    "a kernel that spins for ever": PLACE + "W: ld.volatile.shared.u32 %r8, [%r5]; "
    "setp.eq.u32 %p2, %r8, 7; @!%p2 bra W;",
}  # fmt: skip

WORKS = {
    "tensor memory of half a warp": PLACE + TENSOR + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {%r1}; setp.lt.u32 "
    "%p2, %r1, 16; mov.u32 %r9, 3; @%p2 tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [%r8];" + FREE
    + "mov.u32 %r8, %r9;",
    "arrivals that complete a phase halfway": PLACE + INIT + "mbarrier.arrive.shared.b64 %rd5, [%r6], 2; "
    "mbarrier.pending_count.b64 %r8, %rd5;",
    "shared widths": PLACE + """mad.lo.u32 %r7, %r1, 16, %r5; cvt.u16.u32 %rs1, %r1; mov.b32 %r9, 0x80FF7F01;
        st.shared.v4.u32 [%r7], {%r1, %r9, %r1, %r9}; st.shared.u8 [%r7+1], %r9; st.shared.u16 [%r7+2], %rs1;
        ld.shared.s8 %r10, [%r7+7]; ld.shared.u16 %rs2, [%r7+6]; ld.shared.v2.u64 {%rd5, %rd6}, [%r7]; cvt.u32.u16 %r11,
        %rs2; cvt.u32.u64 %r12, %rd5; xor.b32 %r10, %r10, %r11; xor.b32 %r8, %r10, %r12;""",
    "lanes that store to one word": PLACE + "st.shared.u32 [%r5], %r1; ld.shared.u32 %r8, [%r5];",
    "generic addresses": PLACE + """cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd5, %rd5; st.u32 [%rd5+64], %r1;
        ld.u32 %r8,
        [%rd5+64]; ld.u32 %r9, [%rd2]; add.u32 %r8, %r8, %r9;""",
    "lanes in two regions": "setp.lt.u32 %p2, %r1, 9; selp.u64 %rd5, %rd1, %rd2, %p2; ld.global.u32 %r8, [%rd5+8];",
    "a phase by token": PLACE + INIT + """mbarrier.arrive.shared.b64 %rd5, [%r6];
        @%p1 mbarrier.arrive.shared.b64 _, [%r6],
        8; W: mbarrier.try_wait.shared.b64 %p2, [%r6], %rd5; @!%p2 bra W; mbarrier.pending_count.b64 %r8, %rd5;""",
    "a phase that waits for bytes": PLACE + INIT + """@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r6], 48;
        mbarrier.arrive.shared.b64 _, [%r6]; @%p1 mbarrier.arrive.shared.b64 _, [%r6], 7;
        mbarrier.test_wait.parity.shared.b64 %p2, [%r6], 0; selp.u32 %r8, 1, 0, %p2;
        @%p1 mbarrier.complete_tx.shared::cta.b64 [%r6], 48; bar.warp.sync 0xffffffff;
        mbarrier.test_wait.parity.shared.b64 %p2, [%r6], 0; selp.u32 %r9, 2, 0, %p2; add.u32 %r8, %r8, %r9;""",
    "an inverted barrier": PLACE + INIT + """@%p1 mbarrier.inval.shared.b64 [%r6]; bar.warp.sync 0xffffffff;
        ld.shared.u32 %r8, [%r6];""",
    "lanes that meet": """elect.sync _|%p2, 0xffffffff; selp.u32 %r8, 100, 0, %p2; and.b32 %r9, %r1, 5;
        setp.eq.u32 %p3, %r9,
        4; vote.sync.ballot.b32 %r10, %p3, 0xffffffff; vote.sync.any.pred %p4, %p3, 0xffffffff; @%p4 add.u32 %r8, %r8,
        %r10; vote.sync.uni.pred %p5, %p3, 0xffffffff; @%p5 add.u32 %r8, %r8, 7; shfl.sync.up.b32 %r11|%p6, %r1, 3, 0,
        0xffffffff; @%p6 add.u32 %r8, %r8, %r11; vote.sync.all.pred %p7, %p6, 0xffffffff; @%p7 add.u32 %r8, %r8, 9;""",
    "some lanes that meet": """setp.lt.u32 %p1, %r1, 21; mov.u32 %r8, 5; @%p1 bra IN; bra OUT;
        IN: elect.sync _|%p2, 0x1fffff;
        selp.u32 %r8, 100, 0, %p2; shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0x1fffff; add.u32 %r8, %r8, %r9; OUT:""",
    "tensor memory": PLACE + TENSOR + """mul.lo.u32 %r9, %r1, 77;
        tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8], {%r1, %r9};
        add.u32 %r10, %r8, 8; tcgen05.st.sync.aligned.16x256b.x1.b32 [%r10], {%r1, %r9, %r9, %r1};
        tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r11}, [%r8];
        tcgen05.ld.sync.aligned.16x128b.x1.b32 {%r12, %r13}, [%r10];
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r14}, [%r8];
        xor.b32 %r9, %r11, %r12; xor.b32 %r9, %r9, %r13; xor.b32 %r9, %r9, %r14;""" + FREE + " mov.u32 %r8, %r9;",
}  # fmt: skip
END = " st.global.u32 [%rd30], %r8; ret;"


def _run(body: str, engine: str, block: int) -> tuple[list[int], str, int]:
    """What the kernel wrote, its complaint without addresses, and its instructions."""
    space = np.arange(2048, dtype=np.uint32)
    first = -space.ctypes.data % 256 // 4
    out, other = space[first : first + 64], space[first + 1024 : first + 1088]
    out[:] = np.arange(64)
    arena = Arena(out=out, other=other)
    arena.memory.regions[1].writable = False
    message, count = "", 0
    try:
        launch = arena.run(MY_WORD + body + END, declarations=DECLARATIONS, block=block, engine=engine, watchdog=10**6)
        count = launch.instructions
    except EmulatorError as error:
        message = f"{type(error).__name__}: {error}"
    # What lies nearest depends on where the process got its memory.
    message = re.sub("0x[0-9a-f]{7,}", "ADDRESS", re.sub("nearest: [^;]*(?=\\n)", "nearest", message))
    return out.tolist(), message, count


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    """The same named error at the same instruction, with the same words."""
    reference, native = (_run(FAULTS[name], engine, 32) for engine in ("numpy", "llvm"))
    assert reference[1] and native[1] == reference[1]


@pytest.mark.parametrize("block", [32, 27])
@pytest.mark.parametrize("name", WORKS)
def test_work(name: str, block: int) -> None:
    """The same words and counts, with a whole warp and, where that is legal, with part of one."""
    reference, native = (_run(WORKS[name], engine, block) for engine in ("numpy", "llvm"))
    assert native == reference
    assert reference[1] or reference[0] != list(range(64))
