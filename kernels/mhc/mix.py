"""The first mHC pass, for Hopper and Blackwell: residual streams are mixed (post), and multiplied by fn (pre).

A warp has 256 values of each of the four streams of a token, and 3 or 24 rows of fn. It leaves sums over its values;
the second pass adds those of all slices, in their order. What is multiplied by fn is the rounded value of the post-mix,
as if it had been read back. Many tokens have their products from mix_many.py.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32, const_expr

from kernels.mhc.config import SLICE, SQUARES, STREAMS, SUMS, VALUES, MixConfig
from kernels.mhc.streams import Streams
from kernels.shared import ptx

LANES = 32


class Mix(Streams):
    """CTA (slice of a block of tokens, group); a warp has a token, or with products one at a time."""

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
            grid=[c.slices * blocks, c.groups, 1],
            block=[LANES * c.warps, 1, 1],
            stream=stream,
            min_blocks_per_mp=c.resident,
            preferred_smem_carveout=0 if c.resident else None,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, mX, mY, mC, mM, mNew, mFn, mSums, tokens):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        cta, group, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        part, block = cta % c.slices, cta // c.slices
        lane, warp = thread % LANES, thread // LANES
        first = part * SLICE + lane * VALUES
        inside = first < c.d
        weights = []
        if const_expr(c.mix):
            # Before the wait: nobody writes fn while a model runs.
            weights = self.all_weights(mFn, group, first, inside)
        cute.arch.griddepcontrol_wait()
        # Behind it: the second pass loads streams as soon as it is launched.
        cute.arch.griddepcontrol_launch_dependents()
        token = block * c.warps + warp
        if const_expr(c.mix):
            for own in cutlass.range(token, tokens, ctas // c.slices * c.warps, unroll=1):
                streams = self.streams(mX, mY, mC, mM, mNew, own, first, inside, inside & (group == 0))
                total = self.over_lanes(self.products(weights, streams), lane)
                self.leave(mSums, own * c.slices + part, group, total, lane)
        else:
            here = inside & (token < tokens)
            self.streams(mX, mY, mC, mM, mNew, token, first, here, here)

    def streams(self, mX, mY, mC, mM, mNew, token, first, here, stored) -> list:
        """The words of each stream of a token; with `post` after the mix, which is stored."""
        found = [self.load(mX, token * STREAMS + j, first, here) for j in range(STREAMS)]
        if self.config.post:
            found = self.mixed(found, self.load(mY, token, first, here), self.factors(mC, mM, token, here))
            self.store(mNew, token, first, found, stored)
        return found

    # ------------------------------------------------------------------ products

    def all_weights(self, mFn, group, first, inside) -> list:
        """This thread's weights of each row of its group, stream by stream."""
        rows = [group * self.config.rows + row for row in range(self.config.rows)]
        return [[self.weights(mFn, row, j, first, inside) for j in range(STREAMS)] for row in rows]

    def products(self, weights: list, streams: list) -> list:
        """This thread's part of each row's product, of the sum of squares behind them, and zeros."""
        c = self.config
        sums = [Float32(0.0)] * c.places
        for j, values in enumerate(self.values(streams)):
            for row in range(c.rows):
                sums[row] = self.dot(values, weights[row][j], sums[row])
            sums[c.rows] = self.dot(values, values, sums[c.rows])
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

    def leave(self, mSums, row, group, total, lane) -> None:
        """The sums of a warp to their place; that of the squares by group 0."""
        c = self.config
        index, spare = lane // (LANES // c.places), lane % (LANES // c.places)
        place = cutlass.select_(index < c.rows, group * c.rows + index, Int32(SQUARES))
        wanted = (spare == 0) & ((index < c.rows) | ((index == c.rows) & (group == 0)))
        address = mSums.iterator.toint() + 4 * (Int64(row) * SUMS + place)
        ptx.store_words(address, [Uint32(ptx.bits(total))], wanted)
