"""The linears with one planted fault each. A gate names the status that each must earn (``falsified_by``)."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from kernels.linear.config import LinearConfig
from kernels.linear.sm90_host import kernel_of
from kernels.linear.wide_config import WideConfig
from mutants import linear_wide


def planted(fault: type, wide: type) -> type:
    """A kernel class that becomes the fault on top of the kernel that the configuration asks for: `wide` on that of
    many tokens."""

    class Mutant:
        def __new__(cls, config: LinearConfig | WideConfig):
            planted = wide if isinstance(config, WideConfig) else fault
            return type(planted.__name__, (planted, kernel_of(config)), {"__module__": planted.__module__})(config)

    Mutant.__doc__ = fault.__doc__
    return Mutant


class Nothing:
    """No fault: the kernel has nothing like it."""


class ScaleOfOtherRow:
    """A lane reads the block scales of the row beside its own. Wrong values, unless the scale covers both rows."""

    def load_scales(self, base, lane):
        return super().load_scales(base, lane ^ 4)


class NibblesSwapped:
    """The first two and the last two k of every four change places in the weights. Wrong values."""

    def unpack(self, packed, step):
        a = super().unpack(packed, step)
        if len(a) == 4:
            return [a[2], a[3], a[0], a[1]]
        return [word << 16 | word >> 16 for word in a]


class RowsSwapped:
    """Rows g and g + 8 of every tile change places in the output. Wrong values, unless a tile has 8 rows."""

    def row_of(self, g, half):
        row, owner = super().row_of(g, half)
        return row ^ 8 if self.config.segments == 1 else row ^ 1, owner


class AlphaDropped:
    """The global scale is not applied. Wrong values."""

    def store(self, alpha, mOut, sums, values, tile, lane, m):
        super().store(Float32(1.0), mOut, sums, values, tile, lane, m)


class AlphaTwice:
    """The global scale is applied twice. Wrong values."""

    def store(self, alpha, mOut, sums, values, tile, lane, m):
        super().store(alpha * alpha, mOut, sums, values, tile, lane, m)


class LastWarpDropped:
    """The partial sums of the last of several warps of a tile are not added: its k are lost. Wrong values."""

    def warps_of(self, slot):
        warps = super().warps_of(slot)
        return warps[:-1] if len(warps) > 1 else warps


class FactorDropped:
    """The powers of two that the activations were divided by do not return. Wrong values."""

    def partial_sums(self, sums, factors):
        return super().partial_sums(sums, [[Float32(1.0)] * len(of_tile) for of_tile in factors])


class StageNeverReleased:
    """Ring stages are not given back to the producer. Hang, but only with more turns than stages."""

    def give_back(self, empty):
        pass


class WrongTxCount:
    """The full barriers expect 16 bytes more than the copies bring. Hang."""

    def fetch(self, weights, ring, full, first, last, i, stage):
        cute.arch.mbarrier_expect_tx(full + stage, 16)
        super().fetch(weights, ring, full, first, last, i, stage)


class OtherTile:
    """The producer reads the first ring stage of the CTA over and over. Wrong values, unless a CTA has one."""

    def fetch(self, weights, ring, full, first, last, i, stage):
        super().fetch(weights, ring, full, first, last, i * 0, stage)


class PartOfNextTile:
    """Alpha and place of every tile are those of the tile after it. Wrong values or a fault."""

    def part_of(self, tile):
        return super().part_of(cutlass.min(tile + 1, self.config.tile_count - 1))


MUTANTS = {
    "scale_of_other_row": planted(ScaleOfOtherRow, linear_wide.ScaleOfOtherRow),
    "nibbles_swapped": planted(NibblesSwapped, linear_wide.NibblesSwapped),
    "rows_swapped": planted(RowsSwapped, linear_wide.RowsSwapped),
    "alpha_dropped": planted(AlphaDropped, linear_wide.AlphaDropped),
    "alpha_twice": planted(AlphaTwice, linear_wide.AlphaTwice),
    "last_warp_dropped": planted(LastWarpDropped, linear_wide.LastShareDropped),
    "factor_dropped": planted(FactorDropped, linear_wide.FactorDropped),
    "stage_never_released": planted(StageNeverReleased, linear_wide.StageNeverReleased),
    "wrong_tx_count": planted(WrongTxCount, linear_wide.WrongTxCount),
    "other_tile": planted(OtherTile, linear_wide.OtherTile),
    "part_of_next_tile": planted(PartOfNextTile, linear_wide.NextPart),
    "first_tokens_again": planted(Nothing, linear_wide.FirstTokensAgain),
    "activations_not_awaited": planted(Nothing, linear_wide.ActivationsNotAwaited),
    "swizzle_ignored": planted(Nothing, linear_wide.SwizzleIgnored),
    "operands_overwritten": planted(Nothing, linear_wide.OperandsOverwritten),
}
"""By name, as gates.yaml lists them."""
