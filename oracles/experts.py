"""Experts: SwiGLU with a limit, the routed experts of a token and the shared one.

h = silu(min(w1 x, limit)) clamp(w3 x, -limit, limit)         gate is limited from above only
y = sum_e w2_e (weight_e h_e)                                 the shared expert: weight 1
"""

from __future__ import annotations

import torch

from oracles.linear import linear
from oracles.precision import Kind, Quantiser, expect, rounded

BLOCK = 32
"""Experts that are computed at once when all of them see all tokens."""


def swiglu(
    gate: torch.Tensor, up: torch.Tensor, *, limit: float | None = 10.0, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """silu(min(gate, limit)) clamp(up, -limit, limit), elementwise; limit None: none."""
    gate, up = gate.to(dtype), up.to(dtype)
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return torch.nn.functional.silu(gate) * up


def gathered(
    x: torch.Tensor,
    weights: torch.Tensor,
    w1: torch.Tensor,
    w3: torch.Tensor,
    w2: torch.Tensor,
    *,
    limit: float | None = 10.0,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """x [..., d], weights [..., k], and of each token its own w1, w3 [..., k, I, d] and w2 [..., k, d, I] -> [..., d].

    simulated: gate, up, weight x h and y are rounded to x's dtype, the sum over experts is exact. activation rounds x
    and weight x h. A weight of 0 is no expert: its result does not count, NaN or not.
    """
    row = (activation(x) if activation else x).to(dtype)
    gate, up = (rounded(torch.einsum("...kid,...d->...ki", w.to(dtype), row), x.dtype, kind) for w in (w1, w3))
    h = swiglu(gate, up, limit=limit, dtype=dtype) * weights.to(dtype)[..., None]
    h = rounded(h.masked_fill((weights == 0)[..., None], 0.0), x.dtype, kind)
    out = torch.einsum("...kdi,...ki->...d", w2.to(dtype), activation(h) if activation else h)
    return rounded(out, x.dtype, kind)


def routed(
    x: torch.Tensor,
    weights: torch.Tensor,
    experts: torch.Tensor,
    w1: torch.Tensor,
    w3: torch.Tensor,
    w2: torch.Tensor,
    *,
    limit: float | None = 10.0,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """x [..., d], weights [..., k], experts int64 [..., k] (-1: none), w1, w3 [E, I, d], w2 [E, d, I] -> [..., d].

    Nothing is read on the host: few tokens gather the weights of their experts, many go through all experts. Rounding
    as ``gathered``.
    """
    count = w1.shape[0]
    expect("experts", experts.shape == weights.shape, "experts.shape", tuple(experts.shape), f"{tuple(weights.shape)}")
    if experts.numel() <= count:
        chosen, live = experts.clamp(min=0), torch.where(experts < 0, 0.0, weights)
        return gathered(
            x, live, w1[chosen], w3[chosen], w2[chosen], limit=limit, dtype=dtype, kind=kind, activation=activation
        )
    row = (activation(x) if activation else x).to(dtype)
    total = x.new_zeros(x.shape, dtype=dtype)
    for start in range(0, count, BLOCK):
        block = slice(start, min(start + BLOCK, count))
        hits = experts[..., None] == torch.arange(block.start, block.stop, device=x.device)
        share = (weights.to(dtype)[..., None] * hits).sum(dim=-2)[..., None]
        gate, up = (_all_experts(row, w[block].to(dtype), x.dtype, kind) for w in (w1, w3))
        h = swiglu(gate, up, limit=limit, dtype=dtype) * share
        h = rounded(h.masked_fill(share == 0, 0.0), x.dtype, kind)
        h = activation(h) if activation else h
        total = total + h.flatten(-2) @ w2[block].to(dtype).transpose(0, 1).flatten(1).mT
    return rounded(total, x.dtype, kind)


def _all_experts(row: torch.Tensor, w: torch.Tensor, storage: torch.dtype, kind: Kind) -> torch.Tensor:
    """row [..., d], w [E, I, d] -> [..., E, I]."""
    return rounded((row @ w.flatten(0, 1).mT).unflatten(-1, w.shape[:2]), storage, kind)


def shared(
    x: torch.Tensor,
    w1: torch.Tensor,
    w3: torch.Tensor,
    w2: torch.Tensor,
    *,
    limit: float | None = 10.0,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """The shared expert: x [..., d], w1, w3 [I, d], w2 [d, I] -> [..., d]. Limit and rounding as those of a routed
    one.
    """
    gate, up = (rounded(linear(x, w, dtype=dtype, activation=activation), x.dtype, kind) for w in (w1, w3))
    h = rounded(swiglu(gate, up, limit=limit, dtype=dtype), x.dtype, kind)
    return rounded(linear(h, w2, dtype=dtype, activation=activation), x.dtype, kind)
