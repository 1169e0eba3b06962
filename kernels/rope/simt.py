"""rope for Hopper and Blackwell: a thread turns four neighbouring pairs of a head, or of some, where they lie.

Products of BF16 and fp32 are exact in fp64, so a result is rounded once, to BF16 (by way of fp32).
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32, Int64, const_expr

from kernels.rope.config import THREADS, VALUES, RopeConfig
from kernels.shared import ptx
from kernels.shared.configured import Configured


class Rope(Configured):
    """Thread i of the grid: values lane * 8 and on of the rotated part of a head, and of every (heads / each)th."""

    config: RopeConfig

    @cute.jit
    def __call__(
        self,
        mX: cute.Tensor,  # (tokens, heads, c) bf16, in place
        mCos: cute.Tensor,  # (tokens, width / 2) fp32
        mSin: cute.Tensor,
        tokens: Int32,
        first: Int32,  # of the rotated values of a head
        token_stride: Int32,
        head_stride: Int32,
        angle_stride: Int32,
        stream,
    ):
        c = self.config
        name = f"{type(self).__name__}_h{c.heads}_w{c.width}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        ctas = (tokens * (c.heads // c.each * c.lanes) + THREADS - 1) // THREADS
        self.kernel(mX, mCos, mSin, tokens, first, token_stride, head_stride, angle_stride).launch(
            grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, mX, mCos, mSin, tokens, first, token_stride, head_stride, angle_stride):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        item = cta * THREADS + thread
        groups = c.heads // c.each
        lane, head = item % c.lanes, item // c.lanes % groups
        token = item // (c.lanes * groups)
        wanted = token < tokens
        place = Int64(token) * token_stride + Int64(head) * head_stride + first + lane * VALUES
        addresses = [mX.iterator.toint() + 2 * (place + Int64(n * groups) * head_stride) for n in range(c.each)]
        angle = 4 * (Int64(token) * angle_stride + lane * (VALUES // 2))
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        words = [ptx.load_128(address, wanted) for address in addresses]
        cos = [ptx.as_float(w) for w in ptx.load_128(mCos.iterator.toint() + angle, wanted)]
        sin = [ptx.as_float(w) for w in ptx.load_128(mSin.iterator.toint() + angle, wanted)]
        for address, own in zip(addresses, words, strict=True):
            ptx.store_words(address, self.turned(own, cos, sin), wanted)

    def turned(self, words: list, cos: list, sin: list) -> list:
        """Pairs (even, odd), a word each, by the angles."""
        found = []
        for word, c, s in zip(words, cos, sin, strict=True):
            even, odd = ptx.of_bf16x2(word)
            s = ptx.negative(s) if const_expr(self.config.inverse) else s
            found.append(ptx.to_bf16x2(*turn(ptx.widen(even), ptx.widen(odd), c, s)))
        return found


def turn(even, odd, cos, sin) -> tuple:
    """One pair in fp64, by fp32 cos and sin: two fp32 numbers."""
    cos, sin = ptx.widen(cos), ptx.widen(sin)
    first = ptx.fma64(even, cos, ptx.mul64(ptx.negative64(odd), sin))
    second = ptx.fma64(even, sin, ptx.mul64(odd, cos))
    return ptx.narrow(first), ptx.narrow(second)
