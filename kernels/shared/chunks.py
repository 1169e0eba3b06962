"""Passes whose threads each make 16 consecutive values of a row, quantise and store them: nothing crosses a thread."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32, const_expr

from kernels.shared import ptx
from kernels.shared.chunk_config import WORDS, ChunkConfig
from kernels.shared.configured import Configured
from kernels.shared.encode import Encoder, Loaded
from kernels.shared.formats import CHUNK, SWIZZLE_COLUMNS

LANES = 32
RANGE = 2688.0
"""6 x 448: the largest NVFP4 value under a global scale of 1."""


def load_words(address: Int64, dtype: str, wanted: Boolean) -> list:
    """The words of sixteen values at an address that is a multiple of 16; zeros unless wanted."""
    return [w for i in range(WORDS[dtype] // 4) for w in ptx.load_128(address + 16 * i, wanted)]


def values_of(words: list, dtype: str) -> list:
    """The values that words stand for, as floats."""
    return [ptx.as_float(w) for w in words] if dtype == "f32" else Loaded(words)


def load_chunk(address: Int64, dtype: str, wanted: Boolean) -> list:
    """Sixteen values at an address that is a multiple of 16, as floats; zeros unless wanted."""
    return values_of(load_words(address, dtype, wanted), dtype)


class ChunkPass(Configured, Encoder):
    """CTA (x, y): rows x, x + grid.x, ...; chunks y * threads + thread. The words of a row are under way while those of
    the one before are worked on. A subclass says what the values are."""

    config: ChunkConfig

    def fetch(self, a, b, wanted: Boolean) -> list:
        """The words at addresses a and b that a chunk is made of."""
        return load_words(a, self.config.dtype, wanted)

    def values(self, words: list) -> list:
        """The 16 values made of them."""
        return values_of(words, self.config.dtype)

    @cute.jit
    def __call__(
        self,
        mA: cute.Tensor,  # (rows, k)
        mB: cute.Tensor | None,  # (rows, k), of passes with two inputs
        mScale: cute.Tensor | None,  # () fp32: the global scale; with `computed` (parts,): bits of partial maxima
        mNew: cute.Tensor | None,  # () fp32: where a computed scale goes
        mCodes: cute.Tensor,
        mScales: cute.Tensor,
        rows: Int32,
        columns: Int32,  # chunks of a row
        a_stride: Int32,
        b_stride: Int32,
        ctas: Int32,
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.format.name}_{c.dtype}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mA, mB, mScale, mNew, mCodes, mScales, rows, columns, a_stride, b_stride).launch(
            grid=[ctas, (columns + c.threads - 1) // c.threads, 1],
            block=[c.threads, 1, 1],
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, mA, mB, mScale, mNew, mCodes, mScales, rows, columns, a_stride, b_stride):
        c = self.config
        size = 2 if c.dtype == "bf16" else 4
        a_row, b_row = Int64(a_stride) * size, Int64(b_stride) * size
        thread, _, _ = cute.arch.thread_idx()
        first, by, _ = cute.arch.block_idx()
        step, _, _ = cute.arch.grid_dim()
        chunk = by * c.threads + thread
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        a, b = mA.iterator.toint() + chunk * (CHUNK * size), Int64(0)
        if const_expr(mB is not None):
            b = mB.iterator.toint() + chunk * (CHUNK * size)
        ahead = cute.make_rmem_tensor((c.words,), Uint32)
        here = chunk < columns
        self.keep(ahead, self.fetch(a + Int64(first) * a_row, b + Int64(first) * b_row, here & (first < rows)))
        g = self.global_scale(mScale, mNew)
        codes, scales = mCodes.iterator.toint(), mScales.iterator.toint()
        padded_rows, padded = self.padded(rows, columns)
        for row in cutlass.range(first, padded_rows, step, unroll=1):
            words = self.kept(ahead)
            later = row + step
            self.keep(ahead, self.fetch(a + Int64(later) * a_row, b + Int64(later) * b_row, here & (later < rows)))
            values = self.values(words)
            self.put(values, g, row, chunk, codes, scales, columns, here & (row < rows), chunk < padded)

    def keep(self, registers, words: list) -> None:
        """Words into registers that outlive a turn of the loop."""
        for i, word in enumerate(words):
            registers[i] = word

    def kept(self, registers) -> list:
        """What they hold."""
        return [registers[i] for i in range(self.config.words)]

    def padded(self, rows, columns):
        """Rows and chunks that have a place for a scale."""
        if not self.format.swizzled:
            return rows, columns
        return (rows + 127) // 128 * 128, (columns + SWIZZLE_COLUMNS - 1) // SWIZZLE_COLUMNS * SWIZZLE_COLUMNS

    @cute.jit
    def global_scale(self, mScale, mNew):
        """The given one, or the one of the largest of the partial maxima, which every warp finds for itself."""
        g = Float32(1.0)
        if const_expr(self.config.computed):
            lane = cute.arch.lane_idx()
            largest = Uint32(0)
            for index in cutlass.range(lane, cute.size(mScale), LANES, unroll=1):
                largest = ptx.max_u32(largest, mScale[index])
            for bit in cutlass.range_constexpr(5):
                largest = ptx.max_u32(largest, Uint32(cute.arch.shuffle_sync_bfly(largest, offset=1 << bit)))
            g = self.scale_of(largest)
            thread, _, _ = cute.arch.thread_idx()
            bx, by, _ = cute.arch.block_idx()
            if (thread == 0) & (bx == 0) & (by == 0):
                mNew[0] = g
        elif const_expr(mScale is not None):
            g = mScale[0]
        return g

    def scale_of(self, largest):
        """amax / (6 x 448); 1 for a tensor of zeros, NaN for NaN and infinity."""
        g = ptx.div(ptx.as_float(largest), Float32(RANGE))
        g = cutlass.select_(largest == 0, Float32(1.0), g)
        return cutlass.select_(largest >= 0x7F800000, ptx.as_float(Uint32(0x7FC00000)), g)


class Largest:
    """Partial maxima of the magnitudes of a tensor, one word a CTA: the bits of a float, NaN above infinity."""

    WARPS = 16
    LOADS = 2
    """Chunks of a thread that are under way at once."""

    def __init__(self, config: ChunkConfig):
        self.config = config

    def key(self) -> str:
        """What distinguishes this kernel from others, for the compile cache."""
        return f"{type(self).__module__}.{type(self).__qualname__}({self.config.dtype})"

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (rows, k)
        mParts: cute.Tensor,  # (ctas,) uint32
        rows: Int32,
        columns: Int32,  # chunks of a row
        stride: Int32,
        ctas: Int32,
        stream,
    ):
        name = f"{type(self).__name__}_{self.config.dtype}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mParts, rows, columns, stride).launch(
            grid=[ctas, 1, 1], block=[LANES * self.WARPS, 1, 1], stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, mX, mParts, rows, columns, stride):
        size = 2 if self.config.dtype == "bf16" else 4
        smem = cutlass.memory.SmemAllocator()
        pointer = smem.allocate_array(Uint32, self.WARPS, byte_alignment=16)
        shared = cute.make_tensor(pointer, cute.make_layout(self.WARPS))
        thread, _, _ = cute.arch.thread_idx()
        lane, warp = thread % LANES, thread // LANES
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        x = mX.iterator.toint()
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        largest = Uint32(0)
        threads = LANES * self.WARPS
        for begin in cutlass.range(cta * threads * self.LOADS, rows * columns, ctas * threads * self.LOADS, unroll=1):
            found = []
            for i in cutlass.range_constexpr(self.LOADS):
                item = begin + i * threads + thread
                row = item // columns
                place = (Int64(row) * stride + (item - row * columns) * CHUNK) * size
                found += load_chunk(x + place, self.config.dtype, item < rows * columns)
            for value in found:
                largest = ptx.max_u32(largest, ptx.bits(value) & 0x7FFFFFFF)
        for bit in cutlass.range_constexpr(5):
            largest = ptx.max_u32(largest, Uint32(cute.arch.shuffle_sync_bfly(largest, offset=1 << bit)))
        if lane == 0:
            shared[warp] = largest
        cute.arch.sync_threads()
        if (warp == 0) & (lane == 0):
            for other in cutlass.range_constexpr(1, self.WARPS):
                largest = ptx.max_u32(largest, shared[other])
            mParts[cta] = largest
