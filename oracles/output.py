"""Output projection of attention: rotate back, then two linears, the first one block-diagonal over groups of heads."""

from __future__ import annotations

import torch

from oracles.linear import grouped_linear, linear
from oracles.precision import Kind, Quantiser, expect, rounded
from oracles.rope import rotate


def output_projection(
    o: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    wo_a: torch.Tensor,
    wo_b: torch.Tensor,
    *,
    groups: int,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
    activation_a: Quantiser | None = None,
) -> torch.Tensor:
    """z_g = wo_a[g] (heads of group g, rotated by minus the query's position); y = concat(z) wo_b^T.

    o [..., H, c], cos and sin [..., r / 2] of the query's position, wo_a [g R, (H / g) c], wo_b [d, g R] -> [..., d].
    simulated: the rotated heads, z and y are rounded to o's dtype. activation: of the input of wo_b, activation_a: of
    that of wo_a.
    """
    heads = o.shape[-2]
    expect("output", heads % groups == 0, "groups", groups, f"a divisor of {heads} heads")
    back = rounded(rotate(o, cos[..., None, :], sin[..., None, :], inverse=True, dtype=dtype), o.dtype, kind)
    grouped = back.flatten(-2).unflatten(-1, (groups, -1))
    z = rounded(grouped_linear(grouped, wo_a, dtype=dtype, activation=activation_a), o.dtype, kind)
    return rounded(linear(z.flatten(-2), wo_b, dtype=dtype, activation=activation), o.dtype, kind)
