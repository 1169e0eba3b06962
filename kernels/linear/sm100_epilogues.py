"""Ends of the block-scaled linear: SwiGLU, quantisation, rotary embedding, each in the registers of the thread that
read a token's sums from tensor memory. Nothing crosses a thread."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr

from kernels.linear.epilogues import Epilogue
from kernels.linear.sm100 import CHUNK, LANES, LinearSm100
from kernels.linear.sm100_config import LinearSm100Config
from kernels.rope.simt import turn
from kernels.shared import ptx
from kernels.shared.encode import Encoder
from kernels.shared.formats import CHUNK as BLOCK
from kernels.shared.formats import SWIZZLE_COLUMNS, BlockFormat
from kernels.swiglu_quantize.config import SwigluConfig
from kernels.swiglu_quantize.simt import SwigluQuantize

PAIRS = BLOCK // 2
"""Pairs that are turned at a time."""


class RowLinearSm100(LinearSm100):
    """Tokens are A: a thread takes `together` outputs of its token at a time; a subclass says what becomes of them."""

    @property
    def ending(self) -> Epilogue:
        """What happens to the outputs."""
        assert self.config.epilogue is not None
        return self.config.epilogue

    @property
    def together(self) -> int:
        """Outputs that are made and stored together: whole blocks."""
        return max(CHUNK // self.ending.accumulators, self.ending.block)

    @cute.jit
    def store_tile(self, tCtC, mAlpha, g, mOut, extras, token, weight, lane, m):
        c = self.config
        columns = self.together * self.ending.accumulators
        for part in cutlass.range(c.rows // columns, unroll=1):
            outputs = []
            for i in cutlass.range_constexpr(columns // CHUNK):
                sums = self.chunk(tCtC, part * (columns // CHUNK) + i, CHUNK, lane)
                outputs = outputs + self.outputs(sums, mAlpha, g)
            first = weight * (c.rows // self.ending.accumulators) + part * self.together
            self.put_group(outputs, mOut, extras, token * LANES + lane, first, m)

    def outputs(self, sums: list, mAlpha, g) -> list:
        """The values that sums stand for."""
        alpha = mAlpha[0]
        return [self.scaled(v, alpha, g) for v in sums]

    @property
    def width(self) -> int:
        """Outputs of a token."""
        return self.config.parts[0] // self.ending.accumulators

    def put_group(self, outputs: list, mOut, extras, row, first, m) -> None:
        """Neighbouring outputs of one token, from `first` on, as BF16."""
        address = mOut.iterator.toint() + 2 * (Int64(row) * self.width + first)
        self.store_row(outputs, address, self.width - first, row < m)


class SwigluLinearSm100(RowLinearSm100):
    """Even rows of the weight are the gate's, odd ones those of up: a thread has both sums of an output."""

    def __init__(self, config: LinearSm100Config):
        super().__init__(config)
        self.activation = SwigluQuantize(SwigluConfig(BlockFormat(), limit=self.ending.limit))

    def outputs(self, sums: list, mAlpha, g) -> list:
        alphas = mAlpha[0], mAlpha[1]
        gates, ups = ([self.scaled(v, alpha, g) for v in sums[i::2]] for i, alpha in enumerate(alphas))
        return [self.swiglu(*self.limited(gate, up)) for gate, up in zip(gates, ups, strict=True)]

    def limited(self, gate, up):
        """Gate from above, up from both sides."""
        return self.activation.limited(gate, up)

    def swiglu(self, gate, up):
        """One value."""
        return self.activation.swiglu(gate, up)


