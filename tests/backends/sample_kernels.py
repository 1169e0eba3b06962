"""Small CuTe DSL kernels for the tests of the backends."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

THREADS = 128


@dataclass(frozen=True)
class AddScaled:
    """c = a + scale * b for float vectors [n]; one thread an element."""

    scale: int = 1

    @cute.kernel
    def kernel(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
        tx, _, _ = cute.arch.thread_idx()
        bx, _, _ = cute.arch.block_idx()
        i = bx * THREADS + tx
        if i < cute.size(mC):
            mC[i] = mA[i] + mB[i] * cutlass.Float32(self.scale)

    @cute.jit
    def __call__(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, stream: cuda.CUstream):
        grid = (cute.ceil_div(cute.size(mC), THREADS), 1, 1)
        self.kernel(mA, mB, mC).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


class Hidden:
    """c = a + scale * b where the scale is seen neither in the object's fields nor in the kernel's name: only `key()`
    tells two of them apart, and both make an entry of one name."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def key(self) -> str:
        return f"scale={self.scale}"

    @cute.kernel
    def kernel(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
        tx, _, _ = cute.arch.thread_idx()
        mC[tx] = mA[tx] + mB[tx] * cutlass.Float32(self.scale)

    @cute.jit
    def __call__(self, mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, stream: cuda.CUstream):
        self.kernel(mA, mB, mC).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@dataclass(frozen=True)
class Twice:
    """Two launches in one host function, in a cluster of two CTAs: b = a + 1, then c = b + by. `by` is a compile-time
    argument and `n` a run-time one."""

    @cute.kernel
    def first(self, mA: cute.Tensor, mB: cute.Tensor, n: cutlass.Int32):
        tx, _, _ = cute.arch.thread_idx()
        if tx < n:
            mB[tx] = mA[tx] + cutlass.Float32(1)

    @cute.kernel
    def second(self, mB: cute.Tensor, mC: cute.Tensor, by: cutlass.Constexpr[int], n: cutlass.Int32):
        tx, _, _ = cute.arch.thread_idx()
        if tx < n:
            mC[tx] = mB[tx] + cutlass.Float32(by)

    @cute.jit
    def __call__(
        self,
        mA: cute.Tensor,
        mB: cute.Tensor,
        by: cutlass.Constexpr[int],
        mC: cute.Tensor,
        n: cutlass.Int32,
        stream: cuda.CUstream,
    ):
        self.first(mA, mB, n).launch(grid=(2, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1), stream=stream)
        self.second(mB, mC, by, n).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


@dataclass(frozen=True)
class TmaAdd:
    """c = a + 1 for float matrices [m, n], n a multiple of 4: each CTA loads a tile of 16 x 32 by TMA; ragged edges
    are clipped."""

    rows: int = 16
    columns: int = 32

    @cute.kernel
    def kernel(
        self,
        atom: cute.CopyAtom,
        tmaA: cute.Tensor,
        mC: cute.Tensor,
        layout: cute.Layout,
    ):
        tx, _, _ = cute.arch.thread_idx()
        bx, by, _ = cute.arch.block_idx()
        smem = cutlass.memory.SmemAllocator()
        bar = smem.allocate_array(cutlass.Int64, 1)
        sA = smem.allocate_tensor(cutlass.Float32, layout, byte_alignment=128)
        gA = cute.local_tile(tmaA, (self.rows, self.columns), (bx, by))
        tAsA, tAgA = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
        )
        if tx == 0:
            cute.arch.mbarrier_init(bar, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        if tx == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(bar, self.rows * self.columns * 4)
        if tx < 32:
            cute.copy(atom, tAgA, tAsA, tma_bar_ptr=bar)
        cute.arch.mbarrier_wait(bar, 0)
        column = by * self.columns + tx % self.columns
        for row in range(tx // self.columns, self.rows, THREADS // self.columns):
            i = bx * self.rows + row
            if i < mC.shape[0]:
                if column < mC.shape[1]:
                    mC[i, column] = sA[row, tx % self.columns] + cutlass.Float32(1)

    @cute.jit
    def __call__(self, mA: cute.Tensor, mC: cute.Tensor, stream: cuda.CUstream):
        layout = cute.make_layout((self.rows, self.columns), stride=(self.columns, 1))
        atom, tmaA = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), mA, layout, (self.rows, self.columns)
        )
        grid = (cute.ceil_div(mC.shape[0], self.rows), cute.ceil_div(mC.shape[1], self.columns), 1)
        self.kernel(atom, tmaA, mC, layout).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)
