"""Linear of many tokens for Hopper (W4A16, W8A16): products of BF16 with the weights as A, in registers.

    producer warp     weights by 1-D bulk copies, a tile a lane; activations by TMA, 128-byte swizzle, rows are tokens
    consumer warps    unpack 16 rows x 64 k for a whole column block of tokens (kernels/linear/wide_unpack.py), multiply
                      (wide_multiply.py) while the next 64 k are unpacked, give the ring stage back
    last of all       sums of all shares of K in a fixed order; scale, round, store (wide_finish.py)

Barriers of a ring stage: its weights, its activations, empty. Weights come while the kernel before this one still runs,
and the first of them (`ahead` times 64 k a warp) are unpacked before the activations are there.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint32, const_expr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator

from kernels.linear import ptx
from kernels.linear.config import LANES
from kernels.linear.wide_config import BOX_K, FEW, GROUP
from kernels.linear.wide_finish import Finishing
from kernels.linear.wide_unpack import BLOCKS


class WideLinearSm90(Finishing):
    """The kernel for one configuration, for any number of tokens."""

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (m, k), or (m, parts * k) grouped
        mW: cute.Tensor,  # (bytes,)
        mAlpha: cute.Tensor,  # (parts,)
        mOut: cute.Tensor,  # (m * rows of all parts,)
        m: Int32,
        x_stride: Int32,  # elements from one token to the next, a multiple of 8
        stream,
    ):
        c = self.config
        groups = len(c.parts) if c.grouped else 1
        shape, strides = (m, c.k, groups), (cute.assume(x_stride, divby=8), 1, c.k)
        x = cute.make_tensor(mX.iterator, cute.make_layout(shape, stride=strides))
        atom_layout = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BFloat16)
        layout = cute.tile_to_shape(atom_layout, (c.columns, BOX_K, c.stages * c.boxes), order=(0, 1, 2))
        copy, tX = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), x, cute.slice_(layout, (None, None, 0)), (c.columns, BOX_K)
        )
        column_blocks = cute.ceil_div(m, c.columns)
        name = f"{type(self).__name__}_{c.weights}_k{c.k}_t{c.columns}_r{c.rows}_{c.across}x{c.along}x{c.split}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(copy, tX, layout, mW, mAlpha, mOut, m, column_blocks).launch(
            grid=[column_blocks * (sum(c.blocks) * c.split), 1, 1],
            block=[c.threads, 1, 1],
            stream=stream,
            cluster=[c.split, 1, 1],
            min_blocks_per_mp=1,
            preferred_smem_carveout=100,
            use_pdl=c.pdl,
        )

    @cute.kernel
    def kernel(
        self,
        copy: cute.CopyAtom,
        mX: cute.Tensor,  # (m, k, groups), coordinates
        layout: cute.ComposedLayout,  # (columns, BOX_K, box of the ring)
        mW: cute.Tensor,
        mAlpha: cute.Tensor,
        mOut: cute.Tensor,
        m: Int32,
        column_blocks: Int32,
    ):
        c = self.config
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = SmemAllocator()
        ring = smem.allocate_array(cutlass.Uint8, c.ring_bytes, byte_alignment=1024)
        exchange = ring
        if const_expr(c.split > 1):
            exchange = smem.allocate_array(cutlass.Uint8, c.exchange_bytes, byte_alignment=128)
        barriers = smem.allocate_array(Int64, c.barriers, byte_alignment=8)
        place = self.place(column_blocks)
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_launch_dependents()
        if warp >= c.producer:
            if const_expr(c.rebalanced):
                cute.arch.setmaxregister_decrease(FEW)
            if warp == c.producer:
                # The copies start before the other warps know of the barriers.
                cpasync.prefetch_descriptor(copy)
                self.initialise(barriers)
                for turn in cutlass.range_constexpr(min(c.stages, c.turns)):
                    self.fetch_weights(mW, ring.toint(), barriers, place, Int32(turn), Int32(turn))
            self.meet()
            if warp == c.producer:
                sX = cute.make_tensor(cute.recast_ptr(ring, layout.inner, dtype=BFloat16), layout.outer)
                self.produce(copy, mX, sX, mW, ring.toint(), barriers, place)
        else:
            if const_expr(c.rebalanced):
                cute.arch.setmaxregister_increase(c.registers)
            alpha = mAlpha[place[0]]
            self.meet()
            sums = self.consume(ring.toint(), barriers, warp)
            if const_expr(c.pdl):
                cute.arch.griddepcontrol_wait()
            self.finish(mOut, exchange.toint(), barriers + 3 * c.stages, sums, alpha, place, m, warp)

    def meet(self):
        """A barrier of the CTA; with a split, of the cluster, whose CTAs may send sums after it."""
        if self.config.split > 1:
            cute.arch.sync_warp()
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        else:
            cute.arch.sync_threads()

    @cute.jit
    def initialise(self, barriers):
        """One warp, a lane a barrier: one arrival with the bytes that are announced, but empty of all consumer warps.
        The bytes of the sums that other CTAs will send are announced here."""
        c = self.config
        for begin in cutlass.range_constexpr(0, c.barriers, LANES):
            index = begin + cute.arch.lane_idx()
            from_consumers = (index >= 2 * c.stages) & (index < 3 * c.stages)
            count = cutlass.select_(from_consumers, Int32(c.producer), Int32(1))
            if index < c.barriers:
                cute.arch.mbarrier_init(barriers + index, count)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_warp()
        if const_expr(c.split > 1):
            mine = (c.across * c.sums - self.rank() + c.split - 1) // c.split
            if cute.arch.lane_idx() == 0:
                size = mine * (c.split * c.along * GROUP * 4)
                cute.arch.mbarrier_arrive_and_expect_tx(barriers + 3 * c.stages, size)
            cute.arch.sync_warp()

    # ------------------------------------------------------------------ producer

    @cute.jit
    def produce(self, copy, mX, sX, mW, ring, barriers, place):
        """One warp: all but the weights of the first stages, which came while the kernel before this one still ran."""
        c = self.config
        gX = cute.flat_divide(mX, (c.columns, BOX_K))  # (columns, BOX_K, column blocks, boxes, groups)
        tXsX, tXgX = cpasync.tma_partition(
            copy, 0, cute.make_layout(1), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
        )  # (box, boxes of the ring), (box, column blocks, boxes, groups)
        tXgX = tXgX[None, self.tokens_of(place), None, place[0] if c.grouped else 0]
        ahead = min(c.stages, c.turns)
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_wait()
        for turn in cutlass.range_constexpr(ahead):
            self.fetch_activations(copy, tXgX, tXsX, barriers, Int32(turn), Int32(turn))
        for turn in cutlass.range(ahead, c.turns, unroll=1):
            stage = turn % c.stages
            cute.arch.mbarrier_wait(barriers + 2 * c.stages + stage, ((turn // c.stages) & 1) ^ 1)
            self.fetch_weights(mW, ring, barriers, place, turn, stage)
            self.fetch_activations(copy, tXgX, tXsX, barriers, turn, stage)

    def tokens_of(self, place):
        """The column block whose activations are read."""
        return place[2]

    @cute.jit
    def announce(self, barrier, size: int):
        """One arrival with the bytes of the copies that follow."""
        if cute.arch.lane_idx() == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, size)
        cute.arch.sync_warp()

    @cute.jit
    def fetch_weights(self, mW, ring, barriers, place, turn, stage):
        """Units of the block's tiles; places behind the last tile of the part get it again."""
        c = self.config
        part, block, _ = place
        full = barriers + stage
        self.announce(full, c.block_tiles * c.run_bytes)
        before = part * c.tiles[0] if c.grouped else self.of_part(part, self.before(c.tiles))
        last = self.of_part(part, c.tiles) - 1
        target = self.weights_of(ring, stage)
        unit = self.rank() * c.share + turn * c.units
        for begin in cutlass.range_constexpr(0, c.block_tiles, LANES):
            index = begin + cute.arch.lane_idx()
            if index < c.block_tiles:
                tile = before + cutlass.min(block * c.block_tiles + index, last)
                source = mW.iterator.toint() + Int64(tile) * c.tile_bytes + unit * c.unit_bytes
                ptx.bulk_copy(target + index * c.run_bytes, source, Int32(c.run_bytes), full.toint())
        cute.arch.sync_warp()

    @cute.jit
    def fetch_activations(self, copy, tXgX, tXsX, barriers, turn, stage):
        """Boxes of a stage, in the order (unit, segment, half)."""
        c = self.config
        full = barriers + c.stages + stage
        self.announce(full, c.boxes * c.box_bytes)
        for box in cutlass.range_constexpr(c.boxes):
            unit, segment, half = box // (2 * c.segments), box // 2 % c.segments, box % 2
            at = self.rank() * c.share + turn * c.units + unit + segment * c.tile_units
            index = stage * c.boxes + box
            cute.copy(copy, tXgX[None, 2 * at + half], tXsX[None, index], tma_bar_ptr=full)

    def weights_of(self, ring, stage):
        """Where a stage has its weights: behind the activations of all stages."""
        c = self.config
        return ring + c.stages * c.boxes * c.box_bytes + stage * (c.block_tiles * c.run_bytes)

    # ------------------------------------------------------------------ consumers

    @cute.jit
    def consume(self, ring, barriers, warp) -> list:
        """A consumer warp's sums over its steps of every ring stage."""
        c = self.config
        empty = barriers + 2 * c.stages
        kept = cute.make_rmem_tensor((c.sums,), Float32)
        kept.fill(0.0)
        first = cute.make_rmem_tensor((max(1, c.ahead) * 4 * BLOCKS,), Uint32)
        self.unpack_ahead(first, ring, barriers, Int32(0), warp)
        for turn in cutlass.range(c.turns, unroll=1):
            stage = turn % c.stages
            if const_expr(c.ahead == 0):
                cute.arch.mbarrier_wait(barriers + stage, (turn // c.stages) & 1)
            self.await_activations(barriers + c.stages + stage, (turn // c.stages) & 1)
            sums = [kept[n] for n in range(c.sums)]
            sums = self.multiply(ring, stage, self.kept_operands(first), warp, sums)
            if const_expr(c.by_warp):
                self.give_back(empty + stage)
            if const_expr(self.overtakes()):
                self.unpack_ahead(first, ring, barriers, turn + 1, warp)
            sums = self.complete(sums)
            if const_expr(not c.by_warp):
                self.give_back(empty + stage)
            if const_expr(not self.overtakes()):
                self.unpack_ahead(first, ring, barriers, turn + 1, warp)
            for n in cutlass.range_constexpr(c.sums):
                kept[n] = sums[n]
        return [kept[n] for n in range(c.sums)]

    @cute.jit
    def unpack_ahead(self, first, ring, barriers, turn, warp):
        """A operands of the first half units of a turn, if there is such a turn, into a register tensor."""
        c = self.config
        if const_expr(c.ahead > 0):
            if turn < c.turns:
                stage = turn % c.stages
                cute.arch.mbarrier_wait(barriers + stage, (turn // c.stages) & 1)
                weights = self.weights_of(ring, stage)
                for number in cutlass.range_constexpr(c.ahead):
                    operands = self.half_of(weights, c.turn_halves[number], warp)
                    for index, word in enumerate(word for a in operands for word in a):
                        first[number * 4 * BLOCKS + index] = word

    def overtakes(self) -> bool:
        """Whether that may happen while products are under way."""
        return self.config.overtakes

    def kept_operands(self, first) -> list:
        """What ``unpack_ahead`` left, half unit by half unit."""
        return [
            [[first[(number * BLOCKS + j) * 4 + i] for i in range(4)] for j in range(BLOCKS)]
            for number in range(self.config.ahead)
        ]

    def await_activations(self, barrier, parity):
        """Until a stage has its activations."""
        cute.arch.mbarrier_wait(barrier, parity)

    @cute.jit
    def give_back(self, barrier):
        """One arrival for the whole warp, after its products have read."""
        cute.arch.sync_warp()
        if cute.arch.lane_idx() == 0:
            cute.arch.mbarrier_arrive(barrier)

    def multiply(self, ring, stage, first: list, warp, sums: list) -> list:
        """sums += weights times activations over a ring stage, `first` being the operands of its first half units; the
        last products are under way."""
        c = self.config
        weights, boxes = self.weights_of(ring, stage), ring + stage * c.boxes * c.box_bytes
        partial = sums
        for index, what in enumerate(c.turn_halves):
            a = first[index] if index < len(first) else self.half_of(weights, what, warp)
            number, other, half = what
            unit, segment = self.step_of(number, warp)
            box = boxes + ((unit * c.segments + segment + other) * 2 + half) * c.box_bytes
            if c.weights == "fp8" and half == 0:
                partial = [Float32(0.0)] * c.sums
            partial = self.products(partial, a, box)
            if c.weights == "fp8" and half == 1:
                at, partial = self.unit_of(weights, unit, warp), self.complete(partial)
                factors = self.factors_e4m3(at, segment, other)
                sums = [cute.math.fma(partial[n], factors[n // 2 % 2], sums[n]) for n in range(c.sums)]
        return sums if c.weights == "fp8" else partial

    def step_of(self, number: int, warp) -> tuple:
        """Unit and segment of a warp's step in a ring stage; the warpgroups that share rows take turns."""
        c = self.config
        step = number * c.along + warp // 4 % c.along
        return (step // c.segments, step % c.segments) if c.segments == 4 else (step, 0)

    def unit_of(self, weights, unit, warp):
        """Where the first tile of a warp has a unit."""
        c = self.config
        strip = warp // 4 // c.along * 4 + warp % 4  # 16 rows
        return weights + strip * (c.segments * c.run_bytes) + unit * c.unit_bytes

    def half_of(self, weights, what: tuple[int, int, int], warp) -> list:
        """A operands of a half unit of a ring stage."""
        number, other, half = what
        unit, segment = self.step_of(number, warp)
        return self.operands(self.unit_of(weights, unit, warp), segment, other, half)
