"""The block-scaled linear for Blackwell (sm_100a): NVFP4 tokens times NVFP4 weights on tcgen05, sums in tensor memory.

    warp 5      load      codes and scales of both sides, 256 k a stage, by TMA; zeros beyond every end
    warp 4      mma       scales from shared to tensor memory, then D += (A scaleA)(B scaleB)^T, 64 k an instruction
    warps 0-3   epilogue  thread = row of A: D -> registers, times both global scales -> BF16 -> y

    load --ring: a stage is filled--> mma --sums: a tile is complete--> epilogue

Tiles are dealt to the CTAs in a fixed order, the tokens of a weight tile one after the other. Where few tokens meet
few rows, the CTAs of a cluster share the K of a tile, and the first one adds their sums in the order of their ranks.
Nothing depends on who comes first. Tensor memory holds one stage of scales: the copies of the next stage are issued
behind the products that read it, by the same thread, and tcgen05.cp and tcgen05.mma of a thread run in that order.

Exactness: products of E2M1 under E4M3 scales are exact, an instruction's sum over 64 k is cut to 35 bits below the
largest scale and rounded towards zero to f32 (PTX, tcgen05.mma.kind::mxf4nvf4, leaves it open; this is what hardware
does).
"""

from __future__ import annotations

from enum import IntEnum

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100_utils
from cutlass import Boolean, Float32, Int16, Int32, Int64, const_expr
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.memory import SmemAllocator

from kernels.linear.ptx import arrive_cluster, load_shared_f32, store_cluster_f32, wait_cluster
from kernels.linear.sm100_config import (
    ATOM_BYTES,
    ATOM_COLUMNS,
    ATOM_ROWS,
    LANES,
    STEP_K,
    TILE_K,
    LinearSm100Config,
)
from kernels.linear.sm100_ptx import copy_scales, store_bf16
from kernels.shared import ptx
from kernels.shared.configured import Configured
from kernels.shared.fences import after_handover, before_handover
from kernels.shared.operands import partition_a, partition_b, private_copy
from kernels.shared.pipelines import WARP, consumer_turn, make_pipeline, producer_turn

CODE, SCALE = cutlass.Float4E2M1FN, cutlass.Float8E4M3FN
ATOM = ATOM_BYTES // 2
"""An atom of scales in the 16-bit elements that its copies move."""
STEPS = TILE_K // STEP_K
CHUNK = 32
"""Columns that one tcgen05.ld moves, at most."""
VECTOR = 8
"""BF16 outputs of a 16-byte store."""


class Bar(IntEnum):
    """Named barriers of the CTA."""

    CTA = 0
    """All warps: barriers initialised and tensor memory allocated; at the end, tensor memory no longer used."""


