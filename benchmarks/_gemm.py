"""A small GEMM for sm_100a in PTX, so that the benchmark of the emulator needs no compiler.

D (M, N) f32 = A (M, K) B (N, K)^T, f16, row-major; M a multiple of 128, N of 256, K of 64 up to 256. A CTA of four
warps makes a tile of 128 x 256: thread 0 loads all of K by TMA, one stage of 64 each, and issues the products; then
every warp copies its 32 rows from tensor memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import emulator
from emulator.memory.globals import GlobalMemory
from emulator.memory.tensormap import TensorMap, element_type

TILE_M, TILE_N, TILE_K = 128, 256, 64
A_BYTES, B_BYTES = TILE_M * TILE_K * 2, TILE_N * TILE_K * 2
DESCRIPTOR = 1024 >> 4 << 32 | 1 << 46 | 2 << 61
"""K-major with 128-byte swizzle: 1024 bytes from eight rows to the next eight."""

INSTRUCTION = 1 << 4 | TILE_N >> 3 << 17 | TILE_M >> 4 << 24
"""f16 operands, f32 sums, 128 x 256."""


def _stages(k: int) -> str:
    """Loads of every stage, and the products behind each."""
    loads, products = [], []
    copy = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    for stage in range(k // TILE_K):
        a, b = 1024 + stage * (A_BYTES + B_BYTES), 1024 + stage * (A_BYTES + B_BYTES) + A_BYTES
        loads.append(f"""
  add.u32 %r10, %r1, {8 * stage}; add.u32 %r11, %r1, {a}; add.u32 %r12, %r1, {b};
  mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {A_BYTES + B_BYTES};
  {copy} [%r11], [%rd1, {{{TILE_K * stage}, %r4}}], [%r10];
  {copy} [%r12], [%rd2, {{{TILE_K * stage}, %r5}}], [%r10];""")
        products.append(f"""
W{stage}: mbarrier.try_wait.parity.shared.b64 %p1, [%r1+{8 * stage}], 0; @!%p1 bra W{stage};""")
        for step in range(TILE_K // 16):
            first = "0" if not stage and not step else "1"
            products.append(f"""
  add.u64 %rd5, %rd3, {(a >> 4) + 2 * step}; add.u64 %rd6, %rd3, {(b >> 4) + 2 * step}; setp.ne.u32 %p2, {first}, 0;
  tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd5, %rd6, %r6, %p2;""")
    return "".join(loads + products)


def _epilogue() -> str:
    """Eight times 32 columns of the warp's rows to global memory."""
    pieces = []
    for piece in range(TILE_N // 32):
        names = [f"%r{100 + k}" for k in range(32)]
        stores = "\n".join(
            f"  st.global.v4.b32 [%rd7+{(32 * piece + k) * 4}], {{{', '.join(names[k : k + 4])}}};"
            for k in range(0, 32, 4)
        )
        pieces.append(f"""
  add.u32 %r13, %r3, {32 * piece};
  tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{", ".join(names)}}}, [%r13];
  tcgen05.wait::ld.sync.aligned;
{stores}""")
    return "".join(pieces)


def text(k: int) -> str:
    """The module for a given K."""
    return f""".version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry gemm(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 d, .param .u32 n)
{{
  .reg .pred %p<4>; .reg .b32 %r<140>; .reg .b64 %rd<10>;
  mov.u32 %r1, memory; mov.u32 %r2, %tid.x; mov.u64 %rd1, a; mov.u64 %rd2, b;
  mov.u32 %r4, %ctaid.y; mul.lo.u32 %r4, %r4, {TILE_M}; mov.u32 %r5, %ctaid.x; mul.lo.u32 %r5, %r5, {TILE_N};
  setp.ge.u32 %p3, %r2, 32; @%p3 bra READY;
  add.u32 %r7, %r1, 64; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], {TILE_N};
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  setp.ne.u32 %p1, %r2, 0; @%p1 bra READY;
  {" ".join(f"mbarrier.init.shared.b64 [%r1+{8 * s}], 1;" for s in range(5))}
  fence.proxy.async.shared::cta;
READY: bar.sync 0;
  ld.shared.u32 %r3, [%r1+64]; setp.ne.u32 %p1, %r2, 0; @%p1 bra SUMS;
  shr.u32 %r8, %r1, 4; cvt.u64.u32 %rd3, %r8; add.u64 %rd3, %rd3, {DESCRIPTOR}; mov.u32 %r6, {INSTRUCTION};
{_stages(k)}
  add.u32 %r10, %r1, 32; tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10];
SUMS: mbarrier.try_wait.parity.shared.b64 %p1, [%r1+32], 0; @!%p1 bra SUMS;
  tcgen05.fence::after_thread_sync;
  ld.param.u64 %rd7, [d]; ld.param.u32 %r9, [n]; add.u32 %r10, %r4, %r2; mad.lo.u32 %r10, %r10, %r9, %r5;
  mul.wide.u32 %rd8, %r10, 4; add.u64 %rd7, %rd7, %rd8;
{_epilogue()}
  bar.sync 0; @%p3 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {TILE_N};
END: ret;
}}
"""


@dataclass
class Gemm:
    """Operands in memory and the parsed kernel."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        random = np.random.default_rng(0)
        self.a = _aligned(random.standard_normal((self.m, self.k)).astype(np.float16))
        self.b = _aligned(random.standard_normal((self.n, self.k)).astype(np.float16))
        self.d = np.zeros((self.m, self.n), np.float32)
        self.module = emulator.parse(text(self.k))
        self.memory = GlobalMemory()
        for name in "abd":
            array = getattr(self, name)
            self.memory.register(array.ctypes.data, array.nbytes, name)

    def run(self, engine: str) -> emulator.Launch:
        """One launch."""
        maps = [_map(x, rows).encode() for x, rows in ((self.a, TILE_M), (self.b, TILE_N))]
        values = [*maps, self.d.ctypes.data.to_bytes(8, "little"), self.n.to_bytes(4, "little")]
        grid = (self.n // TILE_N, self.m // TILE_M, 1)
        shared = 1024 + self.k // TILE_K * (A_BYTES + B_BYTES)
        return emulator.run(
            self.module, "gemm", grid, (128, 1, 1), values, self.memory, shared_bytes=shared, engine=engine
        )

    def error(self) -> float:
        """Largest difference from the product in float64."""
        return float(np.abs(self.d - self.a.astype(float) @ self.b.astype(float).T).max())


def _aligned(array: np.ndarray) -> np.ndarray:
    raw = np.empty(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    out = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def _map(x: np.ndarray, rows: int) -> TensorMap:
    shape, box = (x.shape[1], x.shape[0]), (TILE_K, rows)
    return TensorMap(x.ctypes.data, element_type("f16"), shape, (x.strides[0],), box, (1, 1), swizzle=3)
