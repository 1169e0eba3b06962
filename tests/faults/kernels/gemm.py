"""C = A B^T on tcgen05: TMA loads, accumulators in tensor memory, with one CTA or with a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100_utils
from cutlass import Float16, Float32, Int32, Int64, const_expr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.pipeline import Agent, CooperativeGroup, PipelineTmaUmma, PipelineUmmaAsync

from kernels.shared.fences import after_handover, before_handover
from kernels.shared.operands import private_copy
from kernels.shared.pipelines import consumer_turn, producer_turn

EPILOGUE, MMA, LOAD = 4, 4, 5
THREADS = 192
ROWS, N, K = 128, 32, 64
CHUNK = 32


@dataclass(frozen=True)
class Gemm:
    """c (m, n) f32 = a (m, k) b (n, k)^T, f16, any m and n. A CTA, or a pair with `ctas` = 2, takes 128 rows a CTA and
    walks over the tiles of n.

    Warp 5 loads through `stages` stages, warp 4 multiplies into two accumulators, warps 0 to 3 write them out: more
    tiles of k than stages, more tiles of n than accumulators.
    """

    ctas: int = 1
    stages: int = 2
    accumulators: int = 2

    def tiled_mma(self) -> cute.TiledMma:
        """The instruction: f16, both operands K-major."""
        major = (OperandMajorMode.K, OperandMajorMode.K)
        group = tcgen05.CtaGroup.TWO if self.ctas == 2 else tcgen05.CtaGroup.ONE
        return sm100_utils.make_trivial_tiled_mma(Float16, Float16, *major, Float32, group, self.tiler()[:2])

    def tiler(self) -> tuple[int, int, int]:
        """One tile of the instruction: (M, N, K)."""
        return (ROWS * self.ctas, N, K)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream):
        mma = self.tiled_mma()
        cluster = cute.tiled_divide(cute.make_layout((self.ctas, 1, 1)), (mma.thr_id.shape,))  # (V, M, N, K)
        layouts = (
            sm100_utils.make_smem_layout_a(mma, self.tiler(), Float16, self.stages),
            sm100_utils.make_smem_layout_b(mma, self.tiler(), Float16, self.stages),
        )
        op = cpasync.CopyBulkTensorTileG2SOp(mma.op.cta_group)
        one_a, one_b = (cute.select(layout, mode=[0, 1, 2]) for layout in layouts)
        atom_a, tA = cute.nvgpu.make_tiled_tma_atom_A(op, a, one_a, self.tiler(), mma, cluster.shape)
        atom_b, tB = cute.nvgpu.make_tiled_tma_atom_B(op, b, one_b, self.tiler(), mma, cluster.shape)
        tiles = cute.ceil_div(a.shape[0], ROWS * self.ctas)
        self.kernel(mma, (atom_a, atom_b), (tA, tB), c, layouts, cluster).launch(
            grid=[tiles * self.ctas, 1, 1], block=[THREADS, 1, 1], cluster=[self.ctas, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        atoms: tuple,
        tensors: tuple,  # (m, k), (n, k)
        mC: cute.Tensor,  # (m, n)
        layouts: tuple,
        cluster: cute.Layout,
    ):
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block, _, _ = cute.arch.block_idx()
        rank = block % self.ctas
        smem = SmemAllocator()
        sA, sB = (smem.allocate_tensor(Float16, x.outer, 1024, swizzle=x.inner) for x in layouts)
        pipes = self.pipelines(smem, layouts, cluster)
        address = smem.allocate_array(Int32, 2, byte_alignment=8)
        if warp == 0:
            cute.arch.alloc_tmem(self.columns(), address, is_two_cta=self.ctas == 2)
            cute.arch.relinquish_tmem_alloc_permit(is_two_cta=self.ctas == 2)
        cute.arch.mbarrier_init_fence()
        before_handover()
        self.everybody()
        after_handover()
        tmem = cute.arch.retrieve_tmem_ptr(Float32, 16, address)
        extents = (cute.ceil_div(mC.shape[1], N), cute.ceil_div(tensors[0].shape[1], K))
        if warp == LOAD:
            self.load(mma.get_slice(rank), atoms, tensors, (sA, sB), pipes[0], block // self.ctas, extents)
        if warp == MMA:
            if rank == 0:
                self.multiply(mma, (sA, sB), tmem, pipes, extents)
        if warp < EPILOGUE:
            self.write(mma, tmem, mC, pipes[1], block * ROWS, extents)
        before_handover()
        self.everybody()
        if warp == 0:
            cute.arch.dealloc_tmem(tmem, self.columns(), is_two_cta=self.ctas == 2)

    def columns(self) -> int:
        """Columns of tensor memory that are allocated."""
        return N * self.accumulators

    def everybody(self) -> None:
        """All threads of the CTA, or of the pair."""
        if self.ctas == 1:
            cute.arch.barrier()
        else:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()

    def pipelines(self, smem: SmemAllocator, layouts: tuple, cluster: cute.Layout) -> tuple[Any, Any]:
        """Stages of A and B from TMA to the MMA; accumulators from the MMA to the epilogue."""
        bytes_a, bytes_b = (cute.size_in_bytes(Float16, cute.select(x, mode=[0, 1, 2])) for x in layouts)
        one = CooperativeGroup(Agent.Thread, 1)
        operands = PipelineTmaUmma.create(
            barrier_storage=smem.allocate_array(Int64, 2 * self.stages),
            num_stages=self.stages,
            producer_group=one,
            consumer_group=one,
            tx_count=(bytes_a + bytes_b) * self.ctas,
            cta_layout_vmnk=cluster,
            defer_sync=True,
        )
        results = PipelineUmmaAsync.create(
            barrier_storage=smem.allocate_array(Int64, 2 * self.accumulators),
            num_stages=self.accumulators,
            producer_group=one,
            consumer_group=CooperativeGroup(Agent.Thread, 32 * EPILOGUE * self.ctas),
            cta_layout_vmnk=cluster,
            defer_sync=True,
        )
        return operands, results

    @cute.jit
    def load(self, mma, atoms, tensors, shared, pipe, tile, extents):
        """A(tile, k) and B(n, k) into the next free stage, for every n and k."""
        (M, N_, K_), one = self.tiler(), cute.make_layout(1)
        gA = mma.partition_A(cute.flat_divide(tensors[0], (M, K_)))  # (MMA, MMA_M, MMA_K, m_tiles, k_tiles)
        gB = mma.partition_B(cute.flat_divide(tensors[1], (N_, K_)))  # (MMA, MMA_N, MMA_K, n_tiles, k_tiles)
        sA, sB = (cute.group_modes(s, 0, 3) for s in shared)
        tAsA, tAgA = cpasync.tma_partition(atoms[0], 0, one, sA, cute.group_modes(gA, 0, 3))
        tBsB, tBgB = cpasync.tma_partition(atoms[1], 0, one, sB, cute.group_modes(gB, 0, 3))
        for item in cutlass.range(extents[0] * extents[1], unroll=1):
            n, k = item // extents[1], item % extents[1]
            turn = producer_turn(item, self.stages)
            pipe.producer_acquire(turn)
            bar = pipe.producer_get_barrier(turn)
            cute.copy(atoms[0], tAgA[None, tile, k], tAsA[None, turn.index], tma_bar_ptr=bar)
            cute.copy(atoms[1], tBgB[None, n, k], tBsB[None, turn.index], tma_bar_ptr=bar)

    @cute.jit
    def multiply(self, mma, shared, tmem, pipes, extents):
        """One accumulator a tile of n; its first product overwrites."""
        tCrA, tCrB = mma.make_fragment_A(shared[0]), mma.make_fragment_B(shared[1])  # (MMA, MMA_M|N, MMA_K, stage)
        tCtC = self.accumulator(mma, tmem)  # (MMA, MMA_M, MMA_N, stage)
        for n in cutlass.range(extents[0], unroll=1):
            out = producer_turn(n, self.accumulators)
            pipes[1].producer_acquire(out)
            after_handover()
            for k in cutlass.range(extents[1], unroll=1):
                turn = consumer_turn(n * extents[1] + k, self.stages)
                pipes[0].consumer_wait(turn)
                own = private_copy(mma)
                for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                    own.set(tcgen05.Field.ACCUMULATE, True if block > 0 else cutlass.Boolean(k != 0))
                    a, b = tCrA[None, None, block, turn.index], tCrB[None, None, block, turn.index]
                    cute.gemm(own, tCtC[None, None, None, out.index], a, b, tCtC[None, None, None, out.index])
                pipes[0].consumer_release(turn)
            pipes[1].producer_commit(out)

    def accumulator(self, mma, tmem):
        """(MMA, MMA_M, MMA_N, stage): the accumulators in tensor memory."""
        shape = cute.append(mma.partition_shape_C(self.tiler()[:2]), self.accumulators)
        return cute.make_tensor(tmem, mma.make_fragment_C(shape).layout)

    @cute.jit
    def write(self, mma, tmem, mC, pipe, first_row, extents):
        """Thread = row: one accumulator after the other to global memory, only what exists."""
        thread = cute.arch.thread_idx()[0]
        tCtC = self.accumulator(mma, tmem)
        width = self.tiler()[1]
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(CHUNK)), Float32)
        copy = tcgen05.make_tmem_copy(atom, tCtC[None, None, None, 0])
        tLtC = copy.get_slice(thread).partition_S(tCtC)  # ((32 columns, 1), chunk, 1, 1, stage)
        row = first_row + thread
        for n in cutlass.range(extents[0], unroll=1):
            turn = consumer_turn(n, self.accumulators)
            pipe.consumer_wait(turn)
            after_handover()
            for chunk in cutlass.range_constexpr(width // CHUNK):
                tLrC = cute.make_rmem_tensor(((CHUNK, 1), 1, 1), Float32)
                at = chunk if const_expr(cute.size(tLtC, mode=[1]) > 1) else 0
                cute.copy(copy, tLtC[None, at, 0, 0, turn.index], tLrC[None, 0, 0])
                cute.arch.fence_view_async_tmem_load()
                if row < mC.shape[0]:
                    for j in cutlass.range_constexpr(CHUNK):
                        column = n * width + chunk * CHUNK + j
                        if column < mC.shape[1]:
                            mC[row, column] = tLrC[j]
            before_handover()
            pipe.consumer_release(turn)