class QuantisingEnd(Encoder):
    """Outputs become codes and block scales; mixed into a kernel, before it."""

    config: Any
    ending: Any
    width: Any

    @property
    def format(self) -> BlockFormat:
        """What is stored."""
        return self.ending.format

    def largest(self, values: list):
        """Bits of the largest magnitude of a block that one thread holds, NaN above all."""
        most = ptx.magnitude(values[0])
        for value in values[1:]:
            most = ptx.max_nan(most, ptx.magnitude(value))
        return ptx.bits(most)

    def put_group(self, outputs: list, mOut, extras, row, first, m) -> None:
        """Codes and scales of whole blocks of a token; scales of padding are 0."""
        form, columns = self.format, self.width // BLOCK
        codes, scales = mOut.iterator.toint(), extras[0].iterator.toint()
        g = extras[1][0] if form.name == "nvfp4" else Float32(1.0)
        padded = -(-columns // SWIZZLE_COLUMNS) * SWIZZLE_COLUMNS
        for begin in range(0, len(outputs), form.block):
            chunk = (first + begin) // BLOCK
            live = (row < m) & (chunk < columns)
            block = outputs[begin : begin + form.block]
            if form.name == "nvfp4":
                self.put(block, g, row, chunk, codes, scales, columns, live, chunk < padded)
            else:
                self.put_block(block, row, chunk, codes, scales, columns, live)

    def put_block(self, values: list, row, chunk, codes, scales, columns, live) -> None:
        """A block of E4M3 and its scale."""
        form, largest = self.format, self.largest(values)
        scale = None
        for i in range(form.lanes):
            words, scale = self.encode_under(largest, values[BLOCK * i : BLOCK * (i + 1)], Float32(1.0))
            ptx.store_words(codes + (Int64(row) * columns + chunk + i) * BLOCK, words, live)
        place = scales + (Int64(row) * (columns // form.lanes) + chunk // form.lanes) * form.scale_bytes
        if form.scale == "fp32":
            ptx.store_words(place, [scale], live)
        else:
            ptx.store_byte(place, cutlass.Uint32(scale), live)


class QuantisingLinearSm100(QuantisingEnd, RowLinearSm100):
    """y as codes and block scales."""


class QuantisingSwigluLinearSm100(QuantisingEnd, SwigluLinearSm100):
    """h as codes and block scales."""


class RotatingLinearSm100(RowLinearSm100):
    """The last `width` outputs of every head are turned by the angles of the token, 16 at a time, rounded once."""

    @property
    def together(self) -> int:
        return BLOCK * 2

    @cute.jit
    def put_group(self, outputs: list, mOut, extras, row, first, m):
        c = self.ending
        address = mOut.iterator.toint() + 2 * (Int64(row) * self.width + first)
        for begin in cutlass.range_constexpr(0, len(outputs), BLOCK):
            values = outputs[begin : begin + BLOCK]
            place = (first + begin) % c.head - (c.head - c.width)
            live = (row < m) & (first + begin < self.width)
            if (place >= 0) & live:
                cos, sin = (self.angles(extras[i], row, place // 2, live) for i in (2, 3))
                values = self.turned(values, cos, sin)
            self.store_row(values, address + 2 * begin, Int32(BLOCK), live)

    def angles(self, table, row, pair, wanted) -> list:
        """Of eight pairs of a token, from `pair` on."""
        address = table.iterator.toint() + 4 * (Int64(row) * (self.ending.width // 2) + pair)
        return [ptx.as_float(w) for i in range(2) for w in ptx.load_128(address + 16 * i, wanted)]

    def turned(self, values: list, cos: list, sin: list) -> list:
        """Pairs (even, odd) by the angles."""
        found = []
        for i in range(PAIRS):
            s = ptx.negative(sin[i]) if const_expr(self.ending.inverse) else sin[i]
            found += turn(ptx.widen(values[2 * i]), ptx.widen(values[2 * i + 1]), cos[i], s)
        return found


KERNELS = {
    ("quantise", True): QuantisingLinearSm100,
    ("swiglu", False): SwigluLinearSm100,
    ("swiglu", True): QuantisingSwigluLinearSm100,
    ("rotate", False): RotatingLinearSm100,
}
"""By kind, and whether the outputs are quantised."""


def kernel_for(ending: Epilogue) -> type[LinearSm100]:
    """The class of a kernel that ends like this."""
    return KERNELS[ending.kind, ending.format is not None]