class LinearSm100(Configured):
    """The kernel for one configuration: compiled once, launched for any number of tokens, strides and addresses."""

    config: LinearSm100Config

    # ------------------------------------------------------------------ host side of the launch

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (m, k), grouped (m, parts * k): e2m1
        mXs: cute.Tensor,  # bytes of the atoms
        mW: cute.Tensor,  # (rows of all tiles, k): e2m1
        mWs: cute.Tensor,
        mAlpha: cute.Tensor,  # (parts,) f32
        mG: cute.Tensor,  # (1,) f32: the global scale of x
        mOut: cute.Tensor,  # (m * rows of all parts,) bf16, or codes
        mScales: cute.Tensor | None,  # block scales, where the outputs are quantised
        mScale: cute.Tensor | None,  # (1,) f32: their global scale
        mCos: cute.Tensor | None,  # (m, width / 2) f32, where the outputs are rotated
        mSin: cute.Tensor | None,
        m: Int32,
        ctas: Int32,
        stream,
    ):
        c = self.config
        mma = self.tiled_mma()
        x, w = (self.codes(mX, len(c.parts) if c.grouped else 1), self.codes(mW, 1))
        xs, ws = self.scales(mXs, x), self.scales(mWs, w)
        layouts = self.shared_layouts(mma)
        (a, a_s), (b, b_s) = ((w, ws), (x, xs)) if c.swapped else ((x, xs), (w, ws))
        op, one_cta, tiler = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE), (1, 1, 1, 1), self.tiler
        stages = [cute.select(layout, mode=[0, 1, 2]) for layout in layouts]
        copies = (
            cute.nvgpu.make_tiled_tma_atom_A(op, a, stages[0], tiler, mma, one_cta),
            cute.nvgpu.make_tiled_tma_atom_B(op, b, stages[1], tiler, mma, one_cta),
            cpasync.make_tiled_tma_atom(op, a_s, stages[2], (ATOM, STEPS, 1)),
            cpasync.make_tiled_tma_atom(op, b_s, stages[3], (ATOM, STEPS, c.b_atoms)),
        )
        name = f"{type(self).__name__}_k{c.k}_{'w' if c.swapped else 'x'}{c.tokens}x{c.rows}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        atoms, tensors = tuple(atom for atom, _ in copies), tuple(tensor for _, tensor in copies)
        extras = (mScales, mScale, mCos, mSin)
        self.kernel(mma, atoms, tensors, layouts, mAlpha, mG, mOut, extras, m, ctas).launch(
            grid=[ctas, 1, 1],
            block=[c.warps.threads, 1, 1],
            cluster=[c.split, 1, 1],
            stream=stream,
            min_blocks_per_mp=1,
            use_pdl=c.pdl,
        )

    @property
    def tiler(self) -> tuple[int, int, int]:
        """M, N, K of a stage."""
        return LANES, self.config.columns, TILE_K

    def tiled_mma(self) -> cute.TiledMma:
        """The instruction: both operands K-major in shared memory."""
        shape = (LANES, self.config.columns, STEP_K)
        op = tcgen05.MmaMXF4NVF4Op(SCALE, shape, tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM)
        return cute.make_tiled_mma(op)

    def shared_layouts(self, mma) -> tuple:
        """Codes (MMA, MMA_M or MMA_N, MMA_K, stage), in the swizzle that TMA writes; scales (atom, k, rows, stage)."""
        c = self.config
        return (
            sm100_utils.make_smem_layout_a(mma, self.tiler, CODE, c.stages),
            sm100_utils.make_smem_layout_b(mma, self.tiler, CODE, c.stages),
            cute.make_layout((ATOM, STEPS, 1, c.stages)),
            cute.make_layout((ATOM, STEPS, c.b_atoms, c.stages)),
        )

    def codes(self, mX: cute.Tensor, groups: int) -> cute.Tensor:  # (rows, groups * k) -> (rows, k, groups)
        """The same memory; a row begins at a multiple of 16 bytes."""
        k, stride = self.config.k, cute.assume(mX.stride[0], divby=32)
        layout = cute.make_layout((mX.shape[0], k, groups), stride=(stride, 1, k if groups > 1 else 0))
        return cute.make_tensor(mX.iterator, layout)

    def scales(self, mS: cute.Tensor, codes: cute.Tensor) -> cute.Tensor:  # bytes -> (atom, k, rows, groups)
        """The atoms of scales of `codes`, in elements of 16 bits."""
        rows, _, groups = codes.shape
        wide = self.config.atoms
        stride = (1, ATOM, ATOM * wide * groups, ATOM * wide if groups > 1 else 0)
        layout = cute.make_layout((ATOM, wide, cute.ceil_div(rows, ATOM_ROWS), groups), stride=stride)
        return cute.make_tensor(cute.recast_ptr(mS.iterator, dtype=Int16), layout)

    # ------------------------------------------------------------------ device

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        atoms: tuple,  # TMA copies of the codes of A and B and of their scales
        tensors: tuple,  # codes (rows, k, groups), scales (atom, k, rows, groups)
        layouts: tuple,
        mAlpha: cute.Tensor,
        mG: cute.Tensor,
        mOut: cute.Tensor,
        extras: tuple,  # what only some epilogues have
        m: Int32,
        ctas: Int32,
    ):
        c = self.config
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        cta, _, _ = cute.arch.block_idx()
        cta, ctas = cta // c.split, ctas // c.split
        items = cute.ceil_div(m, c.tokens) * c.weight_tiles
        count = (items - cta + ctas - 1) // ctas
        smem = SmemAllocator()
        shared = tuple(smem.allocate_tensor(CODE, x.outer, 1024, swizzle=x.inner) for x in layouts[:2])
        shared = shared + tuple(smem.allocate_tensor(Int16, x, 128) for x in layouts[2:])
        pipes = {
            name: make_pipeline(pipe, smem.allocate_array(Int64, pipe.barriers, byte_alignment=8))
            for name, pipe in self.pipes().items()
        }
        gathered = self.gathering(smem, warp)
        address = smem.allocate_array(Int32, 2, byte_alignment=8)
        if warp == 0:
            cute.arch.alloc_tmem(c.allocated, address)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.mbarrier_init_fence()
        before_handover()
        self.meet()
        after_handover()
        tmem = cute.arch.retrieve_tmem_ptr(Float32, 16, address)
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_launch_dependents()
        if warp == c.warps.load:
            self.load(mma, atoms, tensors, shared, pipes, cta, ctas, count, m)
        if warp == c.warps.mma:
            self.multiply(mma, shared, tmem, pipes, count)
        if warp < c.warps.epilogue.stop:
            self.finish(mma, tmem, mAlpha, mG, mOut, extras, pipes, gathered, cta, ctas, count, m)
        # Whoever frees tensor memory must be the last to use it: every warp is past its last tcgen05 operation here.
        # And nobody leaves while another CTA may still write to its shared memory.
        before_handover()
        self.meet()
        if warp == 0:
            cute.arch.dealloc_tmem(tmem, c.allocated)

    def pipes(self) -> dict:
        """The pipelines as their barriers are initialised."""
        return self.config.pipes

    def meet(self) -> None:
        """A barrier of the whole CTA; with a split, of the cluster."""
        if self.config.split > 1:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        else:
            cute.arch.barrier(barrier_id=Bar.CTA, number_of_threads=self.config.warps.threads)

    def rank(self):
        """This CTA's place in its cluster: its share of K."""
        return cute.arch.block_idx()[0] % self.config.split

    def share(self) -> tuple:
        """First tile along k of this CTA, and how many it has."""
        c, rank = self.config, self.rank()
        first = rank * c.k_tiles // c.split
        return first, (rank + 1) * c.k_tiles // c.split - first

    def tile(self, i, cta, ctas, m) -> tuple:
        """Token tile and weight tile of the cluster's item i."""
        item, across = cta + i * ctas, cute.ceil_div(m, self.config.tokens)
        return item % across, item // across

    # ------------------------------------------------------------------ load warp

    @cute.jit
    def load(self, mma, atoms, tensors, shared, pipes, cta, ctas, count, m):
        """Codes and scales of both sides, stage after stage. What the previous kernel does not write, the weight, is
        under way before that kernel has ended."""
        c, pipe = self.config, pipes["ring"]
        for atom in atoms:
            cpasync.prefetch_descriptor(atom)
        pairs = self.partitions(mma, atoms, tensors, shared)
        w, x = (0, 1) if c.swapped else (1, 0)
        turns = count * self.share()[1]
        early = cutlass.min(turns, c.stages) if c.pdl else Int32(0)
        for i in cutlass.range(early, unroll=1):
            pipe.producer_acquire(producer_turn(i, c.stages))
            self.fetch(atoms, pairs, pipe, i, cta, ctas, m, (w, w + 2))
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_wait()
        for i in cutlass.range(early, unroll=1):
            self.fetch(atoms, pairs, pipe, i, cta, ctas, m, (x, x + 2))
        for i in cutlass.range(early, turns, unroll=1):
            pipe.producer_acquire(producer_turn(i, c.stages))
            self.fetch(atoms, pairs, pipe, i, cta, ctas, m, (0, 1, 2, 3))

    @cute.jit
    def fetch(self, atoms, pairs, pipe, i, cta, ctas, m, sides: cutlass.Constexpr[tuple]):
        """The copies of turn i: codes (sides 0, 1) and scales (2, 3) of A and B."""
        c = self.config
        first, tiles = self.share()
        token, weight = self.tile(i // tiles, cta, ctas, m)
        k, turn = first + i % tiles, producer_turn(i, c.stages)
        for index in cutlass.range_constexpr(len(sides)):
            side = sides[index]
            is_weight = (side % 2 == 0) == c.swapped
            row, group = (weight, 0) if is_weight else (token, self.group(weight))
            to, source = pairs[side]
            source = source[None, row, self.source_tile(k, side), group]
            bar = pipe.producer_get_barrier(turn)
            cute.copy(atoms[side], source, to[None, turn.index], tma_bar_ptr=bar)

    def source_tile(self, k, side: int):
        """The tile along k that the copy of codes (sides 0, 1) or scales (2, 3) of A or B reads."""
        return k

    def group(self, weight):
        """The slice of x that a weight tile reads."""
        c = self.config
        return weight // (c.part_tiles[0] * LANES // c.rows) if c.grouped else Int32(0)

    def partitions(self, mma, atoms, tensors, shared) -> tuple:
        """Shared and global side of each copy: (box, stage) and (box, row tiles, k tiles, groups)."""
        a, b = (
            partition(atoms[side], mma, tensors[side], shared[side], self.tiler)
            for side, partition in enumerate((partition_a, partition_b))
        )
        scales, one_cta = [], cute.make_layout(1)
        for side in (2, 3):
            tiler = (ATOM, STEPS, 1 if side == 2 else self.config.b_atoms)
            tiled = cute.flat_divide(tensors[side], tiler)  # (atom, k, rows, 1, k tiles, row tiles, groups)
            to, source = cpasync.tma_partition(
                atoms[side], 0, one_cta, cute.group_modes(shared[side], 0, 3), cute.group_modes(tiled, 0, 3)
            )
            source = source[None, 0, None, None, None]  # (box, k tiles, row tiles, groups)
            scales.append((to, cute.make_tensor(source.iterator, cute.select(source.layout, mode=[0, 2, 1, 3]))))
        return a, b, *scales

    # ------------------------------------------------------------------ mma warp

    @cute.jit
    def multiply(self, mma, shared, tmem, pipes, count):
        """Scales of a stage to tensor memory, then its products."""
        c = self.config
        tCrA, tCrB = mma.make_fragment_A(shared[0]), mma.make_fragment_B(shared[1])  # (MMA, MMA_M or N, MMA_K, stage)
        tiles = self.share()[1]
        for i in cutlass.range(count, unroll=1):
            out = producer_turn(i, c.accumulators)
            pipes["sums"].producer_acquire(out)
            after_handover()
            tCtC = self.sums(mma, tmem, out.index)
            for k in cutlass.range(tiles, unroll=1):
                turn = consumer_turn(i * tiles + k, c.stages)
                pipes["ring"].consumer_wait(turn)
                after_handover()
                self.move_scales(shared, tmem, turn.index)
                own = private_copy(mma)
                for step in cutlass.range_constexpr(STEPS):
                    own.set(tcgen05.Field.ACCUMULATE, self.accumulates(k, step))
                    own.set(tcgen05.Field.SFA, self.scale_field(tmem, c.scales_a, step, 1))
                    own.set(tcgen05.Field.SFB, self.scale_field(tmem, c.scales_b, step, c.b_atoms))
                    a, b = tCrA[None, None, step, turn.index], tCrB[None, None, step, turn.index]
                    cute.gemm(own, tCtC, a, b, tCtC)
                self.release_stage(pipes["ring"], turn)
            self.complete(pipes["sums"], out)

    def release_stage(self, pipe, turn):
        """The stage is free when the products that read it are done."""
        pipe.consumer_release(turn)

    def complete(self, pipe, turn):
        """The sums of a tile are complete when all products so far are done."""
        pipe.producer_commit(turn)

    def sums(self, mma, tmem, buffer):
        """(MMA, MMA_M, MMA_N): an accumulator in tensor memory."""
        c = self.config
        layout = mma.make_fragment_C(mma.partition_shape_C((LANES, c.columns))).layout
        return cute.make_tensor(tmem + buffer * c.columns, layout)

    def accumulates(self, k, step: int):
        """Whether a product is added to what tensor memory holds: all but the first one of a tile."""
        return True if step > 0 else Boolean(k != 0)

    @cute.jit
    def move_scales(self, shared, tmem, stage):
        """The atoms of a stage to their columns."""
        c = self.config
        with cute.arch.elect_one():
            for side in cutlass.range_constexpr(2, 4):
                first, high = (c.scales_a, 1) if side == 2 else (c.scales_b, c.b_atoms)
                base = shared[side].iterator.toint() + stage * (high * STEPS * ATOM_BYTES)
                for row in cutlass.range_constexpr(high):
                    for step in cutlass.range_constexpr(STEPS):
                        column = first + ATOM_COLUMNS * (high * step + row)
                        copy_scales((tmem + column).toint(), base + ATOM_BYTES * (STEPS * row + step))

    def scale_field(self, tmem, first: int, step: int, high: int):
        """Where the scales of an instruction lie in tensor memory."""
        return cute.recast_ptr(tmem + (first + ATOM_COLUMNS * high * step), dtype=SCALE)

    # ------------------------------------------------------------------ epilogue warps

    @cute.jit
    def finish(self, mma, tmem, mAlpha, mG, mOut, extras, pipes, gathered, cta, ctas, count, m):
        """Every tile from tensor memory to global memory, a thread a row of A."""
        c, pipe = self.config, pipes["sums"]
        lane = cute.arch.thread_idx()[0] % LANES
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_wait()
        g = mG[0]
        for i in cutlass.range(count, unroll=1):
            token, weight = self.tile(i, cta, ctas, m)
            turn = consumer_turn(i, c.accumulators)
            pipe.consumer_wait(turn)
            after_handover()
            tCtC = self.sums(mma, tmem, turn.index)
            if const_expr(c.swapped):
                self.store_columns(tCtC, mAlpha, g, mOut, gathered, i, token, weight, lane, m)
            else:
                self.store_tile(tCtC, mAlpha, g, mOut, extras, token, weight, lane, m)
            before_handover()
            pipe.consumer_release(turn)

    @cute.jit
    def store_columns(self, tCtC, mAlpha, g, mOut, gathered, i, token, weight, lane, m):
        """y of one tile whose lanes are rows of the weight: neighbouring lanes store neighbouring outputs."""
        c = self.config
        width = min(CHUNK, c.columns)
        place, first, rows, stride, alpha = self.place(weight, mAlpha, m)
        row = first + lane
        mine = row < rows
        if const_expr(c.split > 1):
            mine = mine & (self.rank() == 0)
        for chunk in cutlass.range(c.columns // width, unroll=1):
            values = self.chunk(tCtC, chunk, width, lane)
            if const_expr(c.split > 1):
                values = self.gather(values, gathered, i, lane)
            for j in cutlass.range_constexpr(width):
                of = token * c.tokens + chunk * width + j
                address = mOut.iterator.toint() + 2 * (place + Int64(of) * stride + row)
                store_bf16(address, self.scaled(values[j], alpha, g), (of < m) & mine)

    @cute.jit
    def store_tile(self, tCtC, mAlpha, g, mOut, extras, token, weight, lane, m):
        """y of one tile whose lanes are tokens."""
        c = self.config
        of, chunks = token * LANES + lane, LANES // CHUNK
        for chunk in cutlass.range(c.rows // CHUNK, unroll=1):
            values = self.chunk(tCtC, chunk, CHUNK, lane)
            place, first, rows, stride, alpha = self.place(weight * (c.rows // LANES) + chunk // chunks, mAlpha, m)
            row = first + chunk % chunks * CHUNK
            address = mOut.iterator.toint() + 2 * (place + Int64(of) * stride + row)
            self.store_row([self.scaled(v, alpha, g) for v in values], address, rows - row, of < m)

    @cute.jit
    def gathering(self, smem, warp) -> tuple:
        """Where the sums of the cluster's other CTAs go, and the barriers of those that have arrived and of those whose
        place is free again."""
        c = self.config
        slots, barriers = Int32(0), smem.allocate_array(Int64, 2, byte_alignment=8)
        if const_expr(c.split > 1):
            slots = smem.allocate_array(Float32, c.gathered_bytes // 4, byte_alignment=128).toint()
            if warp == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_init(barriers, LANES * (c.split - 1))
                    cute.arch.mbarrier_init(barriers + 1, len(c.warps.epilogue))
        return slots, barriers

    @cute.jit
    def gather(self, values: list, gathered, i, lane) -> list:
        """The sums of all CTAs of the cluster, in the order of their ranks, in the first one."""
        c = self.config
        slots, barriers = gathered
        arrived, taken = barriers, barriers + 1
        total = cute.make_rmem_tensor((c.columns,), Float32)
        for j in cutlass.range_constexpr(c.columns):
            total[j] = values[j]
        size, place = c.columns * LANES * 4, slots + lane * 4
        if self.rank() == 0:
            wait_cluster(arrived, i & 1)
            for other in cutlass.range_constexpr(c.split - 1):
                for j in cutlass.range_constexpr(c.columns):
                    total[j] += load_shared_f32(place + other * size + j * (LANES * 4))
            self.free_slots(taken, lane)
        else:
            wait_cluster(taken, (i & 1) ^ 1)
            for j in cutlass.range_constexpr(c.columns):
                store_cluster_f32(place + (self.rank() - 1) * size + j * (LANES * 4), Int32(0), total[j])
            arrive_cluster(arrived, Int32(0))
        return [total[j] for j in range(c.columns)]

    @cute.jit
    def free_slots(self, taken, lane):
        """This warp has added what the other CTAs sent."""
        cute.arch.sync_warp()
        if lane % WARP < self.config.split - 1:
            arrive_cluster(taken, lane % WARP + 1)

    def store_row(self, values: list, address, room, wanted) -> None:
        """Neighbouring outputs of one token, of which `room` exist."""
        if self.config.vector:
            for j in range(0, len(values), VECTOR):
                words = [ptx.to_bf16x2(*values[i : i + 2]) for i in range(j, j + VECTOR, 2)]
                ptx.store_words(address + 2 * j, words, wanted & (j < room))
        else:
            for j, value in enumerate(values):
                store_bf16(address + 2 * j, value, wanted & (j < room))

    def chunk(self, tCtC, chunk, width: int, lane) -> list:
        """`width` columns of this thread's row, from chunk * width on."""
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(width)), Float32)
        copy = tcgen05.make_tmem_copy(atom, tCtC)
        tLtC = copy.get_slice(lane).partition_S(tCtC)  # ((columns, 1), chunk, 1, 1)
        tLrC = cute.make_rmem_tensor(((width, 1), 1, 1), Float32)
        cute.copy(copy, tLtC[None, chunk, 0, 0], tLrC[None, 0, 0])
        cute.arch.fence_view_async_tmem_load()
        return [tLrC[j] for j in range(width)]

    def scaled(self, value, alpha, g):
        """A sum times the global scales of weight and tokens, one after the other: their product may be too small for
        f32 where the output is not."""
        return ptx.mul(ptx.mul(value, alpha), g)

    def place(self, tile, mAlpha, m) -> tuple:
        """For 128 rows of the weights: where their part begins in the output, first row in the part, rows of the part,
        elements from one token to the next, the part's global scale; a tile past the end has no rows."""
        c = self.config
        last = len(c.parts) - 1
        if c.grouped:
            part, tiles = tile // c.part_tiles[0], c.part_tiles[0]
            row, rows = (tile - part * tiles) * LANES, Int32(c.parts[0])
            return Int64(part) * c.parts[0], row, rows, Int32(c.parts[0] * (last + 1)), mAlpha[part]
        part, begin, before, after = Int32(0), Int32(0), Int32(0), Int32(c.parts[0])
        tiles = 0
        for index in range(1, last + 1):
            tiles += c.part_tiles[index - 1]
            beyond = tile >= tiles
            part = cutlass.select_(beyond, Int32(index), part)
            begin = cutlass.select_(beyond, Int32(tiles), begin)
            before = cutlass.select_(beyond, Int32(sum(c.parts[:index])), before)
            after = cutlass.select_(beyond, Int32(c.parts[index]), after)
        return Int64(before) * m, (tile - begin) * LANES, after, after, mAlpha[part]
