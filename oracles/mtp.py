"""Multi-token prediction: the input of the draft block. The block itself is ``block.block`` with ratio 0, its head
``mhc.head`` and ``head.logits`` with the block's own weights; embedding and vocabulary are those of the model.
"""

from __future__ import annotations

import torch

from oracles.linear import linear
from oracles.norm import rms_norm
from oracles.precision import Kind, Quantiser, rounded


def combine(
    streams: torch.Tensor,
    embedded: torch.Tensor,
    enorm: torch.Tensor,
    hnorm: torch.Tensor,
    e_proj: torch.Tensor,
    h_proj: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    activation: Quantiser | None = None,
) -> torch.Tensor:
    """X_in[j] = e_proj(enorm(E)) + h_proj(hnorm(X[j])): streams [..., n, d] of position i, embedded [..., d] of token
    i + 1 -> [..., n, d].

    streams are those before ``mhc.head``. enorm, hnorm [d], e_proj, h_proj [d, d]. simulated: norms, products and the
    sum are rounded to the streams' dtype.
    """
    storage = streams.dtype
    e = rounded(rms_norm(embedded, enorm, eps=eps, dtype=dtype), storage, kind)
    h = rounded(rms_norm(streams, hnorm, eps=eps, dtype=dtype), storage, kind)
    e = rounded(linear(e, e_proj, dtype=dtype, activation=activation), storage, kind)
    h = rounded(linear(h, h_proj, dtype=dtype, activation=activation), storage, kind)
    return rounded(e[..., None, :] + h, storage, kind)
