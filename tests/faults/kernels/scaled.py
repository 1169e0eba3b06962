"""C = A B^T with block scales on tcgen05: NVFP4 and MXFP8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100_utils
import cutlass.utils.blockscaled_layout as blockscaled
from cutlass import Float32, Int16, Int32, Int64, const_expr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.pipeline import Agent, CooperativeGroup, PipelineTmaUmma, PipelineUmmaAsync

from kernels.shared.fences import after_handover, before_handover
from kernels.shared.operands import private_copy
from kernels.shared.pipelines import consumer_turn, producer_turn

MMA, LOAD = 4, 5
THREADS = 192
M, N, K = 128, 128, 128
COLUMNS = 256
CHUNK = 32


@dataclass(frozen=True)
class ScaledGemm:
    """c (m, n) f32 = (a * scale_a) (b * scale_b)^T. `kind` "nvfp4": e2m1 with an e4m3 scale every 16 values of k;
    "mxfp8": e4m3 with a power of two every 32. Scales lie in atoms of 128 rows x 4 blocks.

    Warp 5 loads operands and scales through two stages; warp 4 copies the scales to tensor memory and multiplies;
    warps 0 to 3 write one accumulator out.
    """

    kind: str = "nvfp4"
    stages: int = 2

    @property
    def types(self) -> tuple[Any, Any, int]:
        """Element, scale, values a scale."""
        if self.kind == "nvfp4":
            return cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, 16
        return cutlass.Float8E4M3FN, cutlass.Float8E8M0FNU, 32

    def tiled_mma(self) -> cute.TiledMma:
        """The instruction: both operands K-major in shared memory."""
        element, scale, _ = self.types
        group, source = tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM
        if const_expr(self.kind == "nvfp4"):
            return cute.make_tiled_mma(tcgen05.MmaMXF4NVF4Op(scale, (M, N, 64), group, source))
        major = OperandMajorMode.K
        return cute.make_tiled_mma(tcgen05.MmaMXF8Op(element, (M, N, 32), group, source, major, major))

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,  # (m, k)
        b: cute.Tensor,  # (n, k)
        scale_a: cute.Tensor,  # bytes of the atoms
        scale_b: cute.Tensor,
        c: cute.Tensor,  # (m, n)
        stream,
    ):
        element, _, group = self.types
        mma = self.tiled_mma()
        tiler = (M, N, K)
        layouts = (
            sm100_utils.make_smem_layout_a(mma, tiler, element, self.stages),
            sm100_utils.make_smem_layout_b(mma, tiler, element, self.stages),
            blockscaled.make_smem_layout_sfa(mma, tiler, group, self.stages),
            blockscaled.make_smem_layout_sfb(mma, tiler, group, self.stages),
        )
        op, one_cta = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE), (1, 1, 1, 1)
        copies = []
        for i, tensor in enumerate((a, b, scale_a, scale_b)):
            whole = (*(a, b)[i % 2].shape, 1)
            layout = blockscaled.tile_atom_to_shape_SF(whole, group)
            if const_expr(i < 2):
                layout = cute.make_layout(whole, stride=(*tensor.stride, 0))
            make = cute.nvgpu.make_tiled_tma_atom_A if i % 2 == 0 else cute.nvgpu.make_tiled_tma_atom_B
            stage = cute.slice_(layouts[i], (None, None, None, 0))
            more = {} if i < 2 else {"internal_type": Int16}
            copies.append(make(op, cute.make_tensor(tensor.iterator, layout), stage, tiler, mma, one_cta, **more))
        self.kernel(mma, tuple(x for x, _ in copies), tuple(t for _, t in copies), c, layouts).launch(
            grid=[cute.ceil_div(c.shape[0], M), cute.ceil_div(c.shape[1], N), 1],
            block=[THREADS, 1, 1],
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        atoms: tuple,
        tensors: tuple,  # A, B and their scales, each (rows, k, 1)
        mC: cute.Tensor,  # (m, n)
        layouts: tuple,
    ):
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = SmemAllocator()
        element, scale, _ = self.types
        shared = tuple(smem.allocate_tensor(element, x.outer, 1024, swizzle=x.inner) for x in layouts[:2]) + tuple(
            smem.allocate_tensor(scale, x, 128) for x in layouts[2:]
        )
        one = CooperativeGroup(Agent.Thread, 1)
        kinds = (element, element, scale, scale)
        operands = PipelineTmaUmma.create(
            barrier_storage=smem.allocate_array(Int64, 2 * self.stages),
            num_stages=self.stages,
            producer_group=one,
            consumer_group=one,
            tx_count=sum(
                cute.size_in_bytes(kind, cute.slice_(x, (None, None, None, 0)))
                for kind, x in zip(kinds, layouts, strict=True)
            ),
            defer_sync=True,
        )
        results = PipelineUmmaAsync.create(
            barrier_storage=smem.allocate_array(Int64, 2),
            num_stages=1,
            producer_group=one,
            consumer_group=CooperativeGroup(Agent.Thread, 128),
            defer_sync=True,
        )
        address = smem.allocate_array(Int32, 2, byte_alignment=8)
        if warp == 0:
            cute.arch.alloc_tmem(COLUMNS, address)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.mbarrier_init_fence()
        before_handover()
        cute.arch.barrier()
        after_handover()
        tmem = cute.arch.retrieve_tmem_ptr(Float32, 16, address)
        tiles = cute.ceil_div(tensors[0].shape[1], K)
        if warp == LOAD:
            self.load(mma, atoms, tensors, shared, operands, tiles)
        if warp == MMA:
            self.multiply(mma, shared, layouts, tmem, operands, results, tiles)
        if warp < 4:
            self.write(mma, tmem, mC, results)
        before_handover()
        cute.arch.barrier()
        if warp == 0:
            cute.arch.dealloc_tmem(tmem, COLUMNS)

    @cute.jit
    def load(self, mma, atoms, tensors, shared, pipe, tiles):
        """Operands and scales of tile k into the next free stage."""
        pairs = self.partitions(mma, atoms, tensors, shared)
        for k in cutlass.range(tiles, unroll=1):
            turn = producer_turn(k, self.stages)
            pipe.producer_acquire(turn)
            for i in cutlass.range_constexpr(4):
                bar = pipe.producer_get_barrier(turn)
                cute.copy(atoms[i], pairs[i][1][None, k], pairs[i][0][None, turn.index], tma_bar_ptr=bar)

    def partitions(self, mma, atoms, tensors, shared):
        """Shared and global side of each copy: (box, stage) and (box, k_tiles)."""
        m, n, _ = cute.arch.block_idx()
        own, one = mma.get_slice(0), cute.make_layout(1)
        pairs = []
        for i, atom in enumerate(atoms):
            extent, where, part = (M, m, own.partition_A) if i % 2 == 0 else (N, n, own.partition_B)
            tiled = part(cute.local_tile(tensors[i], (extent, K), (where, None, 0)))  # (MMA, MMA_MN, MMA_K, k_tiles)
            pair = cpasync.tma_partition(atom, 0, one, cute.group_modes(shared[i], 0, 3), cute.group_modes(tiled, 0, 3))
            # Blocks that share a scale are modes of stride 0.
            pairs.append(tuple(cute.filter_zeros(t) for t in pair) if i > 1 else pair)
        return pairs

    def scale_fields(self, mma, layouts, tmem):
        """Where the scales of A and of B lie in tensor memory, behind the accumulator."""
        _, scale, group = self.types
        fields, first = [], N
        for make, layout in zip(
            (blockscaled.make_tmem_layout_sfa, blockscaled.make_tmem_layout_sfb), layouts[2:], strict=True
        ):
            tiled = make(mma, (M, N, K), group, cute.slice_(layout, (None, None, None, 0)))
            fields.append(cute.make_tensor(cute.recast_ptr(tmem + first, dtype=scale), tiled))
            first += tcgen05.find_tmem_tensor_col_offset(fields[-1])
        return fields

    @cute.jit
    def multiply(self, mma, shared, layouts, tmem, operands, results, tiles):
        """Scales to tensor memory, then the products of the tile; both run in the order of issue."""
        tCrA, tCrB = mma.make_fragment_A(shared[0]), mma.make_fragment_B(shared[1])  # (MMA, MMA_MN, MMA_K, stage)
        fields = self.scale_fields(mma, layouts, tmem)
        tCtC = self.accumulator(mma, tmem)
        copies = self.scale_copies(fields, shared[2:])
        out = producer_turn(0, 1)
        results.producer_acquire(out)
        for k in cutlass.range(tiles, unroll=1):
            turn = consumer_turn(k, self.stages)
            operands.consumer_wait(turn)
            for i in cutlass.range_constexpr(2):
                cute.copy(copies[i][0], copies[i][1][None, None, None, None, turn.index], copies[i][2])
            own = private_copy(mma)
            for block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                own.set(tcgen05.Field.ACCUMULATE, True if block > 0 else cutlass.Boolean(k != 0))
                own.set(tcgen05.Field.SFA, fields[0][None, None, block].iterator)
                own.set(tcgen05.Field.SFB, fields[1][None, None, block].iterator)
                cute.gemm(own, tCtC, tCrA[None, None, block, turn.index], tCrB[None, None, block, turn.index], tCtC)
            operands.consumer_release(turn)
        results.producer_commit(out)

    def scale_copies(self, fields, shared):
        """For A and for B: the copy, the descriptors of its sources by stage, the field."""
        atom = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(tcgen05.CtaGroup.ONE), self.types[1])
        copies = []
        for field, source in zip(fields, shared, strict=True):
            copy = tcgen05.make_s2t_copy(atom, cute.filter_zeros(field))
            own = copy.get_slice(0)
            described = tcgen05.get_s2t_smem_desc_tensor(copy, own.partition_S(cute.filter_zeros(source)))
            copies.append((copy, described, own.partition_D(cute.filter_zeros(field))))
        return copies

    def accumulator(self, mma, tmem):
        """(MMA, MMA_M, MMA_N): the accumulator in tensor memory."""
        return cute.make_tensor(tmem, mma.make_fragment_C(mma.partition_shape_C((M, N))).layout)

    @cute.jit
    def write(self, mma, tmem, mC, pipe):
        """Thread = row: only what exists."""
        thread = cute.arch.thread_idx()[0]
        m, n, _ = cute.arch.block_idx()
        tCtC = self.accumulator(mma, tmem)
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(CHUNK)), Float32)
        copy = tcgen05.make_tmem_copy(atom, tCtC)
        tLtC = copy.get_slice(thread).partition_S(tCtC)  # ((32 columns, 1), chunk, 1, 1)
        pipe.consumer_wait(consumer_turn(0, 1))
        after_handover()
        row = m * M + thread
        for chunk in cutlass.range(N // CHUNK, unroll=1):
            tLrC = cute.make_rmem_tensor(((CHUNK, 1), 1, 1), Float32)
            cute.copy(copy, tLtC[None, chunk, 0, 0], tLrC[None, 0, 0])
            cute.arch.fence_view_async_tmem_load()
            if row < mC.shape[0]:
                for j in cutlass.range_constexpr(CHUNK):
                    column = n * N + chunk * CHUNK + j
                    if column < mC.shape[1]:
                        mC[row, column] = tLrC[j]
