"""Small-M linear for Hopper with 16-bit activations (W4A16, W8A16): exact products by mma.sync m16n8k16 f16.

A consumer warp keeps the activations of its k in registers as B operands, so a unit costs loads of the packed weights,
the unpack to f16 in registers (`unpack`), eight products and the block scales: on the accumulators where columns stand
for blocks, else on NVFP4 weights (`scaled_weights`).

BF16 activations become f16 after a power of two for each token and warp that brings the largest of its k to [2^14,
2^15): exact down to 2^-29 of the largest, and then to 2^-39 of it. Unpacked E2M1 is 2^-14 of the weight; both factors
return in one multiplication by a power of two.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32, const_expr

from kernels.linear import ptx
from kernels.linear.config import LANES, STEPS
from kernels.linear.core import WeightStream
from kernels.linear.layout import F16_MASK, F16_SIGN
from kernels.shared.ptx import as_float


class LinearSm90(WeightStream):
    """The kernel for one configuration: compiled once for its weights' shapes, launched for any number of tokens up to
    its columns."""

    @cute.jit
    def consume(self, mX, ring, words, partials, full, empty, ready, free, first, last, m, x_stride):
        """One consumer warp: its unit of every ring stage; its partial sums for every set of tiles."""
        c = self.config
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        self.prepare(words, warp)
        if const_expr(c.pdl):
            cute.arch.griddepcontrol_wait()
        if const_expr(not c.rounded):
            words += warp * (c.turns * c.b_words * LANES * 4)
        if const_expr(c.grouped):
            self.meet()
            each = c.tiles[0] // c.tiles_per_set
            for part in cutlass.range(first // each, (last - 1) // each + 1, unroll=1):
                begin, end = cutlass.max(first, part * each), cutlass.min(last, (part + 1) * each)
                b, factors = self.activations(mX, words, warp, part * c.k, m, x_stride)
                self.sets(ring, words, partials, full, empty, ready, free, begin - first, end - first, warp, b, factors)
        else:
            b, factors = self.activations(mX, words, warp, Int32(0), m, x_stride)
            self.meet()
            self.sets(ring, words, partials, full, empty, ready, free, Int32(0), last - first, warp, b, factors)

    @cute.jit
    def sets(self, ring, words, partials, full, empty, ready, free, begin, end, warp, b, factors):
        """Sets `begin` to `end` of the CTA."""
        c = self.config
        for i in cutlass.range(begin, end, unroll=1):
            sums = [[Float32(0.0)] * c.sums for _ in range(c.column_tiles)]
            for turn in cutlass.range_constexpr(c.turns):
                item = i * c.turns + turn
                stage = item % c.stages
                cute.arch.mbarrier_wait(full + stage, (item // c.stages) & 1)
                unit = ring + stage * c.stage_bytes + warp * c.unit_bytes
                if const_expr(turn == c.turns - 1 and c.last_turn_units < c.warps):
                    if warp < c.last_turn_units:
                        sums = self.multiply(unit, empty + stage, words, turn, b, sums)
                    else:
                        self.give_back(empty + stage)
                else:
                    sums = self.multiply(unit, empty + stage, words, turn, b, sums)
            buffer = i % c.buffers
            cute.arch.mbarrier_wait(free + buffer, ((i // c.buffers) & 1) ^ 1)
            self.keep(partials, buffer, warp, self.partial_sums(sums, factors))
            self.release(ready + buffer)

    # ------------------------------------------------------------------ activations

    def prepare(self, words, warp):
        """What can be done before the activations exist."""

    @cute.jit
    def activations(self, mX, words, warp, offset, m, x_stride):
        """B operands of this warp's units, [turn][column tile][product], and the factors of a lane's sums. The operands
        are words in registers, or an empty list if they lie in shared memory."""
        c = self.config
        x = mX.iterator.toint() + 2 * Int64(offset)
        if const_expr(c.b_in_shared):
            return [], self.to_shared(x, words, warp, m, x_stride)
        tiles, steps = range(c.column_tiles), range(STEPS // c.blocks)
        raw = [
            [[self.load_pair(x, warp, turn, tile, step, m, x_stride) for step in steps] for tile in tiles]
            for turn in range(c.turns)
        ]
        exponents = []
        for tile in tiles:
            largest = Uint32(0)
            for of_turn in raw:
                for pair in of_turn[tile]:
                    largest = self.larger(largest, pair)
            exponents.append(self.exponent(largest))
        b = [
            self.to_f16(word, exponents[tile])
            for of_turn in raw
            for tile in tiles
            for pair in of_turn[tile]
            for word in pair
        ]
        return b, [self.factors(e) for e in exponents]

    @cute.jit
    def to_shared(self, x, words, warp, m, x_stride) -> list:
        """The same into this warp's part of shared memory, a column tile at a time: all its loads are under way before
        the first use, and its activations lie in registers until the largest of them is known."""
        c = self.config
        steps, factors = STEPS // c.blocks, []
        for tile in cutlass.range_constexpr(c.column_tiles):
            places = [(turn, step) for turn in range(c.turns) for step in range(steps)]
            pairs = [self.load_pair(x, warp, turn, tile, step, m, x_stride) for turn, step in places]
            largest = Uint32(0)
            for pair in pairs:
                largest = self.larger(largest, pair)
            exponent = self.exponent(largest)
            for place, pair in zip(places, pairs, strict=True):
                low, high = [self.to_f16(word, exponent) for word in pair]
                ptx.store_shared_64(self.place_of(words, place[0], tile, place[1]), low, high)
            factors.append(self.factors(exponent))
        return factors

    def place_of(self, words, turn, tile, step):
        """Where in shared memory this lane's pair for one product lies, the next product's beside it; each lane reads
        what it wrote."""
        index, together = self.pair_of(turn, tile, step), min(2, STEPS // self.config.blocks)
        return words + (index // together * LANES + cute.arch.lane_idx()) * (8 * together) + index % together * 8

    def pair_of(self, turn: int, tile: int, step: int) -> int:
        """Number of a lane's pair of words for one product."""
        return (turn * self.config.column_tiles + tile) * (STEPS // self.config.blocks) + step

    def load_pair(self, x, warp, turn, tile, step, m, x_stride) -> list:
        """Four BF16 activations, two words; zeros where token or k end. Lane 4 c + t holds column c: activations 2 t,
        2 t + 1, 2 t + 8, 2 t + 9 of a block."""
        c = self.config
        lane = cute.arch.lane_idx()
        # Warps without a unit of their own read another's: what they make of it is not added.
        unit = turn * c.warps + warp if c.turns > 1 else warp % c.share
        inside = unit < c.share
        unit = unit + self.rank() * c.share if c.split > 1 else unit
        column = 8 * tile + lane // 4
        token = column // c.summed_columns
        segment = column // c.blocks % c.segments
        block = unit * STEPS + step * c.blocks + column % c.blocks
        k = segment * c.segment_k + block * 16
        wanted = (token < m) & (k < c.k) & inside
        address = x + 2 * (Int64(token) * x_stride + k + lane % 4 * 2)
        return [ptx.load_global_32(address + 16 * half, Int32(wanted)) for half in range(2)]

    def larger(self, largest, pair: list):
        """The largest magnitude so far, as the bits of an f32."""
        for word in pair:
            largest = cutlass.max(cutlass.max(largest, word << 16 & 0x7FFF0000), word & 0x7FFF0000)
        return largest

    def exponent(self, largest):
        """Biased f32 exponent, 15 to 254, of the largest magnitude of this lane's token in the warp."""
        steps = [1, 2] + [4 << bit for bit in range(3) if self.config.summed_columns >> (bit + 1)]
        for step in steps:
            largest = cutlass.max(largest, Uint32(cute.arch.shuffle_sync_bfly(largest, offset=step)))
        return cutlass.min(cutlass.max(largest >> 23, Uint32(15)), Uint32(254))

    def to_f16(self, word, exponent):
        """A pair of bf16 as a pair of f16, times the power of two that takes the largest to [2^14, 2^15)."""
        scale = as_float((Uint32(268) - exponent) << 23)
        return ptx.pack_f16(as_float(word << 16) * scale, as_float(word & 0xFFFF0000) * scale)

    def factors(self, exponent) -> list:
        """What this lane's sums have to be multiplied by, one for each of its columns that is kept apart."""
        lane = cute.arch.lane_idx()
        exponent = exponent - 14 if self.config.weights == "fp8" else exponent
        return [
            as_float(Uint32(cute.arch.shuffle_sync(exponent, offset=lane % 4 * 8 + 4 * column)) << 23)
            for column in range(self.config.kept_columns)
        ]

    # ------------------------------------------------------------------ one unit

    def multiply(self, unit, empty, words, turn: int, b: list, sums: list) -> list:
        """sums += weights of the unit times activations."""
        c = self.config
        lane = cute.arch.lane_idx()
        packed = self.load_weights(unit, lane)
        scales = self.load_scales(unit + c.weight_bytes, lane)
        self.give_back(empty)
        if c.scaled_weights:
            return self.multiply_scaled(packed, scales, words, turn, b, sums)
        return self.multiply_blocks(packed, scales, words, turn, b, sums, lane)

    def multiply_scaled(self, packed: list, scales: list, words, turn: int, b: list, sums: list) -> list:
        """Block scales on the weights. Their products are multiples of 2^-24 here, as f16 has them."""
        for i, word in enumerate(scales):
            rows = ptx.e4m3_to_f16(word)
            operands = [self.operands(b, words, turn, tile, 2 * i) for tile in range(self.config.column_tiles)]
            for half in range(2):
                by_row = [ptx.both_halves(row, half) for row in rows]
                unpacked = self.unpack(packed, 2 * i + half)
                a = [ptx.multiply_f16x2(pair, by_row[j % 2]) for j, pair in enumerate(unpacked)]
                sums = [ptx.mma_f16(d, a, of[2 * half : 2 * half + 2]) for d, of in zip(sums, operands, strict=True)]
        return sums

    def multiply_blocks(self, packed: list, scales: list, words, turn: int, b: list, sums: list, lane) -> list:
        """Block by block, scales on the sums."""
        c = self.config
        for index in range(c.passes):
            accumulators = [[Float32(0.0)] * 4 for _ in range(c.column_tiles)]
            for i in range(c.span):
                step = index * c.span + i
                a = self.unpack(packed, step)
                for tile in range(c.column_tiles):
                    operand = self.operand(b, words, turn, tile, step, lane)
                    accumulators[tile] = ptx.mma_f16(accumulators[tile], a, operand)
            by_row = self.scales_of(scales, index)
            for tile in range(c.column_tiles):
                sums[tile] = self.scaled(sums[tile], accumulators[tile], by_row)
        return sums

    def load_weights(self, unit, lane) -> list:
        """The lane's words of a unit: STEPS of E2M1, twice as many of E4M3."""
        groups = self.config.weight_bytes // 512
        return [word for i in range(groups) for word in ptx.load_shared_128(unit + lane * 16 + i * 512)]

    def load_scales(self, base, lane) -> list:
        """The lane's words of scales: (row g block 2 i, 2 i + 1, row g + 8 block 2 i, 2 i + 1) in word i. A block
        of MXFP4 is two of 16 k; where a lane needs one of every two, it is the first of its half word."""
        c = self.config
        g, t = lane // 4, lane % 4
        if c.weights == "fp8":
            return [ptx.load_shared_f32(base + 4 * self.segment_of_row(lane, half)) for half in range(2)]
        if c.weights == "mxfp4":
            if c.blocks <= 2:
                return ptx.load_shared_64(base + g * 8)
            words = [t // 2] if c.blocks == 8 else [0, 1]
            return [ptx.load_shared_32(base + g * 8 + 4 * i) >> t % 2 * 8 for i in words]
        if c.blocks == 8:
            return [ptx.load_shared_32(base + g * 16 + t * 4)]
        if c.blocks == 4:
            return [ptx.load_shared_32(base + g * 16 + (t % 2) * 4 + 8 * i) for i in range(2)]
        return ptx.load_shared_128(base + g * 16)

    def unpack(self, packed: list, step: int) -> list:
        """The A operand of product `step`: f16 pairs of (row g, row g + 8) x (k 2 t, 2 t + 1 and 2 t + 8, 2 t + 9)."""
        if self.config.weights == "fp8":
            low, high = (ptx.e4m3_to_f16(packed[2 * step + row]) for row in range(2))
            return [low[0], high[0], low[1], high[1]]
        q, mask, sign = packed[step], Uint32(F16_MASK), Uint32(F16_SIGN)
        return [
            q & mask,
            (q << 3) & mask,
            ptx.select_bits(q << 1, q << 6, sign) & mask,
            ptx.select_bits(q << 2, q << 9, sign) & mask,
        ]

    def operands(self, b: list, words, turn: int, tile: int, step: int) -> list:
        """B operands of products `step` and `step` + 1, of which every column has its block."""
        if self.config.b_in_shared:
            return ptx.load_shared_128(self.place_of(words, turn, tile, step))
        first = 2 * self.pair_of(turn, tile, step)
        return b[first : first + 4]

    def operand(self, b: list, words, turn: int, tile: int, step: int, lane) -> list:
        """The B operand of product `step`: zero in the columns of other blocks."""
        c = self.config
        first = 2 * self.pair_of(turn, tile, step // c.blocks)
        pair = b[first : first + 2]
        if c.b_in_shared:
            pair = ptx.load_shared_64(self.place_of(words, turn, tile, step // c.blocks))
        if c.blocks == 1:
            return pair
        mine = Uint32(0) - Uint32(Boolean(lane // 4 % c.blocks == step % c.blocks))
        return [word & mine for word in pair]

    def scales_of(self, scales: list, index: int) -> list:
        """Scales of accumulator `index`: [row g, row g + 8] x [even column, odd column]."""
        c = self.config
        if c.weights == "fp8":
            return [[scale] * 2 for scale in scales]
        if c.weights == "mxfp4":
            number = index * c.blocks // 2 if c.blocks <= 2 else 2 * index
            word = scales[number // 2] >> number % 2 * 8
            return [[self.power(word >> 16 * half & 0xFF)] * 2 for half in range(2)]
        word = scales[index // 2 if c.blocks == 1 else index]
        row = [ptx.f16_to_f32(pair) for pair in ptx.e4m3_to_f16(word)]
        if c.blocks == 1:
            return [[row[half][index % 2]] * 2 for half in range(2)]
        return row

    def power(self, byte):
        """2^(byte - 127), which is subnormal for 0, and NaN for 255."""
        special = Uint32(Boolean((byte + 1) & 0xFE == 0))
        return as_float((byte << 23) | (special << 22))

    def scaled(self, sums: list, accumulator: list, scales: list) -> list:
        """sums + accumulator * scale, for both columns in one sum if they are blocks of one segment."""
        if self.config.alternating:
            return [cute.math.fma(accumulator[3 * half], scales[half][half], sums[half]) for half in range(2)]
        if self.config.kept_columns == 1:
            return [
                cute.math.fma(
                    accumulator[2 * half + 1],
                    scales[half][1],
                    cute.math.fma(accumulator[2 * half], scales[half][0], sums[half]),
                )
                for half in range(2)
            ]
        return [
            cute.math.fma(accumulator[2 * half + column], scales[half][column], sums[2 * half + column])
            for half in range(2)
            for column in range(2)
        ]

    # ------------------------------------------------------------------ after the last unit of a tile

    def partial_sums(self, sums: list, factors: list) -> list:
        """What the epilogue adds: sums of columns whose segment is another than that of their row count nothing."""
        c = self.config
        lane = cute.arch.lane_idx()
        found = []
        for tile in range(c.column_tiles):
            if c.alternating:
                # Even columns of row g, odd ones of row g + 8.
                mine = [sums[tile][0], sums[tile][-1]]
                found.append(mine[0] * factors[tile][0] + mine[1] * factors[tile][1])
                continue
            rows = []
            for half in range(2):
                values = []
                for column in range(c.kept_columns):
                    value = sums[tile][half * c.kept_columns + column] * factors[tile][column]
                    segment = (8 * tile + 2 * (lane % 4) + column) // c.blocks % c.segments
                    if c.segments > 1:
                        value = cutlass.select_(segment == self.segment_of_row(lane, half), value, Float32(0.0))
                    values.append(value)
                rows.append([values[0] + values[1]] if c.merged and c.kept_columns == 2 else values)
            if c.segments == 2:
                rows = [[a + b for a, b in zip(*rows, strict=True)]]
            found += [value for row in rows for value in row]
        return found

    def segment_of_row(self, lane, half: int):
        """Segment of row g of a tile, or of row g + 8."""
        segments = self.config.segments
        if segments == 4:
            return lane // 4 & 3
        return Int32(half if segments == 2 else 0)
