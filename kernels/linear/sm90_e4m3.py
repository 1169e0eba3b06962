"""Small-M linear for Hopper with E4M3 activations (W4A8, W8A8): wgmma m64nNk32 with the weights as A, in registers.

Four warps of a warpgroup hold four neighbouring tiles over the same k and multiply them with one B operand in shared
memory, which the CTA makes once from the BF16 activations: rounded to E4M3 under one power of two a token. Unpacked
E2M1 is 2^-6 of the weight; both factors return in one multiplication by a power of two.

wgmma cuts its sums of E4M3 to 13 bits behind the leading one (measured on an H200). A sum goes over at most 128 k
before its block scales make it f32, so that this stays below the rounding of the activations.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32, const_expr

from kernels.linear import ptx
from kernels.linear.config import AMAX_BYTES, GROUP, LANES, STEPS, UNIT_K
from kernels.linear.layout import E4M3_LOW, E4M3_MASK
from kernels.linear.sm90 import LinearSm90
from kernels.shared.ptx import as_float, to_e4m3x4

CONSUMERS = 1
"""The named barrier of the consumer warps; 0 is the CTA's."""
SLAB_K = 32
"""k of one wgmma."""


class RoundedLinearSm90(LinearSm90):
    """The kernel for one configuration."""

    @cute.jit
    def prepare(self, words, warp):
        """Zeros wherever no activation will lie."""
        c = self.config
        thread = warp * LANES + cute.arch.lane_idx()
        for at in cutlass.range(thread * 8, c.activation_bytes - AMAX_BYTES, c.warps * LANES * 8, unroll=1):
            ptx.store_shared_64(words + at, Uint32(0), Uint32(0))

    @cute.jit
    def activations(self, mX, words, warp, offset, m, x_stride):
        """B operands of all units into shared memory, and the factor of each of a lane's sums.

        Slab i of a unit (32 k) is a matrix of 8 columns x 32 bytes a column tile, as wgmma reads it without swizzle:
        two halves of 16 k, in each a column's 16 bytes one after the other.
        """
        c = self.config
        x = mX.iterator.toint() + 2 * Int64(offset)
        thread = warp * LANES + cute.arch.lane_idx()
        size = c.activation_bytes - AMAX_BYTES
        if const_expr(c.grouped):
            self.consumers_meet()  # nobody may still read the last group's operands
        table = words + size
        largest = cute.make_rmem_tensor((c.tokens,), Uint32)
        for token in cutlass.range_constexpr(c.tokens):
            largest[token] = Uint32(0)
        for piece in cutlass.range(self.pieces, unroll=1):
            loaded = self.load_piece(x, thread, piece, m, x_stride)
            for at, token in loaded:
                largest[token] = self.larger(largest[token], loaded[at, token])
        for token in cutlass.range_constexpr(c.tokens):
            of_warp = Uint32(cute.arch.warp_redux_sync(largest[token], "max"))
            ptx.store_shared_32(table + (token * 16 + warp) * 4, of_warp)
        self.consumers_meet()
        exponents = [self.exponent_of(table, token) for token in range(c.tokens)]
        for piece in cutlass.range(self.pieces, unroll=1):
            again = self.load_piece(x, thread, piece, m, x_stride)
            for at, token in again:
                word = self.to_e4m3(again[at, token], exponents[token])
                self.put(words, token, self.k_of(thread, piece, at), word)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.consumers_meet()
        return [], [self.factors_of(exponents, tile) for tile in range(c.column_tiles)]

    @property
    def places(self) -> int:
        """Places of a thread along k, of four activations."""
        return -(-self.config.k // (self.config.warps * LANES * 4))

    @property
    def together(self) -> int:
        """Those that are loaded together: as many as registers hold for all tokens."""
        return min(self.places, max(1, (32 if self.config.warps <= 8 else 16) // self.config.tokens))

    @property
    def pieces(self) -> int:
        """Loads of that many places."""
        return -(-self.places // self.together)

    def k_of(self, thread, piece, at: int):
        """The first k of a thread's place."""
        return thread * 4 + (piece * self.together + at) * (self.config.warps * LANES * 4)

    def load_piece(self, x, thread, piece, m, x_stride) -> dict:
        """Four activations at each place of a piece of every token, all loads under way before the first use; zeros
        where token or k end."""
        c = self.config
        found = {}
        for at in range(self.together):
            k = self.k_of(thread, piece, at)
            for token in range(c.tokens):
                address = x + 2 * (Int64(token) * x_stride + k)
                found[at, token] = ptx.load_global_64(address, Int32((k < c.k) & (token < m)))
        return found

    @cute.jit
    def put(self, words, token, k, word):
        """Four rounded activations to their place in shared memory, if there are such k."""
        if k < self.config.k:
            ptx.store_shared_32(words + self.byte_of(token, k), word)

    def consumers_meet(self):
        """A barrier of the consumer warps."""
        cute.arch.barrier(barrier_id=CONSUMERS, number_of_threads=self.config.warps * LANES)

    def exponent_of(self, table, token):
        """Biased f32 exponent, 20 to 254, of 2^8 times the smallest power of two s with amax <= 448 s."""
        lane = cute.arch.lane_idx()
        largest = ptx.load_shared_32(table + (token * 16 + lane % self.config.warps) * 4)
        largest = Uint32(cute.arch.warp_redux_sync(largest, "max"))
        return cutlass.min(cutlass.max((largest + 0x1FFFFF) >> 23, Uint32(20)), Uint32(254))

    def to_e4m3(self, pair: list, exponent):
        """Four bf16 divided by their token's power of two, as E4M3 bytes."""
        scale = as_float((Uint32(262) - exponent) << 23)
        halves = [half for word in pair for half in (word << 16, word & 0xFFFF0000)]
        return to_e4m3x4([as_float(half) * scale for half in halves])

    def byte_of(self, token, k):
        """Where four activations of a token lie in shared memory."""
        c = self.config
        segment, within = k // c.segment_k, k % c.segment_k
        unit, block = within // UNIT_K, within % UNIT_K // 16
        column = (token * c.segments + segment) * c.blocks + block % c.blocks
        slab = (unit * (UNIT_K // SLAB_K) + block // 2) * c.column_tiles + column // 8
        return slab * 256 + block % 2 * 128 + column % 8 * 16 + within % 16

    def factors_of(self, exponents: list, tile: int) -> list:
        """What a lane's sums have to be multiplied by, one for each of its columns that is kept apart."""
        c = self.config
        back = 8 if c.weights == "fp8" else 2  # E2M1 reads as 2^-6 of its value
        found = []
        for kept in range(c.kept_columns):
            token = (8 * tile + cute.arch.lane_idx() % 4 * 2 + kept) // c.summed_columns
            exponent = exponents[0]
            for other in range(1, c.tokens):
                exponent = cutlass.select_(token == other, exponents[other], exponent)
            found.append(as_float((exponent - back) << 23))
        return found

    # ------------------------------------------------------------------ sets of tiles

    @cute.jit
    def sets(self, ring, words, partials, full, empty, ready, free, begin, end, warp, b, factors):
        """Sets `begin` to `end` of the CTA. The turns are a loop: unrolled, the descriptors of all of them would be
        kept in
        registers."""
        c = self.config
        kept = cute.make_rmem_tensor((c.column_tiles * c.sums,), Float32)
        for i in cutlass.range(begin, end, unroll=1):
            kept.fill(0.0)
            for turn in cutlass.range(c.turns, unroll=1):
                item = i * c.turns + turn
                stage = item % c.stages
                cute.arch.mbarrier_wait(full + stage, (item // c.stages) & 1)
                if turn * c.warps + warp < c.units * GROUP:
                    sums = [[kept[tile * c.sums + n] for n in range(c.sums)] for tile in range(c.column_tiles)]
                    unit = ring + stage * c.stage_bytes + warp * c.unit_bytes
                    sums = self.multiply(unit, empty + stage, words, turn, b, sums)
                    for n in cutlass.range_constexpr(c.column_tiles * c.sums):
                        kept[n] = sums[n // c.sums][n % c.sums]
                else:
                    self.give_back(empty + stage)
            buffer = i % c.buffers
            cute.arch.mbarrier_wait(free + buffer, ((i // c.buffers) & 1) ^ 1)
            sums = [[kept[tile * c.sums + n] for n in range(c.sums)] for tile in range(c.column_tiles)]
            self.keep(partials, buffer, warp, self.partial_sums(sums, factors))
            self.release(ready + buffer)

    # ------------------------------------------------------------------ one unit

    def multiply(self, unit, empty, words, turn: int, b: list, sums: list) -> list:
        """sums += weights of the unit times activations, block by block under their scales."""
        c = self.config
        lane = cute.arch.lane_idx()
        packed = self.load_weights(unit, lane)
        scales = self.load_scales(unit + c.weight_bytes, lane)
        self.give_back(empty)
        slabs = UNIT_K // SLAB_K
        group = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // GROUP
        base = words + (turn * (c.warps // GROUP) + group) * (slabs * c.column_tiles * 256)
        descriptors = [self.descriptor(base + slab * c.column_tiles * 256) for slab in range(slabs)]
        a = [self.unpack(packed, step) for step in range(STEPS)]
        together = max(1, min(c.passes, 32 // (4 * c.column_tiles)))
        for begin in range(0, c.passes, together):
            indices = range(begin, min(begin + together, c.passes))
            products = [self.products(a, descriptors, index) for index in indices]
            accumulators = ptx.wgmma_e4m3(products, 8 * c.column_tiles)
            for index, accumulator in zip(indices, accumulators, strict=True):
                by_row = self.scales_of(scales, index)
                for tile in range(c.column_tiles):
                    sums[tile] = self.scaled(sums[tile], accumulator[4 * tile : 4 * tile + 4], by_row)
        return sums

    def products(self, a: list, descriptors: list, index: int) -> list:
        """The products of accumulator `index`: whole slabs, or one block of a slab beside zeros."""
        span = self.config.span
        if span > 1:
            slabs = range(index * span // 2, (index + 1) * span // 2)
            return [(a[2 * slab] + a[2 * slab + 1], descriptors[slab]) for slab in slabs]
        nothing = [Uint32(0)] * 2
        return [(a[index] + nothing if index % 2 == 0 else nothing + a[index], descriptors[index // 2])]

    def unpack(self, packed: list, step: int) -> list:
        """E4M3 bytes of rows g and g + 8 in block `step`, k 4 t to 4 t + 3."""
        if self.config.weights == "fp8":
            return packed[2 * step : 2 * step + 2]
        q, mask = packed[step], Uint32(E4M3_MASK)
        return [q & mask, ptx.select_bits(q << 2, ptx.rotate_left(q, 6), Uint32(E4M3_LOW)) & mask]

    def descriptor(self, address):
        """A matrix without swizzle, 128 bytes from one half of k to the next, 256 from one column tile to the next."""
        return Int64((Uint32(address) >> 4 & 0x3FFF) | 8 << 16) | Int64(16) << 32
