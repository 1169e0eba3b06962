"""rmsnorm_quantize for Hopper and Blackwell: one CTA a row, read once, normalised and quantised in registers."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Float64, Int32, Int64, const_expr
from cutlass.memory import SmemAllocator

from kernels.rmsnorm_quantize.config import WARP, RowConfig
from kernels.shared import ptx, rms
from kernels.shared.chunks import load_chunk
from kernels.shared.configured import Configured
from kernels.shared.encode import Encoder
from kernels.shared.formats import CHUNK


class RowPass(Configured, Encoder):
    """A CTA has a row in registers: turn by turn, thread t holds chunk turn * threads + t. Mixed into kernels that say
    where the values come from."""

    config: RowConfig

    @cute.jit
    def normalise_and_put(self, rows_of_values: list, mWeight, g, row, codes, scales, live: Boolean):
        """values weight / rms of the row, quantised, to their place. rows_of_values: 16 for each turn."""
        c = self.config
        exact = c.weight == "bf16"
        # Before the barrier: a cold load takes as long as the row's own.
        chunks = [self.chunk_of(turn) for turn in range(c.turns)]
        weights = [self.weights(mWeight, chunk, chunk < c.chunks) for chunk in chunks]
        inverse = rms.in_two(rms.inverse_rms(self.over_row(rows_of_values), self.width(), c.eps))
        for turn in cutlass.range_constexpr(c.turns):
            pairs = zip(rows_of_values[turn], weights[turn], strict=True)
            values = [rms.over_rms(v, w, inverse, exact) for v, w in pairs]
            here, inside = chunks[turn] < c.chunks, chunks[turn] < self.padded_chunks()
            self.put(values, g, row, chunks[turn], codes, scales, Int32(c.chunks), live & here, inside)

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
        """Weights of a chunk."""
        size = 2 if self.config.weight == "bf16" else 4
        return load_chunk(mWeight.iterator.toint() + Int64(chunk) * (CHUNK * size), self.config.weight, here)

    def over_row(self, rows_of_values: list) -> Float64:
        """Sum of squares of the row; every thread has it."""
        c = self.config
        # Of the values only an fp32 scale shows the last bits.
        group = 1 if c.format.scale == "fp32" else 4
        total = rms.over_lanes(rms.sum_of_squares([v for values in rows_of_values for v in values], group))
        if const_expr(c.warps == 1):
            return total
        pointer = SmemAllocator().allocate_array(Float64, c.warps, byte_alignment=8)
        partials = cute.make_tensor(pointer, cute.make_layout(c.warps))
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
    """The values are those of a row of x."""

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
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.format.name}_k{c.k}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mWeight, mScale, mCodes, mScales, rows, stride).launch(
            grid=[padded_rows, 1, 1], block=[c.threads, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, mX, mWeight, mScale, mCodes, mScales, rows, stride):
        c = self.config
        row, _, _ = cute.arch.block_idx()
        live = row < rows
        begin = mX.iterator.toint() + Int64(row) * stride * 2
        chunks = [self.chunk_of(turn) for turn in range(c.turns)]
        values = [load_chunk(begin + 2 * CHUNK * Int64(n), "bf16", live & (n < c.chunks)) for n in chunks]
        g = Float32(1.0)
        if const_expr(mScale is not None):
            g = mScale[0]
        codes, scales = mCodes.iterator.toint(), mScales.iterator.toint()
        self.normalise_and_put(values, mWeight, g, row, codes, scales, live)
