"""Which part of the output a CTA of the linear of many tokens makes, and what becomes of its sums.

Where K was divided, every sum goes to the CTA that adds it: within a CTA through shared memory, between CTAs of a
cluster by st.async, whose bytes a barrier there counts. They are added in the order of the shares of K.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr

from kernels.linear import ptx
from kernels.linear.config import LANES
from kernels.linear.wide_config import GROUP, GROUP_ROWS
from kernels.linear.wide_multiply import Multiplying
from kernels.linear.wide_unpack import RETURNED

CONSUMERS = 1
"""The named barrier of the consumer warps; 0 is the CTA's."""


class Finishing(Multiplying):
    """Place in the grid, exchange of sums, stores."""

    def place(self, column_blocks) -> tuple:
        """Part, block of its rows and column block of this CTA: some blocks of rows side by side, then the next column
        block of the same rows."""
        c = self.config
        index, blocks = cute.arch.block_idx()[0] // c.split, sum(c.blocks)
        many = c.near * column_blocks
        first, within = index // many * c.near, index % many
        width = cutlass.min(Int32(c.near), blocks - first)
        block, column_block = first + within % width, within // width
        if c.grouped:
            return block // c.blocks[0], block % c.blocks[0], column_block
        part = Int32(0)
        for number in range(1, len(c.parts)):
            part = cutlass.select_(block >= sum(c.blocks[:number]), Int32(number), part)
        return part, block - self.of_part(part, self.before(c.blocks)), column_block

    def of_part(self, part, values: tuple[int, ...]):
        """The value for this part, one of `values`."""
        found = Int32(values[0])
        for number, value in enumerate(values[1:], 1):
            if value != values[number - 1]:
                found = cutlass.select_(part >= number, Int32(value), found)
        return found

    def before(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Sums of all values in front of each."""
        return tuple(sum(values[:number]) for number in range(len(values)))

    def rank(self):
        """This CTA's place in its cluster: its share of K."""
        return cute.arch.block_idx()[0] % self.config.split

    # ------------------------------------------------------------------ after the last stage

    @cute.jit
    def finish(self, mOut, exchange, arrived, sums: list, alpha, place, m, warp):
        """Add what warpgroups and CTAs have, each sum by one thread; store."""
        c = self.config
        factor = self.factor(alpha)
        group = warp // 4
        if const_expr(not c.exchanged):
            for n in cutlass.range_constexpr(c.sums):
                self.store(mOut, sums[n] * factor, n, group, place, m, warp)
        else:
            self.send(exchange, arrived, sums, group)
            for begin in cutlass.range_constexpr(0, c.slots, c.groups):
                slot = begin + group
                index = slot * c.split + self.rank()
                if index < c.across * c.sums:
                    value = self.total(exchange, slot) * factor
                    self.store(mOut, value, index % c.sums, index // c.sums * c.along, place, m, warp)

    def factor(self, alpha):
        """What sums have to be multiplied by."""
        return alpha * Float32(RETURNED[self.config.weights])

    @cute.jit
    def send(self, exchange, arrived, sums: list, group):
        """Every sum to where it will be added; returns when those to be added here are there."""
        c = self.config
        rows, share = group // c.along, group % c.along
        if const_expr(c.split == 1):
            # The sums replace the ring.
            cute.arch.barrier(barrier_id=CONSUMERS, number_of_threads=c.producer * LANES)
        for n in cutlass.range_constexpr(c.sums):
            index = rows * c.sums + n
            source = self.rank() * c.along + share
            address = self.slot_of(exchange, index // c.split, source)
            if const_expr(c.split == 1):
                ptx.store_shared_f32(address, sums[n])
            else:
                ptx.send_cluster_f32(address, arrived, index % c.split, sums[n])
        if const_expr(c.split == 1):
            cute.arch.barrier(barrier_id=CONSUMERS, number_of_threads=c.producer * LANES)
        else:
            ptx.wait_cluster(arrived, Int32(0))

    def slot_of(self, exchange, slot, source):
        """Where this thread's sum from one of the shares of K lies."""
        c = self.config
        return exchange + ((slot * c.split * c.along + source) * GROUP + cute.arch.thread_idx()[0] % GROUP) * 4

    def total(self, exchange, slot):
        """The sum over the shares of K, in their order."""
        parts = [ptx.load_shared_f32(self.slot_of(exchange, slot, source)) for source in self.sources()]
        total = parts[0]
        for value in parts[1:]:
            total = total + value
        return total

    def sources(self) -> range:
        """The shares of K."""
        return range(self.config.split * self.config.along)

    def row_of(self, half):
        """Row of its 16 that a lane holds in the first or second half of its sums."""
        lane = cute.arch.lane_idx()
        return lane // 8 * 4 + lane // 4 % 2 + 2 * half if self.config.segments == 4 else lane // 4 + 8 * half

    @cute.jit
    def store(self, mOut, value, n, group, place, m, warp):
        """Sum n of a thread as BF16, where row and token exist; `group` is a warpgroup whose rows it belongs to."""
        c = self.config
        part, block, column_block = place
        strip = block * c.block_rows + (group // c.along) * GROUP_ROWS + warp % 4 * 16
        row = strip + self.row_of(n // 2 % 2)
        token = column_block * c.columns + 8 * (n // 4) + cute.arch.lane_idx() % 4 * 2 + n % 2
        rows = self.of_part(part, c.parts)
        if const_expr(c.grouped):
            base, stride = Int64(part) * c.parts[0], Int32(c.parts[0] * len(c.parts))
        else:
            base, stride = Int64(m) * self.of_part(part, self.before(c.parts)), rows
        if (row < rows) & (token < m):
            offset = base + Int64(token) * stride + row
            ptx.store_global_bf16(mOut.iterator.toint() + 2 * offset, value)
