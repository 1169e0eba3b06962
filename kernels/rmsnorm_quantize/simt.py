"""rmsnorm_quantize for Hopper and Blackwell: a CTA has a row at a time, read once, in registers to its end."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Float64, Int32, Int64, Uint8, Uint32, const_expr
from cutlass.memory import SmemAllocator

from kernels.rmsnorm_quantize.config import STAGES, WARP, RowConfig
from kernels.shared import ptx, rms
from kernels.shared.chunks import load_chunk, load_words, values_of
from kernels.shared.configured import Configured
from kernels.shared.encode import Encoder
from kernels.shared.formats import CHUNK


class RowPass(Configured, Encoder):
    """A CTA has a row in registers: turn by turn, thread t holds chunk turn * threads + t. Mixed into kernels that say
    where the values come from."""

    config: RowConfig

    @cute.jit
    def normalise_and_put(self, rows_of_values: list, weights: list, g, row, codes, scales, live: Boolean, phase):
        """values weight / rms of the row, quantised, to their place. rows_of_values: 16 for each turn. weights: their
        words. phase: 0 and 1 in turn, from row to row of a CTA."""
        inverse = self.inverse_of_row(rows_of_values, phase)
        self.quantise(rows_of_values, weights, inverse, g, row, codes, scales, live)

    def inverse_of_row(self, rows_of_values: list, phase) -> tuple:
        """1 / rms of the row."""
        return rms.in_two(rms.inverse_rms(self.over_row(rows_of_values, phase), self.width(), self.config.eps))

    @cute.jit
    def quantise(self, rows_of_values: list, weights: list, inverse: tuple, g, row, codes, scales, live: Boolean):
        """The same with 1 / rms known."""
        c = self.config
        exact = c.weight == "bf16"
        for turn in cutlass.range_constexpr(c.turns):
            pairs = zip(rows_of_values[turn], values_of([ptx.here(w) for w in weights[turn]], c.weight), strict=True)
            values = [rms.over_rms(v, w, inverse, exact) for v, w in pairs]
            chunk = self.chunk_of(turn)
            here, inside = chunk < c.chunks, chunk < self.padded_chunks()
            self.put(values, g, row, chunk, codes, scales, Int32(c.chunks), live & here, inside)

    def all_weights(self, mWeight) -> list:
        """Those of each turn's chunk."""
        chunks = [self.chunk_of(turn) for turn in range(self.config.turns)]
        return [self.weights(mWeight, chunk, chunk < self.config.chunks) for chunk in chunks]

    def chunk_of(self, turn: int):
        """The chunk of this thread."""
        return turn * self.config.threads + cute.arch.thread_idx()[0]

    def padded_chunks(self) -> int:
        """Chunks that have a place for a scale. There are multiples of 4 threads, so each has one."""
        return self.format.padded(1, self.config.chunks)[1]

    def width(self) -> int:
        """Values of which the mean is taken."""
        return self.config.k

    def weights(self, mWeight, chunk, here: Boolean) -> list:
        """The words of a chunk's weights."""
        size = 2 if self.config.weight == "bf16" else 4
        return load_words(mWeight.iterator.toint() + Int64(chunk) * (CHUNK * size), self.config.weight, here)

    def over_row(self, rows_of_values: list, phase) -> Float64:
        """Sum of squares of the row; every thread has it. A row's sums may be overwritten by the row after the next."""
        c = self.config
        # Of the values only an fp32 scale shows the last bits.
        group = 1 if c.format.scale == "fp32" else 4
        total = rms.over_lanes(rms.sum_of_squares([v for values in rows_of_values for v in values], group))
        if const_expr(c.warps == 1):
            return total
        pointer = SmemAllocator().allocate_array(Float64, 2 * c.warps, byte_alignment=8)
        partials = cute.make_tensor(pointer + phase * c.warps, cute.make_layout(c.warps))
        return self.over_warps(partials, total)

    def meet(self) -> None:
        """A barrier of the threads that have the row."""
        cute.arch.sync_threads()

    @cute.jit
    def over_warps(self, partials, total):
        """The sum of the warps' sums, in their order."""
        thread, _, _ = cute.arch.thread_idx()
        if thread % WARP == 0:
            partials[thread // WARP] = total
        self.meet()
        found = partials[0]
        for warp in cutlass.range_constexpr(1, self.config.warps):
            found = ptx.add64(found, partials[warp])
        return found


class RmsnormQuantize(RowPass):
    """The values are those of a row of x. CTA i has the rows i, i + grid, ...; many rows come through a ring."""

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (rows, k) bf16
        mWeight: cute.Tensor,  # (k,)
        mScale: cute.Tensor | None,  # () fp32
        mCodes: cute.Tensor,
        mScales: cute.Tensor,
        rows: Int32,
        padded_rows: Int32,
        stride: Int32,
        ctas: Int32,
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.format.name}_k{c.k}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mWeight, mScale, mCodes, mScales, rows, padded_rows, stride).launch(
            grid=[ctas, 1, 1],
            block=[c.threads, 1, 1],
            stream=stream,
            min_blocks_per_mp=c.resident if c.many else 0,
            preferred_smem_carveout=100 if c.many else None,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, mX, mWeight, mScale, mCodes, mScales, rows, padded_rows, stride):
        c = self.config
        first, _, _ = cute.arch.block_idx()
        step, _, _ = cute.arch.grid_dim()
        cute.arch.griddepcontrol_launch_dependents()
        # Before the wait: nobody writes weights while a model runs, and a cold load takes as long as the row's own.
        weights = self.all_weights(mWeight)
        cute.arch.griddepcontrol_wait()
        g = Float32(1.0)
        if const_expr(mScale is not None):
            g = mScale[0]
        x, row_bytes = mX.iterator.toint(), Int64(stride) * 2
        codes, scales = mCodes.iterator.toint(), mScales.iterator.toint()
        if const_expr(c.many):
            self.many_rows(x, row_bytes, weights, g, codes, scales, first, step, rows, padded_rows)
        else:
            chunks = [self.chunk_of(turn) for turn in range(c.turns)]
            begin = x + Int64(first) * row_bytes
            live = first < rows
            values = [load_chunk(begin + 2 * CHUNK * Int64(n), "bf16", live & (n < c.chunks)) for n in chunks]
            self.normalise_and_put(values, weights, g, first, codes, scales, live, Int32(0))

    @cute.jit
    def many_rows(self, x, row_bytes, weights: list, g, codes, scales, first, step, rows, padded_rows):
        """The rows of a CTA. A stage of the ring is filled again as soon as the sums of its row have met, which they do
        after every thread has taken its values."""
        c = self.config
        allocator = SmemAllocator()
        ring = allocator.allocate_array(Uint8, STAGES * 2 * c.k, byte_alignment=128).toint()
        barriers = allocator.allocate_array(Int64, STAGES, byte_alignment=8)
        thread, _, _ = cute.arch.thread_idx()
        if thread == 0:
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(barriers + stage, 1)
            cute.arch.mbarrier_init_fence()
            for stage in cutlass.range_constexpr(STAGES):
                self.fill(x, row_bytes, ring, barriers, Int32(stage), first + stage * step, rows)
        cute.arch.sync_threads()
        turn = Int32(0)
        for row in cutlass.range(first, padded_rows, step, unroll=1):
            stage = turn & (STAGES - 1)
            if row < rows:
                cute.arch.mbarrier_wait(barriers + stage, (turn // STAGES) & 1)
            values = [self.taken(ring + stage * (2 * c.k), n) for n in range(c.turns)]
            inverse = self.inverse_of_row(values, turn & 1)
            if thread == 0:
                self.fill(x, row_bytes, ring, barriers, stage, row + STAGES * step, rows)
            self.quantise(values, weights, inverse, g, row, codes, scales, row < rows)
            turn = turn + 1

    @cute.jit
    def fill(self, x, row_bytes, ring, barriers, stage, row, rows):
        """One thread: the copy of a row, if it exists."""
        c = self.config
        if row < rows:
            cute.arch.mbarrier_arrive_and_expect_tx(barriers + stage, 2 * c.k)
            target, barrier = ring + stage * (2 * c.k), (barriers + stage).toint()
            ptx.bulk_copy(target, x + Int64(row) * row_bytes, Int32(2 * c.k), barrier)

    def taken(self, row, turn: int) -> list:
        """This thread's values of a row in shared memory; zeros where there is no chunk."""
        c = self.config
        own = self.chunk_of(turn)
        chunk = cutlass.min(own, c.chunks - 1)
        words = [w for half in (0, 16) for w in ptx.load_shared_128(row + 2 * CHUNK * chunk + half)]
        if (turn + 1) * c.threads > c.chunks:
            words = [cutlass.select_(own < c.chunks, w, Uint32(0)) for w in words]
        return values_of(words, "bf16")
