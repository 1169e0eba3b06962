"""Kernels of clusters: CTAs read each other's shared memory, or store into it asynchronously."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.memory import SmemAllocator

THREADS = 64
SIZE = 4


@dataclass(frozen=True)
class ClusterSum:
    """y[row] = sum of x[row, :]. The four CTAs of a cluster each sum a quarter of the columns, then read all four sums
    from distributed shared memory; rank r writes the rows with row % 4 == r."""

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        rank = cute.arch.block_idx_in_cluster()
        m, n = x.shape
        smem = SmemAllocator()
        part = smem.allocate_tensor(Float32, cute.make_layout(THREADS // 32 + 1), 16)
        for row in cutlass.range(m, unroll=1):
            total = Float32(0.0)
            for column in cutlass.range(rank * THREADS + thread, n, SIZE * THREADS, unroll=1):
                total += x[row, column]
            total = cute.arch.warp_reduction_sum(total)
            if thread % 32 == 0:
                part[thread // 32] = total
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
            if thread == 0:
                if row % SIZE == rank:
                    total = Float32(0.0)
                    for peer in cutlass.range_constexpr(SIZE):
                        for warp in cutlass.range_constexpr(THREADS // 32):
                            theirs = cute.arch.map_dsmem_ptr(part.iterator + warp, peer)
                            total += self.remote(theirs)
                    y[row] = total
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()

    def remote(self, place):
        """The element there. CuTe tensors can't be read in distributed shared memory."""
        code = "ld.shared::cluster.f32 {$w0}, [{$r0}];"
        return cute.arch.inline_ptx(code, write_only_types=[Float32], read_only_args=[place.toint()])

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[SIZE, 1, 1], block=[THREADS, 1, 1], cluster=[SIZE, 1, 1], stream=stream)


@dataclass(frozen=True)
class ClusterPush:
    """y[rank, :] = x[0] + … + x[3] element by element. Each CTA sends its row to every CTA by st.async, which counts
    the bytes on the receiver's mbarrier; n is at most 64."""

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        rank = cute.arch.block_idx_in_cluster()
        n = x.shape[1]
        smem = SmemAllocator()
        bar = smem.allocate_array(Int64, 1)
        rows = smem.allocate_tensor(Int32, cute.make_layout((THREADS, SIZE)), 16)
        if thread == 0:
            cute.arch.mbarrier_init(bar, 1)
            cute.arch.mbarrier_init_fence()
            cute.arch.mbarrier_arrive_and_expect_tx(bar, SIZE * n * 4)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        if thread < n:
            for peer in cutlass.range_constexpr(SIZE):
                place = rows.iterator + rows.layout((thread, rank))
                cute.arch.store_async_dsmem(place, x[rank, thread], bar, peer)
        cute.arch.mbarrier_wait(bar, 0)
        if thread < n:
            total = rows[thread, 0] + rows[thread, 1] + rows[thread, 2] + rows[thread, 3]
            y[rank, thread] = Float32(total)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[SIZE, 1, 1], block=[THREADS, 1, 1], cluster=[SIZE, 1, 1], stream=stream)
