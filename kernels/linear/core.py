"""The weight-streaming core for sm_90a: packed weights flow through a ring of shared memory past the consumer warps.

    producer warp    one 1-D bulk copy a ring stage; at most `in_flight` copies under way, so that the queue in front of
                     memory stays short for everybody else's accesses
    consumer warps   each takes its unit of the stage, multiplies it (`multiply`), and keeps partial sums in registers
    epilogue warp    adds the partial sums of all consumer warps in a fixed order, scales, rounds, stores

The tiles of a CTA lie one after the other in memory. Nothing depends on who comes first, so results repeat bit for bit.
Barriers: full[stage], empty[stage] of the ring; ready[buffer], free[buffer] of the partial sums.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr
from cutlass.memory import SmemAllocator

from kernels.linear import ptx
from kernels.linear.config import GROUP, LANES, LinearConfig


class WeightStream:
    """Producer, epilogue and the frame of the kernel; a subclass says what a consumer warp does with a unit."""

    def __init__(self, config: LinearConfig):
        problems = config.problems()
        if problems:
            raise ValueError("linear sm90: " + "; ".join(problems))
        self.config = config

    # ------------------------------------------------------------------ launch

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (m, k), or (m, parts * k) grouped
        mW: cute.Tensor,  # (bytes,)
        mAlpha: cute.Tensor,  # (parts,)
        mOut: cute.Tensor,  # (m * rows of all parts,)
        m: Int32,
        x_stride: Int32,  # elements from one token to the next
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.weights}_{c.activation}_k{c.k}_t{c.tokens}_r{c.rows}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mW, mAlpha, mOut, m, x_stride).launch(
            grid=[c.grid, 1, 1],
            block=[c.threads, 1, 1],
            stream=stream,
            cluster=[c.split, 1, 1],
            min_blocks_per_mp=c.resident,
            preferred_smem_carveout=100,
            use_pdl=c.pdl,
        )

    @cute.kernel
    def kernel(
        self,
        mX: cute.Tensor,
        mW: cute.Tensor,
        mAlpha: cute.Tensor,
        mOut: cute.Tensor,
        m: Int32,
        x_stride: Int32,
    ):
        c = self.config
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        cta, _, _ = cute.arch.block_idx()
        cluster = cta // c.split
        first, last = cluster * c.sets // c.clusters, (cluster + 1) * c.sets // c.clusters
        smem = SmemAllocator()
        ring = smem.allocate_array(cutlass.Uint8, c.stages * c.stage_bytes, byte_alignment=128).toint()
        words = Int32(0)
        if const_expr(c.b_in_shared):
            words = smem.allocate_array(cutlass.Uint8, c.shared_bytes()["activations"], byte_alignment=128).toint()
        partials = smem.allocate_array(cutlass.Uint8, c.shared_bytes()["partial sums"], byte_alignment=128).toint()
        gathered = Int32(0)
        if const_expr(c.split > 1):
            gathered = smem.allocate_array(cutlass.Uint8, c.shared_bytes()["gathered sums"], byte_alignment=128).toint()
        barriers = smem.allocate_array(Int64, c.barriers, byte_alignment=8)
        full, empty = barriers, barriers + c.stages
        ready, free = barriers + 2 * c.stages, barriers + 2 * c.stages + c.buffers
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_launch_dependents()
        if warp == c.producer:
            # The copies start before the other warps know of the barriers: they need nothing but the barriers.
            self.initialise(barriers)
            if cute.arch.lane_idx() == 0:
                self.produce(mW.iterator.toint(), ring, full, empty, first, last, True)
            cute.arch.sync_warp()
            self.meet()
            if cute.arch.lane_idx() == 0:
                self.produce(mW.iterator.toint(), ring, full, empty, first, last, False)
        elif warp >= c.epilogue:
            self.meet()
            for finisher in cutlass.range_constexpr(c.finishers):
                if warp == c.epilogue + finisher:
                    values = range(finisher, c.partials, c.finishers)
                    self.finish(mAlpha, mOut, partials, gathered, ready, free, first, last, m, values)
        else:
            self.consume(mX, ring, words, partials, full, empty, ready, free, first, last, m, x_stride)
        if const_expr(c.split > 1):
            # Nobody leaves while another CTA may still write to its shared memory.
            cute.arch.sync_warp()
            self.meet()

    def meet(self):
        """A barrier of the whole CTA; with a split, of the cluster."""
        if self.config.split > 1:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        else:
            cute.arch.sync_threads()

    def rank(self):
        """This CTA's place in its cluster: its share of K."""
        return cute.arch.block_idx()[0] % self.config.split

    @cute.jit
    def initialise(self, barriers):
        """One warp, a lane a barrier. Arrivals in a phase: one with the bytes of a stage; one of each consumer warp for
        an empty stage and for ready partial sums; one of each epilogue warp; every lane of the other CTAs' epilogue
        warps for gathered sums."""
        c = self.config
        lane = cute.arch.lane_idx()
        local = 2 * (c.stages + c.buffers)
        for begin in cutlass.range_constexpr(0, c.barriers, LANES):
            index = begin + lane
            from_consumers = (index >= c.stages) & (index < 2 * c.stages + c.buffers)
            from_cluster = (index >= local) & (index < local + c.buffers)
            count = cutlass.select_(index < c.stages, Int32(1), Int32(c.finishers))
            count = cutlass.select_(from_consumers, Int32(c.warps), count)
            count = cutlass.select_(from_cluster, Int32(LANES * (c.split - 1) * c.finishers), count)
            if index < c.barriers:
                cute.arch.mbarrier_init(barriers + index, count)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_warp()

    # ------------------------------------------------------------------ producer

    @cute.jit
    def produce(self, weights, ring, full, empty, first, last, begin: cutlass.Constexpr[bool]):
        """One lane. With `begin` the copies that may start at once, else all others, stage after stage."""
        c = self.config
        turns = (last - first) * c.turns
        if const_expr(begin):
            for i in cutlass.range_constexpr(c.in_flight):
                if i < turns:
                    self.fetch(weights, ring, full, first, last, Int32(i), Int32(i % c.stages))
        else:
            for i in cutlass.range(c.in_flight, turns, unroll=1):
                stage, oldest = i % c.stages, i - c.in_flight
                cute.arch.mbarrier_wait(empty + stage, ((i // c.stages) & 1) ^ 1)
                cute.arch.mbarrier_wait(full + oldest % c.stages, (oldest // c.stages) & 1)
                self.fetch(weights, ring, full, first, last, i, stage)

    @cute.jit
    def fetch(self, weights, ring, full, first, last, i, stage):
        """The copy of turn i: all units of one ring stage, which are contiguous."""
        c = self.config
        tile = (first + i // c.turns) * c.tiles_per_set
        turn = i % c.turns
        units = Int32(c.warps)
        if const_expr(c.turns == 1 and not c.rounded):
            units = cutlass.min(c.tiles_per_set, c.tile_count - tile) * c.share
        else:
            units = cutlass.select_(turn == c.turns - 1, Int32(c.last_turn_units), Int32(c.warps))
        size = units * c.unit_bytes
        source = weights + Int64(tile) * c.tile_bytes + turn * c.stage_bytes
        if const_expr(c.split > 1):
            source = source + self.rank() * (c.share * c.unit_bytes)
        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, size)
        ptx.bulk_copy(ring + stage * c.stage_bytes, source, size, (full + stage).toint())

    # ------------------------------------------------------------------ epilogue

    @cute.jit
    def finish(self, mAlpha, mOut, partials, gathered, ready, free, first, last, m, values: cutlass.Constexpr):
        """One warp, some of a lane's sums: over the consumer warps, then over the lanes that hold other k of the same
        output."""
        c = self.config
        lane = cute.arch.lane_idx()
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_wait()
        for i in cutlass.range(last - first, unroll=1):
            buffer = i % c.buffers
            # Before the wait: a cold load takes as long as the weights do.
            alphas = [mAlpha[self.part_of((first + i) * c.tiles_per_set + slot)] for slot in range(c.tiles_per_set)]
            cute.arch.mbarrier_wait(ready + buffer, (i // c.buffers) & 1)
            sums = [self.sums(partials, buffer, self.warps_of(slot), values, lane) for slot in range(c.tiles_per_set)]
            if const_expr(c.split > 1):
                sums = [self.gather(gathered, free + c.buffers, sums[0], values, buffer, i, lane)]
            for slot in cutlass.range_constexpr(c.tiles_per_set):
                tile = (first + i) * c.tiles_per_set + slot
                self.store(alphas[slot], mOut, self.across_lanes(sums[slot]), values, tile, lane, m)
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(free + buffer)

    @cute.jit
    def gather(self, gathered, arrived, sums: list, values: cutlass.Constexpr, buffer, i, lane) -> list:
        """The sums of all CTAs of the cluster, in the order of their ranks, in the first one; its barriers are
        `arrived`,
        the others learn from the barriers behind those that their place is free again."""
        c = self.config
        taken = arrived + c.buffers
        place = gathered + buffer * (c.partials * LANES * 4) + lane * 4
        stride = c.buffers * c.partials * LANES * 4
        total = cute.make_rmem_tensor((len(values),), Float32)
        for n in cutlass.range_constexpr(len(values)):
            total[n] = sums[n]
        if self.rank() == 0:
            ptx.wait_cluster(arrived + buffer, (i // c.buffers) & 1)
            for other in cutlass.range_constexpr(c.split - 1):
                for n in cutlass.range_constexpr(len(values)):
                    total[n] += ptx.load_shared_f32(place + other * stride + values[n] * (LANES * 4))
            cute.arch.sync_warp()
            if lane < c.split - 1:
                ptx.arrive_cluster(taken + buffer, lane + 1)
        else:
            ptx.wait_cluster(taken + buffer, ((i // c.buffers) & 1) ^ 1)
            for n in cutlass.range_constexpr(len(values)):
                address = place + (self.rank() - 1) * stride + values[n] * (LANES * 4)
                ptx.store_cluster_f32(address, Int32(0), total[n])
            ptx.arrive_cluster(arrived + buffer, Int32(0))
        return [total[n] for n in range(len(values))]

    def warps_of(self, slot: int) -> range:
        """The warps that hold partial sums of a set's tile."""
        c = self.config
        if c.rounded:
            return range(slot, min(c.warps, GROUP * c.units), GROUP)
        return range(slot * c.units, (slot + 1) * c.units) if c.tiles_per_set > 1 else range(min(c.warps, c.share))

    def sums(self, partials, buffer, warps: range, values: range, lane) -> list:
        """Partial sums of some warps, each lane its own `values` of them, in the order of the warps."""
        c = self.config
        base = partials + buffer * (c.warps * c.partials * LANES * 4) + lane * 4
        sums = []
        for value in values:
            parts = [ptx.load_shared_f32(base + (warp * c.partials + value) * (LANES * 4)) for warp in warps]
            while len(parts) > 1:
                parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) & ~1 :]
            sums.append(parts[0])
        return sums

    def across_lanes(self, sums: list) -> list:
        """Add lanes whose columns belong to one token, and, with four segments, whose rows belong to one row."""
        c = self.config
        steps = [1 << bit for bit in range(2) if c.summed_columns >> (bit + 2)]
        steps += [4, 8] if c.segments == 4 else []
        for step in steps:
            sums = [value + cute.arch.shuffle_sync_bfly(value, offset=step) for value in sums]
        return sums

    @cute.jit
    def store(self, alpha, mOut, sums: list, values: cutlass.Constexpr, tile, lane, m):
        """alpha times the sums, as BF16, where row and token exist."""
        c = self.config
        g, t = lane // 4, lane % 4
        row, rows, base, stride = self.place(tile, m)
        rows_a_lane = 1 if c.segments == 2 else 2
        columns = 1 if c.merged else 2
        for index, value in zip(values, sums, strict=True):
            half = index // columns % rows_a_lane
            column = 8 * (index // (columns * rows_a_lane)) + 2 * t + index % columns
            n, owner = self.row_of(g, half)
            token = column // c.summed_columns
            mine = (
                owner & (column % c.summed_columns < columns) & (token < m) & (row + n < rows) & (tile < c.tile_count)
            )
            if const_expr(c.split > 1):
                mine = mine & (self.rank() == 0)
            if mine:
                offset = base + Int64(token) * stride + row + n
                ptx.store_global_bf16(mOut.iterator.toint() + 2 * offset, value * alpha)

    def row_of(self, g, half: int) -> tuple:
        """Row of the tile that lane group g holds in its first or second half, and whether it is the one to store
        it."""
        segments = self.config.segments
        if segments == 4:
            return g // 4 + 2 * half, g % 4 == 0
        return g + 8 * half, g >= 0

    def part_of(self, tile):
        """The part that a tile belongs to; the last one for tiles that do not exist."""
        c = self.config
        if c.grouped:
            return cutlass.min(tile // c.tiles[0], len(c.parts) - 1)
        part, before = Int32(0), 0
        for index in range(1, len(c.parts)):
            before += c.tiles[index - 1]
            part = cutlass.select_(tile >= before, Int32(index), part)
        return part

    def place(self, tile, m) -> tuple:
        """First row of a tile in its part, the part's rows, where the part begins in the output, and the elements from
        one token to the next."""
        c = self.config
        if c.grouped:
            part = self.part_of(tile)
            row = (tile - part * c.tiles[0]) * c.rows
            return row, Int32(c.parts[0]), Int64(part) * c.parts[0], Int32(c.parts[0] * len(c.parts))
        row, rows, base, stride = tile * c.rows, Int32(c.parts[0]), Int64(0), Int32(c.parts[0])
        tiles_before, rows_before = 0, 0
        for tiles, n, following in zip(c.tiles, c.parts, c.parts[1:], strict=False):
            tiles_before, rows_before = tiles_before + tiles, rows_before + n
            inside = tile >= tiles_before
            row = cutlass.select_(inside, (tile - tiles_before) * c.rows, row)
            rows = cutlass.select_(inside, Int32(following), rows)
            base = cutlass.select_(inside, Int64(m) * rows_before, base)
            stride = cutlass.select_(inside, Int32(following), stride)
        return row, rows, base, stride

    # ------------------------------------------------------------------ consumers

    @cute.jit
    def release(self, barrier):
        """One arrival for the whole warp, after its lanes have read."""
        cute.arch.sync_warp()
        if cute.arch.lane_idx() == 0:
            cute.arch.mbarrier_arrive(barrier)

    def give_back(self, empty):
        """Tell the producer that this warp has read its unit of a stage."""
        self.release(empty)

    def keep(self, partials, buffer, warp, values: list):
        """A warp's partial sums, for the epilogue warp."""
        c = self.config
        base = partials + (buffer * c.warps + warp) * (c.partials * LANES * 4) + cute.arch.lane_idx() * 4
        for index, value in enumerate(values):
            ptx.store_shared_f32(base + index * (LANES * 4), Float32(value))
