"""The linear of many tokens with one planted fault each, by the names that mutants/linear.py gives them."""

from __future__ import annotations

import cutlass
from cutlass import Float32


class ScaleOfOtherRow:
    """Rows g and g + 8 have each other's block scales, or those of the other segment. Wrong values."""

    def scales_of(self, words, row):
        return super().scales_of(words, 1 - row)


class NibblesSwapped:
    """The first and the last two of a lane's four k of a block change places in the weights. Wrong values."""

    def operands(self, at, segment, other, half):
        return [[a[2], a[3], a[0], a[1]] for a in super().operands(at, segment, other, half)]


class RowsSwapped:
    """Neighbouring rows change places in the output. Wrong values."""

    def row_of(self, half):
        return super().row_of(half) ^ 1


class AlphaDropped:
    """The global scale is not applied. Wrong values."""

    def factor(self, alpha):
        return super().factor(Float32(1.0))


class AlphaTwice:
    """The global scale is applied twice. Wrong values."""

    def factor(self, alpha):
        return super().factor(alpha * alpha)


class LastShareDropped:
    """The sums of the last of several shares of K are not added. Wrong values."""

    def sources(self):
        sources = super().sources()
        return sources[:-1] if len(sources) > 1 else sources


class FactorDropped:
    """The powers of two of unpacked weights do not return. Wrong values, unless they are E4M3."""

    def factor(self, alpha):
        return alpha


class StageNeverReleased:
    """Ring stages are not given back to the producer. Hang, but only with more turns than stages."""

    def give_back(self, barrier):
        pass


class WrongTxCount:
    """Barriers expect 16 bytes more than the copies bring. Hang."""

    def announce(self, barrier, size):
        super().announce(barrier, size + 16)


class OtherTile:
    """The producer reads the weights of the first ring stage over and over. Wrong values, unless a CTA has one."""

    def fetch_weights(self, mW, ring, barriers, place, turn, stage):
        super().fetch_weights(mW, ring, barriers, place, turn * 0, stage)


class NextPart:
    """Every part's blocks are taken for the next part's. Wrong values or a fault."""

    def place(self, column_blocks):
        part, block, column_block = super().place(column_blocks)
        return cutlass.min(part + 1, len(self.config.parts) - 1), block, column_block


class FirstTokensAgain:
    """Every column block reads the activations of the first one. Wrong values, unless there is one."""

    def tokens_of(self, place):
        return super().tokens_of(place) * 0


class ActivationsNotAwaited:
    """Products begin when the weights are there. Wrong values if the activations come later."""

    def await_activations(self, barrier, parity):
        pass


class SwizzleIgnored:
    """ldmatrix reads as if rows lay in their own order. Wrong values; wgmma does not use it."""

    def turned(self, row):
        return row * 0


class OperandsOverwritten:
    """All of the next stage is unpacked into the registers of products under way. Infinities on a GPU; the emulator
    takes operands when it issues a product, so its values are right, and racecheck sees it."""

    def overtakes(self):
        return True
