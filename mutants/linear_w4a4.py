"""The block-scaled linear with one planted fault each. A gate names the status that each must earn."""

from __future__ import annotations

from dataclasses import replace

import cutlass
import cutlass.cute as cute

from kernels.linear.sm100 import STEPS, LinearSm100
from kernels.linear.sm100_config import STEP_K
from kernels.shared import ptx
from kernels.shared.pipelines import Pipe


class ScaleOfNextBlock(LinearSm100):
    """Every product takes the scales of the 64 k behind its own. Wrong values."""

    def scale_field(self, tmem, first, step, high):
        return super().scale_field(tmem, first, (step + 1) % STEPS, high)


class ScalesRowByRow(LinearSm100):
    """Atoms of scales are taken to lie one below the other, not side by side. Wrong values, unless there is one."""

    def scales(self, mS: cute.Tensor, codes: cute.Tensor) -> cute.Tensor:
        tensor = super().scales(mS, codes)
        atom, wide, high, groups = tensor.shape
        stride = (1, atom * high, atom, atom * high * wide)
        return cute.make_tensor(tensor.iterator, cute.make_layout(tensor.shape, stride=stride))


class AlphaDropped(LinearSm100):
    """The weight's global scale is not applied. Wrong values."""

    def scaled(self, value, alpha, g):
        return ptx.mul(value, g)


class AlphaTwice(LinearSm100):
    """The weight's global scale is applied twice. Wrong values."""

    def scaled(self, value, alpha, g):
        return super().scaled(ptx.mul(value, alpha), alpha, g)


class GlobalScaleDropped(LinearSm100):
    """The tokens' global scale is not applied. Wrong values."""

    def scaled(self, value, alpha, g):
        return ptx.mul(value, alpha)


class GlobalScaleTwice(LinearSm100):
    """The tokens' global scale is applied twice. Wrong values."""

    def scaled(self, value, alpha, g):
        return ptx.mul(super().scaled(value, alpha, g), g)


class KTailDropped(LinearSm100):
    """The last 64 k read as zeros. Wrong values, unless K is no longer than that."""

    def codes(self, mX: cute.Tensor, groups: int) -> cute.Tensor:
        tensor = super().codes(mX, groups)
        rows, k, groups = tensor.shape
        layout = cute.make_layout((rows, max(k - STEP_K, min(k, STEP_K)), groups), stride=tensor.stride)
        return cute.make_tensor(tensor.iterator, layout)


class OtherTile(LinearSm100):
    """The codes of the first 256 k are read over and over, under the right scales. Wrong values, unless K is one
    tile."""

    def source_tile(self, k, side):
        return k * 0 if side < 2 else k


class FirstProductAdds(LinearSm100):
    """The first product of a tile is added to what tensor memory held. Not finite if that is poison."""

    def accumulates(self, k, step):
        return True


class PartOfNextTile(LinearSm100):
    """Alpha and place of every tile are those of the tile after it. Wrong values, or a fault."""

    def place(self, tile, mAlpha, m):
        last = sum(self.config.part_tiles) - 1
        return super().place(cutlass.min(tile + 1, last), mAlpha, m)


class XOfFirstGroup(LinearSm100):
    """Every group reads the tokens of the first one. Wrong values."""

    def group(self, weight):
        return weight * 0


class WrongTxCount(LinearSm100):
    """The full barriers of the ring expect 16 bytes more than the copies bring. Hang."""

    def pipes(self) -> dict[str, Pipe]:
        pipes = super().pipes()
        return pipes | {"ring": replace(pipes["ring"], tx_bytes=pipes["ring"].tx_bytes + 16)}


class MissingCommit(LinearSm100):
    """No tcgen05.commit behind a tile: nobody tells the epilogue that the sums are complete. Hang."""

    def complete(self, pipe, turn):
        pass


class StageNeverReleased(LinearSm100):
    """Ring stages are not given back to the load warp. Hang, but only with more turns than stages."""

    def release_stage(self, pipe, turn):
        pass


class OthersForgotten(LinearSm100):
    """The first CTA of a cluster does not add what the others send. Wrong values, unless K is not shared."""

    def gather(self, values, gathered, i, lane):
        super().gather(values, gathered, i, lane)
        return values


class SlotsNeverFreed(LinearSm100):
    """Nobody tells the other CTAs of a cluster that their sums have been added. Hang, but only with several tiles."""

    def free_slots(self, taken, lane):
        pass


MUTANTS = {
    "scale_of_next_block": ScaleOfNextBlock,
    "scales_row_by_row": ScalesRowByRow,
    "alpha_dropped": AlphaDropped,
    "alpha_twice": AlphaTwice,
    "global_scale_dropped": GlobalScaleDropped,
    "global_scale_twice": GlobalScaleTwice,
    "k_tail_dropped": KTailDropped,
    "other_tile": OtherTile,
    "first_product_adds": FirstProductAdds,
    "part_of_next_tile": PartOfNextTile,
    "x_of_first_group": XOfFirstGroup,
    "others_forgotten": OthersForgotten,
    "slots_never_freed": SlotsNeverFreed,
    "wrong_tx_count": WrongTxCount,
    "missing_commit": MissingCommit,
    "stage_never_released": StageNeverReleased,
}
"""By name, as gates.yaml lists them."""
