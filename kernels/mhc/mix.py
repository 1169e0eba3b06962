"""The first mHC pass, for Hopper and Blackwell: residual streams are mixed (post), and multiplied by fn (pre).

A warp has 256 values of each of the four streams of a token, and 3 or 24 rows of fn. It leaves sums over its values;
the second pass adds those of all slices, in their order. The post-mix is computed in fp64 and rounded once; what is
multiplied by fn is the rounded value, as if it had been read back.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32, const_expr

from kernels.mhc.config import SLICE, SQUARES, STREAMS, SUMS, VALUES, MixConfig
from kernels.shared import ptx
from kernels.shared.configured import Configured

LANES = 32


class Mix(Configured):
    """CTA (slice, group, block of tokens); a warp has `tokens` neighbouring tokens at a time, and so on by the grid."""

    config: MixConfig

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (tokens, 4, d) bf16
        mY: cute.Tensor | None,  # (tokens, d) bf16: a sublayer's output
        mC: cute.Tensor | None,  # (tokens, 4) fp32
        mM: cute.Tensor | None,  # (tokens, 4, 4) fp32
        mNew: cute.Tensor | None,  # (tokens, 4, d) bf16: the mixed streams
        mFn: cute.Tensor | None,  # (24, 4 d) fp32
        mSums: cute.Tensor | None,  # (tokens, slices, 32) fp32
        tokens: Int32,
        blocks: Int32,  # CTAs that share the tokens
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{'post_' * c.post}{'mix_' * c.mix}d{c.d}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mY, mC, mM, mNew, mFn, mSums, tokens).launch(
            grid=[c.slices, c.groups, blocks], block=[LANES * c.warps, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, mX, mY, mC, mM, mNew, mFn, mSums, tokens):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        part, group, block = cute.arch.block_idx()
        _, _, blocks = cute.arch.grid_dim()
        lane, warp = thread % LANES, thread // LANES
        first = part * SLICE + lane * VALUES
        inside = first < c.d
        if const_expr(c.mix):
            cute.arch.griddepcontrol_launch_dependents()
        own = (block * c.warps + warp) * c.tokens
        for begin in cutlass.range(own, tokens, blocks * c.warps * c.tokens, unroll=1):
            all_streams = []
            for i in cutlass.range_constexpr(c.tokens):
                token, here = begin + i, inside & (begin + i < tokens)
                streams = [self.load(mX, token * STREAMS + j, first, here) for j in range(STREAMS)]
                if const_expr(c.post):
                    output = self.load(mY, token, first, here)
                    streams = self.mixed(streams, output, self.factors(mC, mM, token, token < tokens))
                    self.store(mNew, token, first, streams, here & (group == 0))
                all_streams.append(streams)
            if const_expr(c.mix):
                sums = self.products(mFn, group, first, inside, all_streams)
                for i in cutlass.range_constexpr(c.tokens):
                    total = self.over_lanes(sums[i], lane)
                    self.leave(mSums, (begin + i) * c.slices + part, group, total, lane, begin + i < tokens)

    # ------------------------------------------------------------------ streams

    def load(self, tensor, row, first, inside) -> list:
        """Four words of eight BF16 of a row of d."""
        return ptx.load_128(tensor.iterator.toint() + 2 * (Int64(row) * self.config.d + first), inside)

    def values(self, streams: list) -> list:
        """The values of words, stream by stream."""
        return [[v for w in words for v in (ptx.as_float(w << 16), ptx.as_float(w & 0xFFFF0000))] for words in streams]

    def store(self, mNew, token, first, streams: list, wanted) -> None:
        """The streams of a token to their place."""
        base = mNew.iterator.toint()
        for j, words in enumerate(streams):
            place = Int64(token * STREAMS + j) * self.config.d + first
            ptx.store_words(base + 2 * place, words, wanted)

    def factors(self, mC, mM, token, exists) -> tuple:
        """C of each stream, and M by source and destination, in fp64."""
        c = [ptx.as_float(w) for w in ptx.load_128(mC.iterator.toint() + 16 * Int64(token), exists)]
        base = mM.iterator.toint() + 64 * Int64(token)
        rows = [ptx.load_128(base + 16 * j, exists) for j in range(STREAMS)]
        return [ptx.widen(v) for v in c], [[ptx.widen(ptx.as_float(w)) for w in row] for row in rows]

    def mixed(self, streams: list, output: list, factors: tuple) -> list:
        """X'_k = C_k y + sum_j M_jk X_j, as words of BF16."""
        c, m = factors
        wide = [[ptx.widen(v) for v in values] for values in self.values(streams)]
        y = [ptx.widen(v) for v in self.values([output])[0]]
        found = []
        for k in range(STREAMS):
            sums = [ptx.mul64(c[k], v) for v in y]
            for j in range(STREAMS):
                sums = [ptx.fma64(m[j][k], v, total) for v, total in zip(wide[j], sums, strict=True)]
            low = [ptx.narrow(total) for total in sums]
            found.append([ptx.to_bf16x2(low[i], low[i + 1]) for i in range(0, VALUES, 2)])
        return found

    # ------------------------------------------------------------------ products

    def products(self, mFn, group, first, inside, all_streams: list) -> list:
        """For each token this thread's part of each row's product, of the sum of squares behind them, and zeros. A row
        of fn is loaded once for all tokens."""
        c = self.config
        zero = Float32(0.0)
        sums = [[zero] * c.places for _ in all_streams]
        for j in range(STREAMS):
            values = [self.values([streams[j]])[0] for streams in all_streams]
            for row in range(c.rows):
                weights = self.weights(mFn, group * c.rows + row, j, first, inside)
                for of_token, v in zip(sums, values, strict=True):
                    of_token[row] = self.dot(v, weights, of_token[row])
            for of_token, v in zip(sums, values, strict=True):
                of_token[c.rows] = self.dot(v, v, of_token[c.rows])
        return sums

    def weights(self, mFn, row, j, first, inside) -> list:
        """Eight weights of a row for stream j."""
        place = Int64(row) * (STREAMS * self.config.d) + j * self.config.d + first
        address = mFn.iterator.toint() + 4 * place
        return [ptx.as_float(w) for half in (0, 16) for w in ptx.load_128(address + half, inside)]

    def dot(self, a: list, b: list, total):
        """total + sum of a b."""
        for v, w in zip(a, b, strict=True):
            total = ptx.fma(v, w, total)
        return total

    def over_lanes(self, sums: list, lane):
        """Sums over the warp. Lanes exchange halves of what they hold until each has one sum left: sum i is in the
        lanes i * 32 / places and on."""
        offset = LANES // 2
        while len(sums) > 1:
            half = len(sums) // 2
            upper = (lane & offset) != 0
            kept = [cutlass.select_(upper, b, a) for a, b in zip(sums[:half], sums[half:], strict=True)]
            given = [cutlass.select_(upper, a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
            sums = [
                ptx.add(k, Float32(cute.arch.shuffle_sync_bfly(g, offset=offset)))
                for k, g in zip(kept, given, strict=True)
            ]
            offset //= 2
        total = sums[0]
        while offset:
            total = ptx.add(total, Float32(cute.arch.shuffle_sync_bfly(total, offset=offset)))
            offset //= 2
        return total

    def leave(self, mSums, row, group, total, lane, exists) -> None:
        """The sums of a warp to their place; that of the squares by group 0."""
        c = self.config
        index, spare = lane // (LANES // c.places), lane % (LANES // c.places)
        place = cutlass.select_(index < c.rows, group * c.rows + index, Int32(SQUARES))
        wanted = exists & (spare == 0) & ((index < c.rows) | ((index == c.rows) & (group == 0)))
        address = mSums.iterator.toint() + 4 * (Int64(row) * SUMS + place)
        ptx.store_words(address, [Uint32(ptx.bits(total))], wanted)
