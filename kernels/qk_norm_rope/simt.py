"""qk_norm_rope for Hopper and Blackwell: up to 32 threads have a head in registers; the latent is one head more.

The rotated values are normalised and turned in fp64, all others in fp32 with a compensated factor: both are rounded
once (to BF16, by way of fp32).
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from kernels.qk_norm_rope.config import THREADS, QkConfig
from kernels.rope.simt import turn
from kernels.shared import ptx, rms
from kernels.shared.chunks import load_chunk
from kernels.shared.configured import Configured
from kernels.shared.formats import CHUNK


class QkNormRope(Configured):
    """Head h of a token for h < heads, the latent for h = heads; thread t of it has values 16 t to 16 t + 15."""

    config: QkConfig

    @cute.jit
    def __call__(
        self,
        mQ: cute.Tensor,  # (tokens, heads, c) bf16, in place
        mKv: cute.Tensor,  # (tokens, c) bf16, in place
        mWeight: cute.Tensor,  # (c,)
        mCos: cute.Tensor,  # (tokens, width / 2) fp32
        mSin: cute.Tensor,
        tokens: Int32,
        q_token_stride: Int32,
        q_head_stride: Int32,
        kv_stride: Int32,
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_h{c.heads}_c{c.c}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        ctas = (tokens * ((c.heads + 1) * c.lanes) + THREADS - 1) // THREADS
        self.kernel(mQ, mKv, mWeight, mCos, mSin, tokens, q_token_stride, q_head_stride, kv_stride).launch(
            grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, mQ, mKv, mWeight, mCos, mSin, tokens, q_token_stride, q_head_stride, kv_stride):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        item = cta * THREADS + thread
        chunk, row = item % c.lanes, item // c.lanes
        token, head = row // (c.heads + 1), row % (c.heads + 1)
        wanted, latent = token < tokens, head == c.heads
        of_query = mQ.iterator.toint() + 2 * (Int64(token) * q_token_stride + Int64(head) * q_head_stride)
        of_latent = mKv.iterator.toint() + 2 * (Int64(token) * kv_stride)
        address = cutlass.select_(latent, of_latent, of_query) + chunk * (2 * CHUNK)
        cute.arch.griddepcontrol_launch_dependents()
        # Before the wait: nobody writes weights while a model runs.
        weights = self.weights(mWeight, chunk, latent)
        cute.arch.griddepcontrol_wait()
        values = load_chunk(address, "bf16", wanted)
        total = rms.over_lanes(rms.sum_of_squares(values, 1), c.lanes)
        inverse = rms.inverse_rms(total, c.c, c.eps)
        angle = 4 * (Int64(token) * (c.width // 2) + (chunk * CHUNK - self.first()) // 2)
        cos, sin = mCos.iterator.toint() + angle, mSin.iterator.toint() + angle
        found = self.finished(values, weights, inverse, cos, sin, chunk * CHUNK >= self.first(), wanted)
        for half in cutlass.range_constexpr(2):
            ptx.store_words(address + 16 * half, found[4 * half : 4 * half + 4], wanted)

    def first(self) -> int:
        """Where the rotated values begin."""
        return self.config.c - self.config.width

    def weights(self, mWeight, chunk, latent) -> list:
        """Those of the latent; queries have ones."""
        size = 2 if self.config.weight == "bf16" else 4
        loaded = load_chunk(mWeight.iterator.toint() + Int64(chunk) * (CHUNK * size), self.config.weight, latent)
        return [cutlass.select_(latent, w, Float32(1.0)) for w in loaded]

    @cute.jit
    def finished(self, values: list, weights: list, inverse, cos, sin, rotated, wanted) -> list:
        """Eight words of pairs."""
        words = self.normed(values, weights, inverse)
        if rotated:
            words = self.turned(values, weights, inverse, cos, sin, wanted)
        return words

    def normed(self, values: list, weights: list, inverse) -> list:
        """Values over the root mean square."""
        parts = rms.in_two(inverse)
        exact = self.config.weight == "bf16"
        found = [rms.over_rms(v, w, parts, exact) for v, w in zip(values, weights, strict=True)]
        return [ptx.to_bf16x2(found[i], found[i + 1]) for i in range(0, CHUNK, 2)]

    def turned(self, values: list, weights: list, inverse, cos, sin, wanted) -> list:
        """The same, and turned by the angles at addresses cos and sin."""
        wide = [ptx.mul64(ptx.mul64(ptx.widen(v), ptx.widen(w)), inverse) for v, w in zip(values, weights, strict=True)]
        angles = [
            [ptx.as_float(w) for half in (0, 16) for w in ptx.load_128(base + half, wanted)] for base in (cos, sin)
        ]
        return [
            ptx.to_bf16x2(*turn(wide[2 * i], wide[2 * i + 1], angles[0][i], angles[1][i])) for i in range(CHUNK // 2)
        ]
