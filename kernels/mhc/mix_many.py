"""The first mHC pass for many tokens, for Hopper and Blackwell: products of fn and the streams on the tensor cores.

A CTA has 256 values of each stream. It takes its part of fn apart into three BF16 numbers each, which hold all 24 bits,
and keeps them in shared memory as the tensor cores want them. A warp has tiles of 16 tokens; lane (g, t) loads 16 bytes
of tokens g and g + 8, values 8 t to 8 t + 7 of 32: the order of the sum is free, so these are the A fragments of two
products. Sums of squares are products of the same fragments. Tensor cores cut their sums to fp32; after 8 products
they are added to others that round, and the second pass adds those of all slices in fp64.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32, const_expr
from cutlass.memory import SmemAllocator

from kernels.mhc.config import (
    FRAGMENT_BYTES,
    MIXES,
    SLICE,
    SQUARES,
    STEP,
    STREAMS,
    SUMS,
    TILE,
    VALUES,
    ManyConfig,
)
from kernels.mhc.streams import Streams
from kernels.shared import ptx

LANES, PARTS = 32, 3
ROWS = MIXES // 8
"""Groups of eight rows of fn."""
STEPS = SLICE // STEP
BLOCK = 2
"""Steps whose streams are loaded at once, of all four."""


class MixMany(Streams):
    """CTA (slice, block of tiles)."""

    config: ManyConfig

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (tokens, 4, d) bf16
        mY: cute.Tensor | None,  # (tokens, d) bf16: a sublayer's output
        mC: cute.Tensor | None,  # (tokens, 4) fp32
        mM: cute.Tensor | None,  # (tokens, 4, 4) fp32
        mNew: cute.Tensor | None,  # (tokens, 4, d) bf16: the mixed streams
        mFn: cute.Tensor,  # (24, 4 d) fp32
        mSums: cute.Tensor,  # (tokens, slices, 32) fp32
        tokens: Int32,
        blocks: Int32,  # CTAs that share the tokens
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{'post_' * c.post}d{c.d}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mY, mC, mM, mNew, mFn, mSums, tokens).launch(
            grid=[c.slices, blocks, 1], block=[LANES * c.warps, 1, 1], stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, mX, mY, mC, mM, mNew, mFn, mSums, tokens):
        c = self.config
        part, block, _ = cute.arch.block_idx()
        _, blocks, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        lane, warp = thread % LANES, thread // LANES
        size = STEPS * STREAMS * ROWS * PARTS * FRAGMENT_BYTES
        fragments = SmemAllocator().allocate_array(Uint8, size, byte_alignment=128).toint()
        self.take_apart(mFn, fragments, part, thread)
        cute.arch.sync_threads()
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        tiles, stride = (tokens + TILE - 1) // TILE, blocks * c.warps
        # Neighbouring tiles to other CTAs: a few tiles are everybody's.
        first = warp * blocks + block
        sums = cute.make_rmem_tensor((4 * ROWS + 4,), Float32)
        ahead = cute.make_rmem_tensor((BLOCK * STREAMS * VALUES,), Uint32)
        turns = STEPS // BLOCK
        count = cutlass.max((tiles - first + stride - 1) // stride, 0) * turns
        if const_expr(not c.post):
            self.fetch(mX, ahead, first, part, Int32(0), lane, tokens)
        for turn in cutlass.range(count, unroll=1):
            tile, begin = first + turn // turns * stride, turn % turns * BLOCK
            if begin == 0:
                sums.fill(0.0)
            if const_expr(c.post):
                for i in cutlass.range_constexpr(BLOCK):
                    words = self.post(mX, mY, mC, mM, mNew, tile, part, begin + i, lane, tokens)
                    self.add(sums, self.products(fragments, words, begin + i, lane))
            else:
                words = [ahead[i] for i in range(BLOCK * STREAMS * VALUES)]
                later = turn + 1
                self.fetch(mX, ahead, first + later // turns * stride, part, later % turns * BLOCK, lane, tokens)
                for i in cutlass.range_constexpr(BLOCK):
                    own = words[i * STREAMS * VALUES : (i + 1) * STREAMS * VALUES]
                    self.add(sums, self.products(fragments, own, begin + i, lane))
            if begin == STEPS - BLOCK:
                self.leave(mSums, sums, tile, part, lane, tokens)

    # ------------------------------------------------------------------ fn

    @cute.jit
    def take_apart(self, mFn, fragments, part, thread):
        """All threads: fn of this slice as three BF16 fragments for each step, stream and eight rows. Lane (n, t) of a
        fragment has row n, values 8 t to 8 t + 7."""
        d = self.config.d
        for item in cutlass.range(thread, STEPS * STREAMS * ROWS * LANES, LANES * self.config.warps, unroll=1):
            lane, place = item % LANES, item // LANES
            step, rows = place // ROWS, place % ROWS
            first = part * SLICE + step // STREAMS * STEP + lane % 4 * VALUES
            row = rows * 8 + lane // 4
            address = mFn.iterator.toint() + 4 * (Int64(row) * (STREAMS * d) + step % STREAMS * d + first)
            loaded = [w for half in (0, 16) for w in ptx.load_128(address + half, first < d)]
            left = [ptx.as_float(w) for w in loaded]
            for i in cutlass.range_constexpr(PARTS):
                words = [ptx.to_bf16x2(left[n], left[n + 1]) for n in range(0, VALUES, 2)]
                ptx.store_shared_128(fragments + (place * PARTS + i) * FRAGMENT_BYTES + lane * 16, words)
                taken = [v for w in words for v in ptx.of_bf16x2(w)]
                left = [ptx.add(v, ptx.negative(t)) for v, t in zip(left, taken, strict=True)]

    # ------------------------------------------------------------------ streams

    def place(self, tile, part, step, lane) -> tuple:
        """Two tokens of a lane, and its first value."""
        token = tile * TILE + lane // 4
        return (token, token + TILE // 2), part * SLICE + step * STEP + lane % 4 * VALUES

    def fetch(self, mX, ahead, tile, part, step, lane, tokens) -> None:
        """The words of BLOCK steps, all streams, both tokens."""
        found = []
        for i in range(BLOCK):
            pair, first = self.place(tile, part, step + i, lane)
            for row, token in [(token * STREAMS + j, token) for j in range(STREAMS) for token in pair]:
                found += self.load(mX, row, first, (token < tokens) & (first < self.config.d))
        for i, word in enumerate(found):
            ahead[i] = word

    def post(self, mX, mY, mC, mM, mNew, tile, part, step, lane, tokens) -> list:
        """The words of one step after the post-mix, which are stored too."""
        pair, first = self.place(tile, part, step, lane)
        mixed = []
        for token in pair:
            here = (token < tokens) & (first < self.config.d)
            streams = [self.load(mX, token * STREAMS + j, first, here) for j in range(STREAMS)]
            output = self.load(mY, token, first, here)
            found = self.mixed(streams, output, self.factors(mC, mM, token, token < tokens))
            self.store(mNew, token, first, found, here)
            mixed.append(found)
        return [w for a, b in zip(*mixed, strict=True) for w in (*a, *b)]

    # ------------------------------------------------------------------ products

    def products(self, fragments, words: list, step, lane) -> list:
        """Sums over the 128 values of a step: for each group of rows the four of a fragment; then the four that hold
        squares."""
        zeros = [Float32(0.0)] * 4
        high, low, squares = [zeros] * ROWS, [zeros] * ROWS, [zeros] * 2
        for j in range(STREAMS):
            a, b = words[8 * j : 8 * j + 4], words[8 * j + 4 : 8 * j + 8]
            base = fragments + (step * STREAMS + j) * (ROWS * PARTS * FRAGMENT_BYTES) + lane * 16
            weights = [ptx.load_shared_128(base + i * FRAGMENT_BYTES) for i in range(ROWS * PARTS)]
            for half in (0, 2):
                of_tile = [a[half], b[half], a[half + 1], b[half + 1]]
                for rows in range(ROWS):
                    first, *others = [w[half : half + 2] for w in weights[rows * PARTS : (rows + 1) * PARTS]]
                    high[rows] = ptx.mma_bf16(high[rows], of_tile, first)
                    for other in others:
                        low[rows] = ptx.mma_bf16(low[rows], of_tile, other)
                squares = [
                    ptx.mma_bf16(total, of_tile, x[half : half + 2]) for total, x in zip(squares, (a, b), strict=True)
                ]
        found = [ptx.add(x, y) for g in range(ROWS) for x, y in zip(low[g], high[g], strict=True)]
        return found + squares[0][:2] + squares[1][2:]

    def add(self, sums, values: list) -> None:
        """Values to sums."""
        for i, value in enumerate(values):
            sums[i] = ptx.add(sums[i], value)

    def leave(self, mSums, sums, tile, part, lane, tokens) -> None:
        """The sums of a tile to their place."""
        g, t = lane // 4, lane % 4
        for n in range(2):
            token = tile * TILE + g + 8 * n
            address = mSums.iterator.toint() + 4 * SUMS * (Int64(token) * self.config.slices + part)
            for rows in range(ROWS):
                pair = [ptx.bits(sums[4 * rows + 2 * n + i]) for i in range(2)]
                ptx.store_words(address + 4 * (8 * rows + 2 * t), pair, token < tokens)
            square = cutlass.select_(g % 2 == 0, sums[4 * ROWS + 2 * n], sums[4 * ROWS + 2 * n + 1])
            ptx.store_words(address + 4 * SQUARES, [ptx.bits(square)], (token < tokens) & (g // 2 == t))
