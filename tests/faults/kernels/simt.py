"""Kernels of plain threads: a reduction, an exchange inside a warp, cp.async stages, named barriers."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

THREADS = 128
WARPS = 4


@dataclass(frozen=True)
class RowSum:
    """y[row] = sum of x[row, :]. Two CTAs take tiles of 8 rows in turn; every row is summed by all threads."""

    rows: int = 8
    ctas: int = 2

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        first, _, _ = cute.arch.block_idx()
        warp, lane = thread // 32, thread % 32
        m, n = x.shape
        smem = SmemAllocator()
        sums = smem.allocate_tensor(Float32, cute.make_layout((self.rows, WARPS)), 16)
        for tile in cutlass.range(first, cute.ceil_div(m, self.rows), self.ctas, unroll=1):
            for r in cutlass.range(self.rows, unroll=1):
                row = tile * self.rows + r
                total = Float32(0.0)
                if row < m:
                    for column in cutlass.range(thread, n, THREADS, unroll=1):
                        total += x[row, column]
                total = cute.arch.warp_reduction_sum(total)
                if lane == 0:
                    sums[r, warp] = total
            cute.arch.barrier()
            row = tile * self.rows + thread
            if thread < self.rows:
                if row < m:
                    y[row] = sums[thread, 0] + sums[thread, 1] + sums[thread, 2] + sums[thread, 3]
            cute.arch.barrier()

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[self.ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


@dataclass(frozen=True)
class WarpReverse:
    """y = x, every 32 elements in reverse order, through shared memory of one warp. The last group may be ragged."""

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        warp, lane = thread // 32, thread % 32
        n = x.shape[0]
        smem = SmemAllocator()
        group = smem.allocate_tensor(Float32, cute.make_layout((32, WARPS)), 16)
        for base in cutlass.range(warp * 32, n, THREADS, unroll=1):
            size = cutlass.min(n - base, 32)
            if lane < size:
                group[lane, warp] = x[base + lane]
            cute.arch.sync_warp()
            if lane < size:
                y[base + lane] = group[size - 1 - lane, warp]
            cute.arch.sync_warp()

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)


@dataclass(frozen=True)
class AsyncCopies:
    """y = x, every 512 elements in reverse order, through cp.async into three stages. n is a multiple of 4."""

    stages: int = 3

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        n = x.shape[0]
        tile = 4 * THREADS
        tiles = cute.ceil_div(n, tile)
        smem = SmemAllocator()
        sX = smem.allocate_tensor(Float32, cute.make_layout((tile, self.stages)), 128)
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), Float32, num_bits_per_copy=128)
        for i in cutlass.range_constexpr(self.stages - 1):
            self.fetch(atom, x, sX, thread, i, n)
        for i in cutlass.range(tiles, unroll=1):
            cute.arch.cp_async_wait_group(self.stages - 2)
            cute.arch.barrier()
            self.fetch(atom, x, sX, thread, i + self.stages - 1, n)
            size = cutlass.min(n - i * tile, tile)
            for part in cutlass.range_constexpr(4):
                place = part * THREADS + thread
                if place < size:
                    y[i * tile + place] = sX[size - 1 - place, i % self.stages]

    @cute.jit
    def fetch(self, atom, x, sX, thread, i, n):
        """Four elements of tile i, one group whether or not there is anything to copy."""
        if (i * THREADS + thread) * 4 < n:
            source = cute.local_tile(x, (4,), (i * THREADS + thread,))
            target = cute.local_tile(sX[None, i % self.stages], (4,), (thread,))
            cute.copy(atom, self.aligned(source), self.aligned(target))
        cute.arch.cp_async_commit_group()

    def aligned(self, t):
        """The same four elements, known to begin at a multiple of 16 bytes."""
        return cute.make_tensor(t.iterator.align(16), t.layout)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)


@dataclass(frozen=True)
class Handover:
    """y = x, every 64 elements in reverse order: two warps fill two stages, two warps empty them, by named barriers."""

    stages: int = 2

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        half = thread % 64
        n = x.shape[0]
        tiles = cute.ceil_div(n, 64)
        smem = SmemAllocator()
        sX = smem.allocate_tensor(Float32, cute.make_layout((64, self.stages)), 128)
        full, empty = 1, 1 + self.stages
        if thread < 64:
            for i in cutlass.range(tiles, unroll=1):
                stage = i % self.stages
                if i >= self.stages:
                    cute.arch.barrier(barrier_id=empty + stage, number_of_threads=THREADS)
                if i * 64 + half < n:
                    sX[half, stage] = x[i * 64 + half]
                cute.arch.barrier_arrive(barrier_id=full + stage, number_of_threads=THREADS)
        else:
            for i in cutlass.range(tiles, unroll=1):
                stage = i % self.stages
                cute.arch.barrier(barrier_id=full + stage, number_of_threads=THREADS)
                size = cutlass.min(n - i * 64, 64)
                if half < size:
                    y[i * 64 + half] = sX[size - 1 - half, stage]
                if i + self.stages < tiles:
                    cute.arch.barrier_arrive(barrier_id=empty + stage, number_of_threads=THREADS)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
