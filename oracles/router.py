"""The router: which experts a token goes to, and with which weights.

a = sqrt(softplus(x gate^T)), softplus(z) = ln(1 + e^z)
experts: the k largest of a + bias, or, in the first layers, a table's row for the token id
weights: scale a_e / sum of a over the chosen ones: from a, never from a + bias
"""

from __future__ import annotations

import torch

from oracles.linear import linear
from oracles.precision import expect


def affinities(x: torch.Tensor, gate: torch.Tensor, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """a: x [..., d], gate [E, d] -> [..., E]. No logit overflows: softplus is written as ln(e^z + e^0)."""
    z = linear(x, gate, dtype=dtype)
    return torch.logaddexp(z, z.new_zeros(())).sqrt()


def route(
    x: torch.Tensor,
    gate: torch.Tensor,
    *,
    k: int,
    scale: float,
    bias: torch.Tensor | None = None,
    table: torch.Tensor | None = None,
    ids: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., d], gate [E, d] -> weights [..., k] and experts int64 [..., k].

    With table [V, k] (int32 or int64) and token ids [...]: hash routing, experts in the table's order. Else by a +
    bias (bias [E] or None), best first, ties to the lower expert. Where all chosen a are 0 the weights are 0.
    """
    expect("router", (table is None) == (ids is None), "table and ids", "one of them", "both or neither")
    expect("router", table is None or bias is None, "bias", "given", "None with a table")
    a = affinities(x, gate, dtype=dtype)
    if table is not None and ids is not None:
        expect("router", table.shape[-1] == k, "table.shape", tuple(table.shape), f"[V, {k}]")
        experts = table[ids].long()
    else:
        order = a if bias is None else a + bias.to(dtype)
        experts = order.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    chosen = a.gather(-1, experts)
    total = chosen.sum(dim=-1, keepdim=True)
    return chosen / total.masked_fill(total == 0.0, 1.0) * scale, experts
