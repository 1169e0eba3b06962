"""The ends of the block-scaled linear with one planted fault each. A gate names the status that each must earn."""

from __future__ import annotations

from kernels.linear.sm100_config import LinearSm100Config
from kernels.linear.sm100_epilogues import kernel_for
from kernels.shared import ptx
from mutants import passes


def planted(fault: type) -> type:
    """A kernel class that becomes the fault on top of the kernel that the configuration asks for."""

    class Mutant:
        def __new__(cls, config: LinearSm100Config):
            assert config.epilogue is not None
            base = kernel_for(config.epilogue)
            return type(fault.__name__, (fault, base), {"__module__": fault.__module__})(config)

    Mutant.__doc__ = fault.__doc__
    return Mutant


class AlphaDropped:
    """The weights' global scales are not applied. Wrong values."""

    def scaled(self, value, alpha, g):
        return ptx.mul(value, g)


class GroupOfNextTile:
    """Outputs are stored behind those of their neighbours. Wrong values: poison stays at the beginning."""

    def put_group(self, outputs, mOut, extras, row, first, m):
        super().put_group(outputs, mOut, extras, row, first + self.together, m)


class UpActivated:
    """Gate and up change places. Wrong values."""

    def limited(self, gate, up):
        return super().limited(up, gate)


class ClampMissing:
    """Neither gate nor up is limited. Wrong values where they are beyond."""

    def limited(self, gate, up):
        return gate, up


class HalfSplit:
    """Outputs i and i + 8 of sixteen are turned as a pair. Wrong values."""

    def turned(self, values, cos, sin):
        paired = [v for pair in zip(values[:8], values[8:], strict=True) for v in pair]
        found = super().turned(paired, cos, sin)
        return found[0::2] + found[1::2]


class OtherDirection:
    """By the opposite of the angles. Wrong values."""

    def turned(self, values, cos, sin):
        return super().turned(values, cos, [ptx.negative(s) for s in sin])


class AnglesOfFirst:
    """All sixteens are turned by the angles of the first one. Wrong values, unless a head has but one."""

    def angles(self, table, row, pair, wanted):
        return super().angles(table, row, pair * 0, wanted)


class RoundedBetween:
    """Sums are rounded to BF16 before the end of the linear. Wrong codes."""

    def outputs(self, sums, mAlpha, g):
        return [ptx.as_float(ptx.to_bf16x2(v, v) & 0xFFFF0000) for v in super().outputs(sums, mAlpha, g)]


MUTANTS = {
    name: planted(fault)
    for name, fault in {
        "alpha_dropped": AlphaDropped,
        "group_of_next_tile": GroupOfNextTile,
        "up_activated": UpActivated,
        "clamp_missing": ClampMissing,
        "half_split": HalfSplit,
        "other_direction": OtherDirection,
        "angles_of_first": AnglesOfFirst,
        "rounded_between": RoundedBetween,
        "swizzle_missing": passes.SwizzleMissing,
        "global_scale_dropped": passes.GlobalScaleDropped,
        "global_scale_twice": passes.GlobalScaleTwice,
        "nibbles_swapped": passes.NibblesSwapped,
        "ties_away": passes.TiesAway,
        "scale_floored": passes.ScaleFloored,
        "words_swapped": passes.WordsSwapped,
        "tail_dropped": passes.TailDropped,
    }.items()
}
"""By name, as gates.yaml lists them."""
