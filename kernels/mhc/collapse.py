"""The second mHC pass, for Hopper and Blackwell: sums become A, C and M; streams collapse, are normalised and
quantised.

One CTA a token, launched while the first pass still runs (programmatic dependent launch). Its last warp runs Sinkhorn
and stores C and M; the others need A alone and have the row in registers. Of many tokens the first CTAs have C and M,
a thread each.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Float64, Int32, Int64, const_expr

from kernels.mhc.config import SQUARES, STREAMS, SUMS, CollapseConfig
from kernels.rmsnorm_quantize.config import WARP
from kernels.rmsnorm_quantize.simt import RowPass
from kernels.shared import ptx, rms
from kernels.shared.exponential import exp
from kernels.shared.formats import CHUNK

ROW_BARRIER = 1
MANY_THREADS, MANY_CARVEOUT = 512, 25
"""Of many tokens: threads of a multiprocessor that registers must do for, and shared memory in percent."""


class Collapse(RowPass):
    """x = sum_j A_j X_j, normalised and quantised; C and M as they are."""

    config: CollapseConfig

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (tokens, 4, k) bf16
        mSums: cute.Tensor,  # (tokens, slices, 32) fp32
        mMix: cute.Tensor,  # (3,) fp32
        mBase: cute.Tensor,  # (24,) fp32
        mWeight: cute.Tensor,  # (k,)
        mScale: cute.Tensor | None,  # () fp32: the global scale
        mCodes: cute.Tensor,
        mScales: cute.Tensor,
        mC: cute.Tensor,  # (tokens, 4) fp32
        mM: cute.Tensor,  # (tokens, 4, 4) fp32
        tokens: Int32,
        padded_rows: Int32,
        mixers: Int32,  # CTAs that have C and M of many tokens
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.format.name}_k{c.k}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, tokens, mixers).launch(
            grid=[mixers + padded_rows, 1, 1],
            block=[c.threads if c.many else c.threads + WARP, 1, 1],
            stream=stream,
            min_blocks_per_mp=max(1, MANY_THREADS // c.threads) if c.many else 0,
            preferred_smem_carveout=MANY_CARVEOUT if c.many else None,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, tokens, mixers):
        c = self.config
        cta, _, _ = cute.arch.block_idx()
        cute.arch.griddepcontrol_launch_dependents()
        if const_expr(c.many):
            if cta < mixers:
                cute.arch.griddepcontrol_wait()
                self.mixes_of_many(mSums, mMix, mBase, mC, mM, cta, tokens)
            else:
                self.row(mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, cta - mixers, tokens)
        else:
            self.row(mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, cta, tokens)

    @cute.jit
    def row(self, mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, row, tokens):
        """A CTA's token; of few tokens the last warp has C and M."""
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        live = row < tokens
        # Before the wait: what nobody writes while a model runs, and the streams, which are there when the first pass
        # is past its own wait. If it makes them, behind its end.
        weights = []
        if const_expr(not c.many):
            weights = self.all_weights(mWeight)
        index, mix = self.row_of_fn(thread % WARP)
        scale, base = mMix[mix], mBase[index]
        if const_expr(c.fused):
            cute.arch.griddepcontrol_wait()
        words = [self.load(mX, row, self.chunk_of(turn), live) for turn in range(c.turns)]
        if const_expr(not c.fused):
            cute.arch.griddepcontrol_wait()
        logit = self.logit(mSums, scale, base, row, live)
        if const_expr(c.many):
            shares = self.shares(logit)
            self.collapse(words, self.all_weights(mWeight), mScale, mCodes, mScales, shares, row, live)
        elif thread >= c.threads:
            self.mixes(logit, mC, mM, row, live)
        else:
            self.collapse(words, weights, mScale, mCodes, mScales, self.shares(logit), row, live)

    def load(self, mX, row, chunk, live: Boolean) -> list:
        """Sixteen values of each stream, as words."""
        c = self.config
        base, wanted = mX.iterator.toint(), live & (chunk < c.chunks)
        places = [(Int64(row) * STREAMS + j) * c.k + chunk * CHUNK for j in range(STREAMS)]
        return [[w for half in (0, 16) for w in ptx.load_128(base + 2 * p + half, wanted)] for p in places]

    @cute.jit
    def collapse(self, words: list, weights: list, mScale, mCodes, mScales, shares: list, row, live: Boolean):
        """One row: the sum of the streams, normalised, quantised, stored."""
        g = Float32(1.0)
        if const_expr(mScale is not None):
            g = mScale[0]
        values = [self.summed(streams, shares) for streams in words]
        codes, scales = mCodes.iterator.toint(), mScales.iterator.toint()
        self.normalise_and_put(values, weights, g, row, codes, scales, live, Int32(0))

    def summed(self, streams: list, shares: list) -> list:
        """Sixteen values of sum_j A_j X_j."""
        found = [Float32(0.0)] * CHUNK
        for share, words in zip(shares, streams, strict=True):
            values = [v for w in words for v in ptx.of_bf16x2(w)]
            found = [ptx.fma(share, v, total) for v, total in zip(values, found, strict=True)]
        return found

    def meet(self) -> None:
        """A barrier of the warps that have the row."""
        cute.arch.barrier(barrier_id=ROW_BARRIER, number_of_threads=self.config.threads)

    # ------------------------------------------------------------------ A, C, M

    def row_of_fn(self, lane) -> tuple:
        """The row of fn of a lane, and its place in `mix`."""
        index = cutlass.select_(lane < SQUARES, lane, 0)
        return index, cutlass.select_(index < STREAMS, 0, cutlass.select_(index < 2 * STREAMS, 1, 2))

    def logit(self, mSums, scale, base, row, live: Boolean):
        """Lane i of every warp: z_i scale + base of mixing row i, for i < 24."""
        c = self.config
        lane = cute.arch.thread_idx()[0] % WARP
        address = mSums.iterator.toint() + 4 * (Int64(row) * (c.slices * SUMS) + lane)
        wanted = live & (lane <= SQUARES)
        total = Float64(0.0)
        for part in range(c.slices):
            word = ptx.load_32(address + 4 * SUMS * part, wanted)
            total = ptx.add64(total, ptx.widen(ptx.as_float(word)))
        return self.finished(total, ptx.from_lane64(total, SQUARES), scale, base)

    def finished(self, total, squares, scale, base):
        """The logit of a row of fn from the sums over its products and over the squares."""
        z = ptx.mul64(total, rms.inverse_rms(squares, STREAMS * self.config.k, self.config.norm_eps))
        return ptx.narrow(ptx.fma64(z, ptx.widen(scale), ptx.widen(base)))

    def mixes_of_many(self, mSums, mMix, mBase, mC, mM, cta, tokens):
        """A token for each thread: C and M, all of it in its own registers."""
        row = cta * self.config.threads + cute.arch.thread_idx()[0]
        live = row < tokens
        *totals, squares = self.totals(mSums, row, live)
        places = [1] * STREAMS + [2] * STREAMS * STREAMS
        logits = [
            self.finished(total, squares, mMix[place], mBase[STREAMS + i])
            for i, (total, place) in enumerate(zip(totals, places, strict=True))
        ]
        shares = [ptx.bits(self.doubled(self.sigmoid(v))) for v in logits[:STREAMS]]
        ptx.store_words(mC.iterator.toint() + 16 * Int64(row), shares, live)
        m = self.sinkhorn(logits[STREAMS:])
        for j in range(STREAMS):
            words = [ptx.bits(v) for v in m[STREAMS * j : STREAMS * (j + 1)]]
            ptx.store_words(mM.iterator.toint() + 64 * Int64(row) + 16 * j, words, live)

    @cute.jit
    def totals(self, mSums, row, live: Boolean) -> list:
        """The sums of a token over all slices: of rows 4 to 23 of fn, and of squares."""
        c = self.config
        count = SQUARES + 1 - STREAMS
        address = mSums.iterator.toint() + 4 * (Int64(row) * (c.slices * SUMS) + STREAMS)
        totals = cute.make_rmem_tensor((count,), Float64)
        totals.fill(0.0)
        for part in cutlass.range(c.slices, unroll=1):
            for first in cutlass.range_constexpr(0, count, 4):
                words = ptx.load_128(address + 4 * (SUMS * part + first), live)
                for i in cutlass.range_constexpr(min(4, count - first)):
                    totals[first + i] = ptx.add64(totals[first + i], ptx.widen(ptx.as_float(words[i])))
        return [totals[i] for i in range(count)]

    def shares(self, logit) -> list:
        """A of each stream, in every lane."""
        own = ptx.add(self.sigmoid(logit), Float32(self.config.mix_eps))
        return [Float32(cute.arch.shuffle_sync(own, offset=j)) for j in range(STREAMS)]

    def sigmoid(self, logit):
        """1 / (1 + exp(-logit))."""
        return ptx.div(Float32(1.0), ptx.add(exp(ptx.negative(logit)), Float32(1.0)))

    @cute.jit
    def mixes(self, logit, mC, mM, row, live: Boolean):
        """One warp: C, and M by Sinkhorn, which every lane has to itself; lane i stores value i."""
        lane = cute.arch.thread_idx()[0] % WARP
        c = self.doubled(self.sigmoid(logit))
        wanted = live & (lane >= STREAMS) & (lane < 2 * STREAMS)
        ptx.store_words(mC.iterator.toint() + 4 * (Int64(row) * STREAMS + lane - STREAMS), [ptx.bits(c)], wanted)
        count = STREAMS * STREAMS
        logits = [Float32(cute.arch.shuffle_sync(logit, offset=2 * STREAMS + i)) for i in range(count)]
        m = self.sinkhorn(logits)
        own = m[0]
        for i in cutlass.range_constexpr(1, count):
            own = cutlass.select_(lane == i, m[i], own)
        ptx.store_words(mM.iterator.toint() + 4 * (Int64(row) * count + lane), [ptx.bits(own)], live & (lane < count))

    def doubled(self, c):
        """C is twice a sigmoid."""
        return ptx.add(c, c)

    @cute.jit
    def sinkhorn(self, logits: list) -> list:
        """Softmax of the rows plus eps, then columns and rows in turn; columns are last."""
        m = self.over_columns(self.softmax(logits))
        for _ in cutlass.range(self.config.iterations - 1, unroll=1):
            m = self.over_columns(self.over_rows(m))
        return m

    def softmax(self, logits: list) -> list:
        """Rows that sum to 1, plus eps."""
        found = []
        for j in range(STREAMS):
            row = logits[STREAMS * j : STREAMS * (j + 1)]
            most = row[0]
            for value in row[1:]:
                most = ptx.max_nan(most, value)
            powers = [exp(ptx.add(v, ptx.negative(most))) for v in row]
            total = self.sum(powers)
            found += [ptx.add(ptx.quick_div(p, total), Float32(self.config.mix_eps)) for p in powers]
        return found

    def over_rows(self, m: list) -> list:
        """Each row over its sum plus eps."""
        factors = [self.inverse(m[STREAMS * j : STREAMS * (j + 1)]) for j in range(STREAMS)]
        return [ptx.mul(v, factors[i // STREAMS]) for i, v in enumerate(m)]

    def over_columns(self, m: list) -> list:
        """Each column over its sum plus eps."""
        factors = [self.inverse(m[k::STREAMS]) for k in range(STREAMS)]
        return [ptx.mul(v, factors[i % STREAMS]) for i, v in enumerate(m)]

    def inverse(self, values: list):
        """1 / (sum + eps)."""
        return ptx.rcp_approx(ptx.add(self.sum(values), Float32(self.config.mix_eps)))

    def sum(self, values: list):
        """Of four values."""
        return ptx.add(ptx.add(values[0], values[1]), ptx.add(values[2], values[3]))
