"""Attention for Blackwell (sm_100a): tcgen05.mma, tensor memory, TMA. One CTA computes 128 query rows of one head.

    warp 9      load        Q once, then K and V tile by tile, by TMA into shared memory
    warp 8      mma         S(i+1) = Q K(i+1)^T, then O += P(i) V(i)
    warps 0-3   softmax     thread = row: S(i) -> registers -> P(i), which replaces S(i) in tensor memory
    warps 4-7   correction  thread = row: O *= 2^(old max - new max) before PV(i); then the epilogue: O / row sum -> out

Who waits for whom (pipelines of ``FmhaConfig.pipes``; item = tile number):

    load --q,k,v--> mma --s: S(i) complete--> softmax --s: P(i) stored--> mma --o: PV(i) complete--> correction
                     ^                           |---row: factor of row for tile i ------------------->|
                     |------------------------------- o: O rescaled for tile i + 1 --------------------|

The MMA warp issues everything that touches the tensor core, and the tensor core executes in that order: QK(i+2)
overwrites the stage of S(i) and P(i) only after PV(i), issued before it, has read P(i). No barrier stands between them.

Units: with softmax "online" a score is scale * log2(e) * q.k and the row maximum M is kept in those units, already
rounded, so that every exponent, every rescale factor and the LSE refer to the same M. Else a score is scale * q.k.
"""

from __future__ import annotations

import math
from enum import IntEnum

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100_utils
from cutlass import Boolean, Float32, Int32, Int64, const_expr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

from kernels.fmha.config import CORRECTION_REGISTERS, ROW_STAGES, SOFTMAX_REGISTERS, TILE_KV, TILE_Q, FmhaConfig
from kernels.shared.fences import after_handover, before_handover
from kernels.shared.operands import fetch, partition_a, partition_b, private_copy
from kernels.shared.pipelines import Pipe, consumer_turn, make_pipeline, producer_turn
from kernels.shared.show import show

DTYPES = {"f16": cutlass.Float16, "bf16": cutlass.BFloat16}
LN2 = math.log(2.0)
CHUNK = 32
"""Columns that one tcgen05.ld or tcgen05.st of this kernel moves."""
ROWS = TILE_Q
"""Threads of the softmax warps and of the correction warps: one a row."""


class Bar(IntEnum):
    """Named barriers of the CTA."""

    CTA = 0
    """All warps: barriers initialised and tensor memory allocated; at the end, tensor memory no longer used."""
    EPILOGUE = 1
    """The correction warps: the output tile is complete in shared memory."""


