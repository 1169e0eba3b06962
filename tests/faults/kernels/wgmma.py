"""C = A B^T on wgmma (sm_90a): TMA loads, one warpgroup, several k tiles in flight."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass import Float16, Float32, Int64
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

M, N, K = 64, 32, 64
WARPGROUP = 128


@dataclass(frozen=True)
class HopperGemm:
    """c (m, n) f32 = a (m, k) b (n, k)^T, f16, any m and n. Warp 4 loads through `stages` stages, warps 0 to 3
    multiply; a stage is given back when the products of the tile after it have been issued."""

    stages: int = 3

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream):
        major = (OperandMajorMode.K, OperandMajorMode.K)
        mma = sm90_utils.make_trivial_tiled_mma(Float16, Float16, *major, Float32, (1, 1, 1), (M, N))
        tile = (M, N, K)
        layouts = (
            sm90_utils.make_smem_layout_a(LayoutEnum.ROW_MAJOR, tile, Float16, self.stages),
            sm90_utils.make_smem_layout_b(LayoutEnum.ROW_MAJOR, tile, Float16, self.stages),
        )
        op = cpasync.CopyBulkTensorTileG2SOp()
        one_a, one_b = (cute.select(layout, mode=[0, 1]) for layout in layouts)
        atom_a, tA = cpasync.make_tiled_tma_atom(op, a, one_a, (M, K))
        atom_b, tB = cpasync.make_tiled_tma_atom(op, b, one_b, (N, K))
        grid = [cute.ceil_div(a.shape[0], M), cute.ceil_div(b.shape[0], N), 1]
        self.kernel(mma, (atom_a, atom_b), (tA, tB), c, layouts).launch(
            grid=grid, block=[WARPGROUP + 32, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        atoms: tuple,
        tensors: tuple,  # (m, k), (n, k)
        mC: cute.Tensor,  # (m, n)
        layouts: tuple,
    ):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        m, n, _ = cute.arch.block_idx()
        smem = SmemAllocator()
        full, empty = (smem.allocate_array(Int64, self.stages) for _ in range(2))
        sA, sB = (smem.allocate_tensor(Float16, x.outer, 1024, swizzle=x.inner) for x in layouts)
        if thread == 0:
            for stage in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, WARPGROUP)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        tiles = cute.ceil_div(tensors[0].shape[1], K)
        if warp == WARPGROUP // 32:
            self.load(atoms, tensors, (sA, sB), full, empty, (m, n), tiles)
        else:
            self.multiply(mma, (sA, sB), mC, full, empty, (m, n), tiles, thread)

    @cute.jit
    def load(self, atoms, tensors, shared, full, empty, where, tiles):
        """A(m, k) and B(n, k) into the next free stage."""
        gA = cute.local_tile(tensors[0], (M, K), (where[0], None))  # (row, column, k_tiles)
        gB = cute.local_tile(tensors[1], (N, K), (where[1], None))
        one = cute.make_layout(1)
        sA, sB = (cute.group_modes(s, 0, 2) for s in shared)
        tAsA, tAgA = cpasync.tma_partition(atoms[0], 0, one, sA, cute.group_modes(gA, 0, 2))
        tBsB, tBgB = cpasync.tma_partition(atoms[1], 0, one, sB, cute.group_modes(gB, 0, 2))
        for k in cutlass.range(tiles, unroll=1):
            stage = k % self.stages
            cute.arch.mbarrier_wait(empty + stage, ((k // self.stages) & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, (M + N) * K * 2)
            cute.copy(atoms[0], tAgA[None, k], tAsA[None, stage], tma_bar_ptr=full + stage)
            cute.copy(atoms[1], tBgB[None, k], tBsB[None, stage], tma_bar_ptr=full + stage)

    @cute.jit
    def multiply(self, mma, shared, mC, full, empty, where, tiles, thread):
        """Products of tile k are issued before those of tile k - 1 are waited for."""
        group = mma.get_slice(0)
        tCrA = mma.make_fragment_A(group.partition_A(shared[0]))  # (MMA, MMA_M, MMA_K, stage)
        tCrB = mma.make_fragment_B(group.partition_B(shared[1]))  # (MMA, MMA_N, MMA_K, stage)
        cC = mma.get_slice(thread).partition_C(cute.make_identity_tensor((M, N)))  # (MMA, MMA_M, MMA_N)
        rC = cute.make_rmem_tensor(cC.shape, Float32)
        rC.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for k in cutlass.range(tiles, unroll=1):
            stage = k % self.stages
            cute.arch.mbarrier_wait(full + stage, (k // self.stages) & 1)
            warpgroup.fence()
            for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                cute.gemm(mma, rC, tCrA[None, None, block, stage], tCrB[None, None, block, stage], rC)
            warpgroup.commit_group()
            warpgroup.wait_group(1)
            if k > 0:
                cute.arch.mbarrier_arrive(empty + (k - 1) % self.stages)
        warpgroup.wait_group(0)
        for i in cutlass.range_constexpr(cute.size(cC)):
            row, column = where[0] * M + cC[i][0], where[1] * N + cC[i][1]
            if row < mC.shape[0]:
                if column < mC.shape[1]:
                    mC[row, column] = rC[i]
