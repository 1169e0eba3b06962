"""A model's quantised weights in the layouts of the linear kernels."""

from __future__ import annotations

from kernels import linear
from model.packs import Packs
from model.weights import Quantised, Weight


def exact(packs: Packs, *weights: Weight, groups: int = 0) -> linear.Packed:
    """Weights [N_i, K] of one input, for the linears of BF16 activations; with `groups` one weight [groups N, K] that
    is block-diagonal."""
    form = as_given(weights[0])[0]

    def pack() -> linear.Packed:
        return linear.pack(_parts(weights, groups), format=form, grouped=groups > 0)

    packed: linear.Packed = packs.get(("exact", groups), weights, pack)
    return packed


def scaled(packs: Packs, *weights: Weight, groups: int = 0) -> linear.PackedSm100:
    """The same for the block-scaled linears of NVFP4 activations."""
    packed: linear.PackedSm100 = packs.get(
        ("scaled", groups), weights, lambda: linear.pack_sm100(_parts(weights, groups), grouped=groups > 0)
    )
    return packed


def as_given(weight: Weight) -> tuple[str, linear.Weight]:
    """The format of a quantised weight, and the weight as the packing takes it."""
    if not isinstance(weight, Quantised):
        raise ValueError(f"pack: the weight is {weight.dtype}; allowed: a quantised one")
    return weight.form, linear.Weight(weight.data, weight.scales, weight.global_scale)


def _parts(weights: tuple[Weight, ...], groups: int) -> list[linear.Weight]:
    """The weights, or the one cut into groups of rows. Raises ValueError if a block of FP8 scales would be cut."""
    given = [as_given(w)[1] for w in weights]
    if not groups:
        return given
    (form, weight), n = as_given(weights[0]), len(given[0].codes)
    if n % groups or (form == "fp8" and n // groups % 128):
        raise ValueError(f"pack: {n} rows in {groups} groups; allowed: whole groups, of FP8 in multiples of 128 rows")
    codes, scales = weight.codes.chunk(groups), weight.scales.chunk(groups)
    return [linear.Weight(c, s, weight.alpha) for c, s in zip(codes, scales, strict=True)]
