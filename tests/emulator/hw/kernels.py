"""A small Hopper GEMM in CuTe DSL, whose bits a GPU and the emulator must agree on."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.tensor_utils as tensor_utils
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import cpasync, warpgroup

THREADS = 128
STAGES = 2


@dataclass(frozen=True)
class SmallGemm:
    """d = a b^T: a [m, k], b [n, k] of one type with k contiguous, d [m, n] float32.

    One warpgroup a CTA computes 64 x `columns`. Tiles of `depth` elements of k come through two stages of shared memory
    by TMA. With `pair`, two CTAs of a cluster that work on the same rows get their tile of `a` by multicast: CTA r of
    the pair copies rows 32 r to 32 r + 31 to both. m must be a multiple of 64, n of `columns` (of two of them with
    `pair`), k of `depth`.
    """

    columns: int = 64
    depth: int = 64
    pair: bool = False

    @cute.jit
    def __call__(self, mA: cute.Tensor, mB: cute.Tensor, mD: cute.Tensor, stream: cuda.CUstream):
        major = tensor_utils.LayoutEnum.ROW_MAJOR
        tiled_mma = sm90.make_trivial_tiled_mma(
            mA.element_type,
            mB.element_type,
            major.sm90_mma_major_mode(),
            major.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            (64, self.columns),
        )
        tile = (64, self.columns, self.depth)
        layout_a = sm90.make_smem_layout_a(major, tile, mA.element_type, STAGES)
        layout_b = sm90.make_smem_layout_b(major, tile, mB.element_type, STAGES)
        one_a, one_b = cute.slice_(layout_a, (None, None, 0)), cute.slice_(layout_b, (None, None, 0))
        size = 2 if self.pair else 1
        load = cpasync.CopyBulkTensorTileG2SMulticastOp() if self.pair else cpasync.CopyBulkTensorTileG2SOp()
        atom_a, tma_a = cpasync.make_tiled_tma_atom(load, mA, one_a, (64, self.depth), num_multicast=size)
        atom_b, tma_b = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), mB, one_b, (self.columns, self.depth)
        )
        grid = (mD.shape[0] // 64, mD.shape[1] // self.columns, 1)
        self.kernel(tiled_mma, atom_a, tma_a, atom_b, tma_b, mD, layout_a, layout_b, mA.element_type).launch(
            grid=grid, block=(THREADS, 1, 1), cluster=(1, size, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        tiled_mma: cute.TiledMma,
        atom_a: cute.CopyAtom,
        mA: cute.Tensor,
        atom_b: cute.CopyAtom,
        mB: cute.Tensor,
        mD: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        dtype: cutlass.Constexpr,
    ):
        tx, _, _ = cute.arch.thread_idx()
        bx, by, _ = cute.arch.block_idx()
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        smem = cutlass.memory.SmemAllocator()
        bars = smem.allocate_array(cutlass.Int64, 2 * STAGES)
        sA = smem.allocate_tensor(dtype, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
        sB = smem.allocate_tensor(dtype, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
        gA = cute.local_tile(mA, (64, self.depth), (bx, None))
        gB = cute.local_tile(mB, (self.columns, self.depth), (by, None))
        size = cutlass.const_expr(2 if self.pair else 1)
        tAsA, tAgA = cpasync.tma_partition(
            atom_a, rank, cute.make_layout(size), cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
        )
        tBsB, tBgB = cpasync.tma_partition(
            atom_b, 0, cute.make_layout(1), cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
        )
        if tx == 0:
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(bars + stage, 1)
                # Both CTAs of a pair write to both: a stage is free when both have read it.
                cute.arch.mbarrier_init(bars + STAGES + stage, size)
        cute.arch.mbarrier_init_fence()
        if cutlass.const_expr(self.pair):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        else:
            cute.arch.barrier()
        nbytes = cutlass.const_expr((64 + self.columns) * self.depth * dtype.width // 8)
        thread_mma = tiled_mma.get_slice(tx)
        gD = cute.local_tile(mD, (64, self.columns), (bx, by))
        tCgD = thread_mma.partition_C(gD)
        tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(0).partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(tiled_mma.get_slice(0).partition_B(sB))
        total = cute.make_rmem_tensor(tCgD.shape, cutlass.Float32)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
        for t in range(cute.size(gA, mode=[2])):
            stage, phase = t % STAGES, t // STAGES % 2
            if warp == 0:
                cute.arch.mbarrier_wait(bars + STAGES + stage, phase ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(bars + stage, nbytes)
                if cutlass.const_expr(self.pair):
                    cute.copy(
                        atom_a, tAgA[None, t], tAsA[None, stage], tma_bar_ptr=bars + stage, mcast_mask=cutlass.Int16(3)
                    )
                else:
                    cute.copy(atom_a, tAgA[None, t], tAsA[None, stage], tma_bar_ptr=bars + stage)
                cute.copy(atom_b, tBgB[None, t], tBsB[None, stage], tma_bar_ptr=bars + stage)
            cute.arch.mbarrier_wait(bars + stage, phase)
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                cute.gemm(tiled_mma, total, tCrA[None, None, k, stage], tCrB[None, None, k, stage], total)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            cute.arch.barrier()
            if tx < size:
                if cutlass.const_expr(self.pair):
                    cute.arch.mbarrier_arrive(bars + STAGES + stage, tx)
                else:
                    cute.arch.mbarrier_arrive(bars + STAGES + stage)
        cute.autovec_copy(total, tCgD)
        if cutlass.const_expr(self.pair):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
