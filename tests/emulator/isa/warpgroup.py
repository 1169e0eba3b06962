"""A kernel of one warpgroup around one wgmma, for the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import emulator
from emulator.memory.globals import GlobalMemory
from emulator.units import fragments

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
IMAGE = 24 << 10


@dataclass
class Case:
    """`opcode` with its operands after D: A and B as matrices of codes [64, K stored], [N, K]; C [64, N] or None. The
    texts that follow B are `tail`; `metadata` uint32 [128]; A in registers with `registers`."""

    opcode: str
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    tail: str = ", p, 1, 1, 0, 0"
    registers: bool = False
    metadata: np.ndarray | None = None
    after: str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    before: str = ""

    def run(self, threads: int = 128, **settings: Any) -> np.ndarray:
        """D [64, N]."""
        count = self.c.shape[1] * self.c.itemsize // 8
        image = np.zeros(IMAGE, np.uint8)
        core_matrices(image, 0, self.a)
        core_matrices(image, 8192, self.b)
        accumulators = np.concatenate([fragments.registers_of(part) for part in self.c.reshape(4, 16, -1)], axis=1).T
        raw = self.a.view(np.uint32).reshape(4, 16, 8)
        in_registers = np.stack([_a_registers(x) for x in raw]).reshape(128, 4)
        metadata = np.zeros(128, np.uint32) if self.metadata is None else self.metadata
        memory = GlobalMemory()
        places = []
        for array in (image, np.ascontiguousarray(accumulators), in_registers, metadata):
            region = memory.allocate(array.nbytes, "input")
            region.views[1][:] = array.view(np.uint8).ravel()
            places.append(region)
        module = emulator.parse(self.text(count))
        parameters = [p.address.to_bytes(8, "little") for p in places]
        settings.setdefault("arithmetic", "exact")
        emulator.run(module, "k", (1, 1, 1), (threads, 1, 1), parameters, memory, **settings)
        registers = places[1].views[4].reshape(4, 32, count).transpose(0, 2, 1)
        parts = [fragments.accumulator([*x], self.c.dtype == np.uint16) for x in registers]
        return np.concatenate(parts).view(self.c.dtype)

    def text(self, count: int) -> str:
        """The kernel: image to shared memory, C to registers, the product, registers to memory."""
        d = ", ".join(f"%d{k}" for k in range(count))
        a = "{%a0, %a1, %a2, %a3}" if self.registers else "%desc0"
        meta = ", %m, 0" if self.metadata is not None else ""
        loads = "".join(f"ld.global.b32 %d{k}, [%rd6+{4 * k}];\n" for k in range(count))
        stores = "".join(f"st.global.b32 [%rd6+{4 * k}], %d{k};\n" for k in range(count))
        return f"""{HEADER}.visible .entry k(.param .u64 pi, .param .u64 pc, .param .u64 pa, .param .u64 pm) {{
.shared .align 1024 .b8 sm[{IMAGE}]; .reg .pred p, q; .reg .b32 %r<20>, %d<{count}>, %a<4>, %m; .reg .b64 %rd<20>;
.reg .b64 %desc<2>;
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [pi]; ld.param.u64 %rd2, [pc]; ld.param.u64 %rd3, [pa]; ld.param.u64 %rd4, [pm];
mov.u32 %r2, sm; shl.b32 %r3, %r1, 4;
L: cvt.u64.u32 %rd5, %r3; add.s64 %rd5, %rd1, %rd5; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd5];
add.u32 %r8, %r2, %r3; st.shared.v4.b32 [%r8], {{%r4, %r5, %r6, %r7}}; add.u32 %r3, %r3, 2048;
setp.lt.u32 p, %r3, {IMAGE}; @p bra L;
mul.wide.u32 %rd5, %r1, {4 * count}; add.s64 %rd6, %rd2, %rd5; mul.wide.u32 %rd5, %r1, 16; add.s64 %rd7, %rd3, %rd5;
mul.wide.u32 %rd5, %r1, 4; add.s64 %rd8, %rd4, %rd5; ld.global.b32 %m, [%rd8];
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd7];
{loads}
// K-major, no swizzle: LBO 128, SBO 8 rows; operands at 0 and 8192 of the image
shr.u32 %r9, %r2, 4; cvt.u64.u32 %rd9, %r9; add.s64 %desc0, %rd9, {8 << 16 | 16 << 32};
add.s64 %desc1, %rd9, {512 + (8 << 16 | self.b.shape[1] * self.b.itemsize // 2 << 32)};
fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 p, %r1, %r1; setp.eq.u32 q, %r1, 1;
{self.before}
wgmma.fence.sync.aligned;
{self.opcode} {{{d}}}, {a}, %desc1{meta}{self.tail};
{self.after}
{stores} ret; }}
"""


def _a_registers(words: np.ndarray) -> np.ndarray:
    """Words [16, 8] of a warp's A -> [32, 4]."""
    return words.reshape(2, 8, 2, 4).transpose(1, 3, 2, 0).reshape(32, 4)


def core_matrices(image: np.ndarray, start: int, matrix: np.ndarray) -> None:
    """Rows of codes as K-major core matrices of 8 x 16 bytes: 128 bytes apart along K, 8 rows of them after another."""
    raw = np.ascontiguousarray(matrix).view(np.uint8)
    rows, width = raw.shape
    cores = raw.reshape(rows // 8, 8, width // 16, 16).transpose(0, 2, 1, 3)
    image[start : start + raw.size] = cores.ravel()