class FmhaSm100:
    """The kernel for one configuration: compiled once, launched for any shape, stride, scale and causal bound."""

    def __init__(self, config: FmhaConfig):
        problems = config.problems("sm100")
        if problems:
            raise ValueError("fmha sm100: " + "; ".join(problems))
        self.config = config
        self.dtype = DTYPES[config.dtype]
        self.warps = config.warps
        self.tmem = config.tmem
        self.qk_tiler = (TILE_Q, TILE_KV, config.head_dim)
        self.pv_tiler = (TILE_Q, config.head_dim, TILE_KV)

    # ------------------------------------------------------------------ host side of the launch

    @cute.jit
    def __call__(
        self,
        mQ: cute.Tensor,  # (b, s_q, h, d)
        mK: cute.Tensor,  # (b, s_kv, h_kv, d)
        mV: cute.Tensor | None,  # (b, s_kv, h_kv, d); None with softmax "none"
        mOut: cute.Tensor,  # (b, s_q, h, d), or (b, h, s_q, s_kv) f32 with softmax "none"
        mLSE: cute.Tensor | None,  # (b, h, s_q) f32 with softmax "online"
        scale: Float32,  # times q.k gives a score in the units of the module's docstring
        diagonal: Int32,  # row i sees key j iff j <= i + diagonal
        stream,
    ):
        mQ = self.heads_last(mQ)  # (s_q, d, h, b)
        mK = self.heads_last(mK)  # (s_kv, d, h_kv, b)
        mS, mO = mOut, None
        if const_expr(self.config.has_pv):
            mV = self.values_first(self.value_operand(mK, self.heads_last(mV)))  # (d, s_kv, h_kv, b)
            mS, mO = None, self.heads_last(mOut)  # (s_q, d, h, b)
        show("rows, d, heads, batch", mQ=mQ, mK=mK)
        qk_mma, pv_mma = self.tiled_mmas()
        layouts = self.shared_layouts(qk_mma, pv_mma)
        atoms, tensors = self.tma_copies(qk_mma, pv_mma, layouts, mQ, mK, mV, mO)
        name = f"{type(self).__name__}_{self.config.softmax}_{self.config.dtype}_d{self.config.head_dim}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(qk_mma, pv_mma, atoms, tensors, mS, mLSE, scale, diagonal, layouts).launch(
            grid=[cute.ceil_div(mQ.shape[0], TILE_Q), mQ.shape[2], mQ.shape[3]],
            block=[self.warps.threads, 1, 1],
            stream=stream,
            min_blocks_per_mp=1,
        )

    def tiled_mmas(self) -> tuple:
        """S = Q K^T with both operands in shared memory; O = P V with P in tensor memory and V as it lies, MN-major."""
        a, accumulator = (self.dtype, self.dtype, OperandMajorMode.K), (Float32, tcgen05.CtaGroup.ONE)
        return (
            sm100_utils.make_trivial_tiled_mma(*a, OperandMajorMode.K, *accumulator, self.qk_tiler[:2]),
            sm100_utils.make_trivial_tiled_mma(
                *a, OperandMajorMode.MN, *accumulator, self.pv_tiler[:2], tcgen05.OperandSource.TMEM
            ),
        )

    def shared_layouts(self, qk_mma, pv_mma) -> tuple:
        """Q, K, V: (MMA, MMA_M or MMA_N, MMA_K, stage); O: (row, d, stage). Swizzled over 128 bytes, as TMA writes."""
        stages = self.config.kv_stages
        return (
            sm100_utils.make_smem_layout_a(qk_mma, self.qk_tiler, self.dtype, 1),
            sm100_utils.make_smem_layout_b(qk_mma, self.qk_tiler, self.dtype, stages),
            sm100_utils.make_smem_layout_b(pv_mma, self.pv_tiler, self.dtype, stages),
            sm100_utils.make_smem_layout_epi(self.dtype, LayoutEnum.ROW_MAJOR, self.pv_tiler[:2], 1),
        )

    def tma_copies(
        self,
        qk_mma,
        pv_mma,
        layouts,
        mQ,  # (s_q, d, h, b)
        mK,  # (s_kv, d, h_kv, b)
        mV,  # (d, s_kv, h_kv, b)
        mO,  # (s_q, d, h, b)
    ) -> tuple:
        """TMA atoms of Q, K, V, O and the tensors of coordinates that go with them, modes as in the given tensors."""
        load, one_cta = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE), (1, 1, 1, 1)
        q, k, v = (cute.select(layout, mode=[0, 1, 2]) for layout in layouts[:3])  # one stage
        copies = [
            cute.nvgpu.make_tiled_tma_atom_A(load, mQ, q, self.qk_tiler, qk_mma, one_cta),
            cute.nvgpu.make_tiled_tma_atom_B(load, mK, k, self.qk_tiler, qk_mma, one_cta),
            (None, None),
            (None, None),
        ]
        if const_expr(self.config.has_pv):
            copies[2] = cute.nvgpu.make_tiled_tma_atom_B(load, mV, v, self.pv_tiler, pv_mma, one_cta)
            store, o = cpasync.CopyBulkTensorTileS2GOp(), cute.select(layouts[3], mode=[0, 1])
            copies[3] = cpasync.make_tiled_tma_atom(store, mO, o, self.pv_tiler[:2])
        return tuple(atom for atom, _ in copies), tuple(tensor for _, tensor in copies)

    def heads_last(self, mX: cute.Tensor) -> cute.Tensor:  # (b, s, h, d) -> (s, d, h, b)
        """Same memory, modes in the order of the tiles. d is static; strides are the caller's, multiples of 16 B."""
        b, s, h, _ = mX.shape
        stride_b, stride_s, stride_h, _ = (
            x if isinstance(x, int) else cute.assume(x, divby=128 // self.dtype.width) for x in mX.stride
        )
        layout = cute.make_layout((s, self.config.head_dim, h, b), stride=(stride_s, 1, stride_h, stride_b))
        return cute.make_tensor(mX.iterator, layout)

    def values_first(self, mV: cute.Tensor) -> cute.Tensor:  # (s_kv, d, h_kv, b) -> (d, s_kv, h_kv, b)
        """V as the B operand of PV: N = d, K = s_kv, so MN-major, whatever the strides."""
        return cute.make_tensor(mV.iterator, cute.select(mV.layout, mode=[1, 0, 2, 3]))

    def value_operand(self, mK: cute.Tensor, mV: cute.Tensor) -> cute.Tensor:
        """The tensor that PV multiplies."""
        return mV

    # ------------------------------------------------------------------ device

    @cute.kernel
    def kernel(
        self,
        qk_mma: cute.TiledMma,
        pv_mma: cute.TiledMma,
        atoms: tuple,  # TMA copies of Q, K, V, O
        tensors: tuple,  # mQ (s_q, d, h, b), mK (s_kv, d, h_kv, b), mV (d, s_kv, h_kv, b), mO (s_q, d, h, b)
        mS: cute.Tensor | None,  # (b, h, s_q, s_kv)
        mLSE: cute.Tensor | None,  # (b, h, s_q)
        scale: Float32,
        diagonal: Int32,
        layouts: tuple,  # shared-memory layouts of Q, K, V, O
    ):
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        tile, head, batch = cute.arch.block_idx()
        mQ, mK, _, _ = tensors
        s_q, s_kv = mQ.shape[0], mK.shape[0]
        where = (tile, head, batch)
        last_row = cutlass.min((tile + 1) * TILE_Q, s_q) - 1
        tiles = cute.ceil_div(self.keys_to_visit(last_row, s_kv, diagonal), TILE_KV)

        smem = SmemAllocator()
        sX = self.shared_tiles(smem, layouts)
        sRow = None
        if const_expr(self.config.has_row_factors):
            sRow = smem.allocate_tensor(Float32, cute.make_layout((ROWS, 2, ROW_STAGES)), 16)  # (row, value, stage)
        pipes = {
            name: make_pipeline(pipe, smem.allocate_array(Int64, pipe.barriers, byte_alignment=8))
            for name, pipe in self.pipes().items()
        }
        tmem_address = smem.allocate_array(Int32, 2, byte_alignment=8)
        if warp == self.warps.correction[0]:
            cute.arch.alloc_tmem(self.tmem.allocated, tmem_address)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.mbarrier_init_fence()
        before_handover()
        cute.arch.barrier(barrier_id=Bar.CTA, number_of_threads=self.warps.threads)
        after_handover()
        tmem = cute.arch.retrieve_tmem_ptr(Float32, 16, tmem_address)

        if warp == self.warps.load:
            self.load(qk_mma, pv_mma, atoms, tensors, sX, pipes, where, tiles)
        if warp == self.warps.mma:
            self.mma(qk_mma, pv_mma, sX, tmem, pipes, tiles)
        # A row of scores needs more registers than an even share: the correction warps give some up (see budget()).
        if warp < self.warps.softmax.stop:
            cute.arch.setmaxregister_increase(SOFTMAX_REGISTERS)
            self.softmax(qk_mma, tmem, sRow, mS, pipes, (s_q, s_kv), where, tiles, scale, diagonal)
        if warp >= self.warps.correction.start and warp < self.warps.correction.stop:
            cute.arch.setmaxregister_decrease(CORRECTION_REGISTERS)
            if const_expr(self.config.has_pv):
                self.correction(pv_mma, tmem, sRow, sX[3], atoms[3], tensors[3], mLSE, pipes, s_q, where, tiles)

        # Whoever frees tensor memory must be the last to use it: every warp is past its last tcgen05 operation here.
        before_handover()
        cute.arch.barrier(barrier_id=Bar.CTA, number_of_threads=self.warps.threads)
        if warp == self.warps.correction[0]:
            cute.arch.dealloc_tmem(tmem, self.tmem.allocated)

    def pipes(self) -> dict[str, Pipe]:
        """The pipelines as their barriers are initialised."""
        return self.config.pipes

    def shared_tiles(self, smem: SmemAllocator, layouts: tuple) -> tuple:
        """sQ, sK, sV: (MMA, MMA_M or MMA_N, MMA_K, stage); sO: (row, d, stage)."""
        wanted = (True, True, self.config.has_pv, self.config.has_pv)
        return tuple(
            smem.allocate_tensor(self.dtype, layout.outer, 1024, swizzle=layout.inner) if want else None
            for layout, want in zip(layouts, wanted, strict=True)
        )

    def keys_to_visit(self, last_row: Int32, s_kv: Int32, diagonal: Int32) -> Int32:
        """Keys 0 .. n - 1 that this CTA must visit. Softmax "none" writes every score, seen or not."""
        if const_expr(not self.config.has_pv):
            return s_kv
        return self.visible_keys(last_row, s_kv, diagonal)

    def visible_keys(self, row: Int32, s_kv: Int32, diagonal: Int32) -> Int32:
        """Row ``row`` sees keys 0 .. n - 1: those that exist and, if causal, those on or below the diagonal."""
        return cutlass.max(cutlass.min(row + diagonal + 1, s_kv), 0)

    # ------------------------------------------------------------------ load warp

    @cute.jit
    def load(self, qk_mma, pv_mma, atoms, tensors, sX, pipes, where, tiles):
        """Issue every TMA load of the CTA: Q, then K(i) and V(i) as their stages come free."""
        for atom in atoms:
            if const_expr(atom is not None):
                cpasync.prefetch_descriptor(atom)
        tile, head, batch = where
        q_atom, k_atom, v_atom, _ = atoms
        mQ, mK, mV, _ = tensors
        sQ, sK, sV, _ = sX
        kv_head = head // (mQ.shape[2] // mK.shape[2])
        tQsQ, tQgQ = partition_a(q_atom, qk_mma, mQ, sQ, self.qk_tiler)  # (box, 1), (box, q_tiles, 1, h, b)
        tKsK, tKgK = partition_b(k_atom, qk_mma, mK, sK, self.qk_tiler)  # .., (box, kv_tiles, 1, h_kv, b)
        show("TMA box, kv tile, d tile, head, batch", tKgK_all=tKgK)
        tQgQ = tQgQ[None, None, 0, head, batch]  # (box, q_tiles)
        tKgK = self.key_tiles(tKgK, kv_head, batch)  # (box, kv_tiles)
        show("TMA box, stage", tQsQ, tKsK)
        show("TMA box, tile", tQgQ, tKgK)
        if const_expr(self.config.has_pv):
            tVsV, tVgV = partition_b(v_atom, pv_mma, mV, sV, self.pv_tiler)  # .., (box, 1, kv_tiles, h_kv, b)
            show("TMA box, d tile, kv tile, head, batch", tVgV_all=tVgV)
            tVgV = self.value_tiles(tVgV, kv_head, batch)  # (box, kv_tiles)
            show("TMA box, stage", tVsV)
            show("TMA box, tile", tVgV)
        if tiles > 0:
            fetch(q_atom, tQgQ, tile, tQsQ, pipes["q"], 0)
            for i in cutlass.range(tiles, unroll=1):
                fetch(k_atom, tKgK, i, tKsK, pipes["k"], i)
                if const_expr(self.config.has_pv):
                    fetch(v_atom, tVgV, i, tVsV, pipes["v"], i)

    def key_tiles(self, tKgK, kv_head, batch):  # (box, kv_tiles, 1, h_kv, b) -> (box, kv_tiles)
        """The key tiles of one head. K is the B operand of QK: mode 1 counts N = s_kv, mode 2 is the one tile of d."""
        return tKgK[None, None, 0, kv_head, batch]

    def value_tiles(self, tVgV, kv_head, batch):  # (box, 1, kv_tiles, h_kv, b) -> (box, kv_tiles)
        """The value tiles of one head. V is the B operand of PV: mode 1 is the one tile of N = d, *mode 2* counts s_kv.

        ``tVgV[None, None, 0, ...]`` would keep mode 1, whose stride is 0, and pin mode 2: every tile number then reads
        tile 0, and a sequence of one tile still passes.
        """
        return tVgV[None, 0, None, kv_head, batch]

    # ------------------------------------------------------------------ mma warp

    @cute.jit
    def mma(self, qk_mma, pv_mma, sX, tmem, pipes, tiles):
        """Issue QK one tile ahead of PV, so that the tensor core works while the softmax warps do."""
        sQ, sK, sV, _ = sX
        tSrQ = qk_mma.make_fragment_A(sQ)  # (MMA, MMA_M, MMA_K, 1)
        tSrK = qk_mma.make_fragment_B(sK)  # (MMA, MMA_N, MMA_K, stage)
        tStS = self.scores(qk_mma, tmem)  # (MMA, MMA_M, MMA_N, stage)
        show("MMA, M, K, stage", tSrQ=tSrQ, tSrK=tSrK)
        show("MMA, M, N, stage", tStS=tStS)
        tOrV, tOtO = None, None
        if const_expr(self.config.has_pv):
            tOrV = pv_mma.make_fragment_B(sV)  # (MMA, MMA_N, MMA_K, stage)
            tOtO = self.accumulator(pv_mma, tmem)  # (MMA, MMA_M, MMA_N)
            show("MMA, N, K, stage", tOrV=tOrV)
            show("MMA, M, N", tOtO=tOtO)
        if tiles > 0:
            pipes["q"].consumer_wait(consumer_turn(0, 1))
            self.issue_qk(qk_mma, tSrQ, tSrK, tStS, pipes, Int32(0))
            for i in cutlass.range(tiles, unroll=1):
                if i + 1 < tiles:
                    self.issue_qk(qk_mma, tSrQ, tSrK, tStS, pipes, i + 1)
                if const_expr(self.config.has_pv):
                    self.issue_pv(pv_mma, tOrV, tOtO, tmem, pipes, i)

    def scores(self, qk_mma, tmem):
        """tStS (MMA, MMA_M, MMA_N, stage): the scores in tensor memory."""
        shape = qk_mma.partition_shape_C(self.qk_tiler[:2])
        tStS = qk_mma.make_fragment_C(cute.append(shape, self.tmem.S.stages))
        return cute.make_tensor(tmem + self.tmem.S.first, tStS.layout)

    def accumulator(self, pv_mma, tmem):
        """tOtO (MMA, MMA_M, MMA_N): the output accumulator in tensor memory."""
        tOtO = pv_mma.make_fragment_C(pv_mma.partition_shape_C(self.pv_tiler[:2]))
        return cute.make_tensor(tmem + self.tmem.O.first, tOtO.layout)

    def probabilities(self, pv_mma, tmem, stage):
        """tOrP (MMA, MMA_M, MMA_K): P of one stage as the A operand of PV, read from tensor memory."""
        layout = sm100_utils.make_smem_layout_a(pv_mma, self.pv_tiler, self.dtype, 1).outer
        tOrP = pv_mma.make_fragment_A(cute.make_tensor(tmem, layout))[None, None, None, 0]
        # Columns are counted in 32-bit words: offset the f32 pointer first, then read it as 16-bit elements.
        first = tmem + self.tmem.P.first + stage * self.tmem.P.stride
        return cute.make_tensor(cute.recast_ptr(first, dtype=self.dtype), tOrP.layout)

    @cute.jit
    def issue_qk(
        self,
        qk_mma,
        tSrQ,  # (MMA, MMA_M, MMA_K, 1)
        tSrK,  # (MMA, MMA_N, MMA_K, stage)
        tStS,  # (MMA, MMA_M, MMA_N, stage)
        pipes,
        i,
    ):
        """S(i) = Q K(i)^T, overwriting."""
        if const_expr(not self.config.has_pv):
            # With a PV the stage is known to be free: PV(i - 2) waited for P(i - 2) and was issued before this.
            pipes["s"].producer_acquire(producer_turn(i, self.tmem.S.stages))
        k_turn = consumer_turn(i, self.config.kv_stages)
        s_turn = consumer_turn(i, self.tmem.S.stages)
        pipes["k"].consumer_wait(k_turn)
        after_handover()
        qk_mma = private_copy(qk_mma)
        tS = tStS[None, None, None, s_turn.index]
        for block in cutlass.range_constexpr(cute.size(tSrQ, mode=[2])):
            qk_mma.set(tcgen05.Field.ACCUMULATE, block != 0)
            cute.gemm(qk_mma, tS, tSrQ[None, None, block, 0], tSrK[None, None, block, k_turn.index], tS)
        self.release_stage(pipes["k"], k_turn)
        self.commit_scores(pipes["s"], s_turn)

    @cute.jit
    def issue_pv(
        self,
        pv_mma,
        tOrV,  # (MMA, MMA_N, MMA_K, stage)
        tOtO,  # (MMA, MMA_M, MMA_N)
        tmem,
        pipes,
        i,
    ):
        """O += P(i) V(i), or O = P(0) V(0), once P(i) is stored and O is rescaled for tile i."""
        v_turn = consumer_turn(i, self.config.kv_stages)
        pipes["v"].consumer_wait(v_turn)
        # The softmax warps give the stage of S(i) back when P(i) is in it: that is the turn of item i + stages.
        stages = self.tmem.S.stages
        pipes["s"].producer_acquire(producer_turn(i + stages, stages))
        pipes["o"].producer_acquire(producer_turn(i, 1))
        after_handover()
        pv_mma = private_copy(pv_mma)
        tOrP = self.probabilities(pv_mma, tmem, i % stages)
        for block in cutlass.range_constexpr(cute.size(tOrP, mode=[2])):
            pv_mma.set(tcgen05.Field.ACCUMULATE, self.pv_accumulates(i, block))
            cute.gemm(pv_mma, tOtO, tOrP[None, None, block], tOrV[None, None, block, v_turn.index], tOtO)
        self.release_stage(pipes["v"], v_turn)
        # Last, because the CTA may end once this arrives: commits arrive in the order in which they were issued.
        pipes["o"].producer_commit(consumer_turn(i, 1))

    def pv_accumulates(self, i: Int32, block: int):
        """Whether a PV instruction adds to O. The first must not: tensor memory holds what the last kernel left."""
        return True if block > 0 else Boolean(i != 0)

    def commit_scores(self, pipe, turn):
        """Tell the softmax warps that S is complete, once it is."""
        pipe.producer_commit(turn)

    def release_stage(self, pipe, turn):
        """Give a K or V stage back to the load warp once the products that read it are complete."""
        pipe.consumer_release(turn)

    # ------------------------------------------------------------------ softmax warps

    @cute.jit
    def softmax(
        self,
        qk_mma,
        tmem,
        sRow,  # (row, value, stage)
        mS,  # (b, h, s_q, s_kv)
        pipes,
        extents,  # s_q, s_kv
        where,  # query tile, head, batch
        tiles,
        scale,
        diagonal,
    ):
        """Thread = row. Per tile: read S(i), mask, update M and the row sum, store P(i) over S(i)."""
        s_q, s_kv = extents
        tile, head, batch = where
        thread = cute.arch.thread_idx()[0] % ROWS
        first_row = tile * TILE_Q
        visible = self.visible_keys(first_row + thread, s_kv, diagonal)
        visible_to_all = self.visible_keys(first_row, s_kv, diagonal)
        tStS = self.scores(qk_mma, tmem)  # (MMA, MMA_M, MMA_N, stage)
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(CHUNK)), Float32)
        copy_s = tcgen05.make_tmem_copy(atom, tStS[None, None, None, 0])
        tLtS = copy_s.get_slice(thread).partition_S(tStS)  # ((32 columns, 1), chunk, 1, 1, stage)
        show("columns, chunk, 1, 1, stage", tLtS=tLtS)
        row_max, row_sum = -Float32.inf, Float32(0.0)
        for i in cutlass.range(tiles, unroll=1):
            turn = consumer_turn(i, self.tmem.S.stages)
            pipes["s"].consumer_wait(turn)
            after_handover()
            tLrS = cute.make_rmem_tensor(((CHUNK, 1), TILE_KV // CHUNK, 1, 1), Float32)  # ((32 keys, 1), chunk, 1, 1)
            cute.copy(copy_s, tLtS[None, None, None, None, turn.index], tLrS)
            cute.arch.fence_view_async_tmem_load()
            self.mask(tLrS, visible - i * TILE_KV, visible_to_all - i * TILE_KV)
            if const_expr(self.config.has_row_factors):
                new_max, factor = self.new_max(tLrS, row_max, scale)
                if i > 0:
                    self.post_row(sRow, pipes["row"], i - 1, thread, factor, new_max)
                row_sum = cute.math.fma(row_sum, factor, self.exponentials(tLrS, scale, new_max))
                row_max = self.carried_max(i, row_max, new_max)
            else:
                self.scale_scores(tLrS, scale)
            if const_expr(self.config.has_pv):
                self.store_probabilities(tLrS, tStS, tmem, turn.index, thread)
            else:
                self.store_scores(tLrS, mS, batch, head, first_row + thread, i * TILE_KV, s_q, s_kv)
            before_handover()
            pipes["s"].consumer_release(turn)
        if const_expr(self.config.has_row_factors):
            self.post_row(sRow, pipes["row"], cutlass.max(tiles - 1, 0), thread, row_sum, row_max)

    @cute.jit
    def mask(self, tLrS, visible, visible_to_all):  # ((32 keys, 1), chunk, 1, 1)
        """Minus infinity for the keys of this tile from ``visible`` on (zero when P is the score itself).

        Chunks that every row of the CTA sees whole are passed over: most tiles hold no other.
        """
        hidden = -Float32.inf if const_expr(self.config.softmax != "identity") else Float32(0.0)
        for chunk in cutlass.range_constexpr(TILE_KV // CHUNK):
            if (chunk + 1) * CHUNK > visible_to_all:
                for column in cutlass.range_constexpr(CHUNK):
                    key = chunk * CHUNK + column
                    tLrS[key] = cutlass.select_(key < visible, tLrS[key], hidden)

    def chunks(self, tLrS):  # ((32 keys, 1), chunk, 1, 1)
        """The row in vectors of 32 scores."""
        return [tLrS[None, chunk, 0, 0] for chunk in range(TILE_KV // CHUNK)]

    def new_max(self, tLrS, row_max, scale):  # ((32 keys, 1), chunk, 1, 1)
        """Running maximum M with this tile, and the factor 2^(old M - M) for what was summed so far."""
        tile_max = -Float32.inf
        for chunk in self.chunks(tLrS):
            tile_max = chunk.load().reduce(cute.ReductionOp.MAX, tile_max, 0)
        new_max = cute.arch.fmax(row_max, tile_max * scale)
        return new_max, cute.math.exp2(row_max - self.finite(new_max), fastmath=True)

    def finite(self, row_max):
        """M, or 0 for a row that has seen no key: -inf - -inf would be NaN, and 2^(-inf - 0) is the wanted 0."""
        return cutlass.select_(row_max == -Float32.inf, Float32(0.0), row_max)

    def carried_max(self, i, row_max, new_max):
        """The maximum that the next tile starts from."""
        return new_max

    def exponentials(self, tLrS, scale, row_max):  # ((32 keys, 1), chunk, 1, 1)
        """Replace each score by 2^(score - M), one rounding in the exponent; return their sum."""
        minus_max = -self.finite(row_max)
        total = None
        for chunk in self.chunks(tLrS):
            scores = chunk.load()
            weights = cute.math.exp2(
                cute.math.fma(scores, cute.full_like(scores, scale), cute.full_like(scores, minus_max)), fastmath=True
            )
            chunk.store(weights)
            total = weights if total is None else total + weights
        return total.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)

    def scale_scores(self, tLrS, scale):  # ((32 keys, 1), chunk, 1, 1)
        """Replace q.k by the score; a hidden score (-inf, or 0) stays."""
        for chunk in self.chunks(tLrS):
            chunk.store(chunk.load() * scale)

    def store_probabilities(
        self,
        tLrS,  # ((32 keys, 1), chunk, 1, 1)
        tStS,  # (MMA, MMA_M, MMA_N, stage)
        tmem,
        stage,
        thread,
    ):
        """Round P to 16 bits and store it over S, two keys a 32-bit column, the lower key in the lower half."""
        tStP = self.probability_columns(tStS, tmem, stage)  # (row, column)
        words = CHUNK // 2
        atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition(words)), Float32)
        copy_p = tcgen05.make_tmem_copy(atom, tStP)
        tPtP = copy_p.get_slice(thread).partition_D(tStP)  # ((16 columns, 1), 1, chunk)
        show("columns, 1, chunk", tPtP=tPtP)
        for chunk, scores in enumerate(self.chunks(tLrS)):
            tPrP = cute.make_rmem_tensor(((words, 1), 1), Float32)
            packed = cute.make_tensor(cute.recast_ptr(tPrP.iterator, dtype=self.dtype), self.probability_order())
            packed.store(scores.load().to(self.dtype))
            cute.copy(copy_p, tPrP, tPtP[None, None, chunk])
        cute.arch.fence_view_async_tmem_store()

    def probability_columns(self, tStS, tmem, stage):  # (MMA, MMA_M, MMA_N, stage)
        """tStP (row, column), f32 words that hold two probabilities each.

        P is stored through the layout of S, the C fragment of QK, in which thread = lane = row. tcgen05.st moves 32-bit
        words; the A fragment of PV describes the same columns in 16-bit elements and doesn't fit a store.
        """
        layout = cute.composition(tStS[None, None, None, 0].layout, cute.make_layout((TILE_Q, self.tmem.P.width)))
        return cute.make_tensor(tmem + self.tmem.P.first + stage * self.tmem.P.stride, layout)

    def probability_order(self):
        """Where key i of a chunk lies among its 16-bit registers: two neighbouring keys share a word."""
        return cute.make_layout((CHUNK, 1))

    @cute.jit
    def store_scores(
        self,
        tLrS,  # ((32 keys, 1), chunk, 1, 1)
        mS,  # (b, h, s_q, s_kv)
        batch,
        head,
        row,
        first_key,
        s_q,
        s_kv,
    ):
        """Softmax "none": this thread's row to global memory, only what exists. s_kv may be odd, so TMA can't."""
        if row < s_q:
            for chunk in cutlass.range_constexpr(TILE_KV // CHUNK):
                for column in cutlass.range_constexpr(CHUNK):
                    key = chunk * CHUNK + column
                    if first_key + key < s_kv:
                        mS[batch, head, row, first_key + key] = tLrS[key]

    @cute.jit
    def post_row(self, sRow, pipe, item, thread, first, second):  # (row, value, stage)
        """Hand two values of this row to the correction warps: (factor, M) between tiles, (row sum, M) at the end."""
        turn = producer_turn(item, ROW_STAGES)
        pipe.producer_acquire(turn)
        sRow[thread, 0, turn.index] = first
        sRow[thread, 1, turn.index] = second
        pipe.producer_commit(turn)

    # ------------------------------------------------------------------ correction warps

    @cute.jit
    def correction(
        self,
        pv_mma,
        tmem,
        sRow,  # (row, value, stage)
        sO,  # (row, d, 1)
        o_atom,
        mO,  # (s_q, d, h, b)
        mLSE,  # (b, h, s_q)
        pipes,
        s_q,
        where,  # query tile, head, batch
        tiles,
    ):
        """Thread = row. Rescale O between tiles, then write the output tile."""
        thread = cute.arch.thread_idx()[0] % ROWS
        tOtO = self.accumulator(pv_mma, tmem)  # (MMA, MMA_M, MMA_N)
        for i in cutlass.range(1, tiles, unroll=1):
            factor = Float32(1.0)
            if const_expr(self.config.has_row_factors):
                factor, _ = self.take_row(sRow, pipes["row"], i - 1, thread)
            turn = consumer_turn(i - 1, 1)
            pipes["o"].consumer_wait(turn)
            after_handover()
            if const_expr(self.config.has_row_factors):
                # Multiplying by 1 changes nothing, so skipping it is exact, and most tiles don't move most maxima.
                if cute.arch.vote_any_sync(factor != Float32(1.0)):
                    self.rescale(tOtO, thread, factor)
            before_handover()
            pipes["o"].consumer_release(turn)
        row_sum, row_max = Float32(1.0), Float32(0.0)
        if const_expr(self.config.has_row_factors):
            row_sum, row_max = self.take_row(sRow, pipes["row"], cutlass.max(tiles - 1, 0), thread)
        if tiles > 0:
            pipes["o"].consumer_wait(consumer_turn(tiles - 1, 1))
            after_handover()
        self.epilogue(pv_mma, tOtO, sO, o_atom, mO, mLSE, s_q, where, tiles, thread, row_sum, row_max)

    @cute.jit
    def take_row(self, sRow, pipe, item, thread):  # (row, value, stage)
        """What ``post_row`` handed over for this row."""
        turn = consumer_turn(item, ROW_STAGES)
        pipe.consumer_wait(turn)
        first, second = sRow[thread, 0, turn.index], sRow[thread, 1, turn.index]
        pipe.consumer_release(turn)
        return first, second

    def rescale(self, tOtO, thread, factor):  # (MMA, MMA_M, MMA_N)
        """O *= factor through registers, 32 columns at a time.

        Load and store are one shape, 32x32b: lane = row, register = column. With two shapes, each right for itself, the
        round trip is not the identity, whatever layout the MMA gave O.
        """
        tOtO = cute.make_tensor(tOtO.iterator, cute.composition(tOtO.layout, cute.make_layout((TILE_Q, CHUNK))))
        load_op, store_op = (op(tcgen05.Repetition(CHUNK)) for op in (tcgen05.Ld32x32bOp, tcgen05.St32x32bOp))
        load = tcgen05.make_tmem_copy(cute.make_copy_atom(load_op, Float32), tOtO)
        store = tcgen05.make_tmem_copy(cute.make_copy_atom(store_op, Float32), tOtO)
        source = load.get_slice(thread).partition_S(tOtO)  # ((32 columns, 1), 1, 1)
        target = store.get_slice(thread).partition_D(tOtO)  # ((32 columns, 1), 1, 1)
        show("columns, 1, 1", rescale_from=source, rescale_to=target)
        for first in range(0, self.config.head_dim, CHUNK):
            tRrO = cute.make_rmem_tensor(((CHUNK, 1), 1, 1), Float32)
            cute.copy(load, cute.make_tensor(source.iterator + first, source.layout), tRrO)
            cute.arch.fence_view_async_tmem_load()
            self.scale_output(tRrO, factor)
            cute.copy(store, tRrO, cute.make_tensor(target.iterator + first, target.layout))
        cute.arch.fence_view_async_tmem_store()

    def scale_output(self, tRrO, factor):  # ((32 columns, 1), 1, 1)
        """The multiplication of the rescale."""
        tRrO.store(tRrO.load() * factor)

    @cute.jit
    def epilogue(
        self,
        pv_mma,
        tOtO,  # (MMA, MMA_M, MMA_N)
        sO,  # (row, d, 1)
        o_atom,
        mO,  # (s_q, d, h, b)
        mLSE,  # (b, h, s_q)
        s_q,
        where,  # query tile, head, batch
        tiles,
        thread,
        row_sum,
        row_max,
    ):
        """One way: tensor memory -> registers (divide by the row sum, round) -> shared memory -> TMA store.

        TMA drops rows past s_q, so a ragged tile needs no predicate. A row that has seen no key gives 0 and LSE -inf.
        """
        tile, head, batch = where
        unseen = row_sum == Float32(0.0)
        inverse = Float32(1.0) / cutlass.select_(unseen, Float32(1.0), row_sum)
        load, store, tEtO, tEsO = self.partition_output(pv_mma, tOtO, sO, thread)
        for chunk in cutlass.range_constexpr(self.config.head_dim // CHUNK):
            tErO = cute.make_rmem_tensor(tEsO[None, 0, 0, chunk].shape, Float32)  # ((32 columns, 1),)
            tErO.fill(0.0)
            if tiles > 0:
                cute.copy(load, tEtO[None, 0, 0, chunk], tErO)
                cute.arch.fence_view_async_tmem_load()
            if unseen:
                tErO.fill(0.0)  # not O * 0: a hidden value may be NaN
            tErOut = cute.make_rmem_tensor(tErO.shape, self.dtype)
            tErOut.store((tErO.load() * inverse).to(self.dtype))
            cute.copy(store, tErOut, tEsO[None, 0, 0, chunk])
        if const_expr(self.config.has_row_factors):
            row = tile * TILE_Q + thread
            if row < s_q:
                mLSE[batch, head, row] = cute.math.fma(row_max, Float32(LN2), cute.math.log(row_sum, fastmath=True))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=Bar.EPILOGUE, number_of_threads=ROWS)
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == self.warps.correction[0]:
            gO = cute.flat_divide(mO, self.pv_tiler[:2])[None, None, tile, 0, head, batch]  # (128, d)
            one_cta = cute.make_layout(1)
            tOsO, tOgO = cpasync.tma_partition(
                o_atom, 0, one_cta, cute.group_modes(sO[None, None, 0], 0, 2), cute.group_modes(gO, 0, 2)
            )  # (box,), (box,)
            show("TMA box", tOsO=tOsO, tOgO=tOgO)
            with cute.arch.elect_one():
                cute.copy(o_atom, tOsO, tOgO)
                cute.arch.cp_async_bulk_commit_group()
                # The CTA's shared memory must outlive the reads, not the writes.
                cute.arch.cp_async_bulk_wait_group(0, read=True)

    def partition_output(
        self,
        pv_mma,
        tOtO,  # (MMA, MMA_M, MMA_N)
        sO,  # (row, d, 1)
        thread,
    ):
        """Copies and partitions of the epilogue: load and store, tEtO and tEsO (both (columns, 1, 1, chunk))."""
        tile = (TILE_Q, CHUNK)
        columns = cute.make_layout(tile)
        atom = sm100_utils.get_tmem_load_op(self.pv_tiler, LayoutEnum.ROW_MAJOR, self.dtype, Float32, tile, False)
        tOtO = cute.logical_divide(tOtO, columns)[(None, None), None]  # (row, 32, chunk)
        tOsO = pv_mma.get_slice(0).partition_C(sO[None, None, 0])  # (MMA, MMA_M, MMA_N)
        tOsO = cute.logical_divide(tOsO, columns)[(None, None), None]  # (row, 32, chunk)
        load = tcgen05.make_tmem_copy(atom, tOtO[None, None, 0])
        store = cute.make_tiled_copy_D(
            sm100_utils.get_smem_store_op(LayoutEnum.ROW_MAJOR, self.dtype, Float32, load), load
        )
        tEtO = load.get_slice(thread).partition_S(tOtO)  # ((32 columns, 1), 1, 1, chunk)
        tEsO = load.get_slice(thread).partition_D(tOsO)  # ((32 columns, 1), 1, 1, chunk)
        show("columns, 1, 1, chunk", tEtO=tEtO, tEsO=tEsO)
        return load, store, tEtO, tEsO
