"""Loading, mixing and storing of residual streams, eight values a thread. The post-mix is computed in fp64 and rounded
once."""

from __future__ import annotations

from typing import Any

from cutlass import Int64

from kernels.mhc.config import STREAMS, VALUES
from kernels.shared import ptx
from kernels.shared.configured import Configured


class Streams(Configured):
    """What the kernels of the first pass do with streams."""

    config: Any

    def load(self, tensor, row, first, inside) -> list:
        """Four words of eight BF16 of a row of d."""
        return ptx.load_128(tensor.iterator.toint() + 2 * (Int64(row) * self.config.d + first), inside)

    def values(self, streams: list) -> list:
        """The values of words, stream by stream."""
        return [[v for w in words for v in ptx.of_bf16x2(w)] for words in streams]

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
        """X'_k = C_k y + sum_j M_jk X_j, in fp64, as words of BF16."""
        c, m = factors
        found: list[list] = [[] for _ in range(STREAMS)]
        # A word of each stream at a time: sixteen fp64 numbers of values and sums are enough.
        for word in range(VALUES // 2):
            pairs = [ptx.of_bf16x2(words[word]) for words in (output, *streams)]
            y, *wide = [[ptx.widen(v) for v in pair] for pair in pairs]
            for k in range(STREAMS):
                sums = [ptx.mul64(c[k], v) for v in y]
                for j in range(STREAMS):
                    sums = [ptx.fma64(m[j][k], v, total) for v, total in zip(wide[j], sums, strict=True)]
                found[k].append(ptx.to_bf16x2(*(ptx.narrow(total) for total in sums)))
        return found
