"""The second mHC pass, for Hopper and Blackwell: sums become A, C and M; streams collapse, are normalised and
quantised.

One CTA a token, launched while the first pass still runs (programmatic dependent launch). Its last warp runs Sinkhorn
and stores C and M; the others need A alone and have the row in registers.
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
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_{c.format.name}_k{c.k}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, tokens).launch(
            grid=[padded_rows, 1, 1], block=[c.threads + WARP, 1, 1], stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, mX, mSums, mMix, mBase, mWeight, mScale, mCodes, mScales, mC, mM, tokens):
        c = self.config
        row, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        live = row < tokens
        # The streams are under way before anybody waits for the sums; if the first pass makes them, behind its end.
        if const_expr(c.fused):
            cute.arch.griddepcontrol_wait()
        words = [self.load(mX, row, self.chunk_of(turn), live) for turn in range(c.turns)]
        if const_expr(not c.fused):
            cute.arch.griddepcontrol_wait()
        logit = self.logit(mSums, mMix, mBase, row, live)
        if thread >= c.threads:
            self.mixes(logit, mC, mM, row, live)
        else:
            self.collapse(words, mWeight, mScale, mCodes, mScales, self.shares(logit), row, live)

    def load(self, mX, row, chunk, live: Boolean) -> list:
        """Sixteen values of each stream, as words."""
        c = self.config
        base, wanted = mX.iterator.toint(), live & (chunk < c.chunks)
        places = [(Int64(row) * STREAMS + j) * c.k + chunk * CHUNK for j in range(STREAMS)]
        return [[w for half in (0, 16) for w in ptx.load_128(base + 2 * p + half, wanted)] for p in places]

    @cute.jit
    def collapse(self, words: list, mWeight, mScale, mCodes, mScales, shares: list, row, live: Boolean):
        """One row: the sum of the streams, normalised, quantised, stored."""
        g = Float32(1.0)
        if const_expr(mScale is not None):
            g = mScale[0]
        values = [self.summed(streams, shares) for streams in words]
        codes, scales = mCodes.iterator.toint(), mScales.iterator.toint()
        self.normalise_and_put(values, mWeight, g, row, codes, scales, live)

    def summed(self, streams: list, shares: list) -> list:
        """Sixteen values of sum_j A_j X_j."""
        found = [Float32(0.0)] * CHUNK
        for share, words in zip(shares, streams, strict=True):
            values = [v for w in words for v in (ptx.as_float(w << 16), ptx.as_float(w & 0xFFFF0000))]
            found = [ptx.fma(share, v, total) for v, total in zip(values, found, strict=True)]
        return found

    def meet(self) -> None:
        """A barrier of the warps that have the row."""
        cute.arch.barrier(barrier_id=ROW_BARRIER, number_of_threads=self.config.threads)

    # ------------------------------------------------------------------ A, C, M

    def logit(self, mSums, mMix, mBase, row, live: Boolean):
        """Lane i of every warp: z_i scale + base_i of mixing row i, for i < 24."""
        c = self.config
        lane = cute.arch.thread_idx()[0] % WARP
        address = mSums.iterator.toint() + 4 * (Int64(row) * (c.slices * SUMS) + lane)
        wanted = live & (lane <= SQUARES)
        total = Float64(0.0)
        for part in range(c.slices):
            word = ptx.load_32(address + 4 * SUMS * part, wanted)
            total = ptx.add64(total, ptx.widen(ptx.as_float(word)))
        squares = ptx.from_lane64(total, SQUARES)
        z = ptx.mul64(total, rms.inverse_rms(squares, STREAMS * c.k, c.norm_eps))
        index = cutlass.select_(lane < SQUARES, lane, 0)
        mix = mMix[cutlass.select_(index < STREAMS, 0, cutlass.select_(index < 2 * STREAMS, 1, 2))]
        return ptx.narrow(ptx.fma64(z, ptx.widen(mix), ptx.widen(mBase[index])))

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
            found += [ptx.add(ptx.div(p, total), Float32(self.config.mix_eps)) for p in powers]
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
