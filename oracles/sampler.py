"""The sampler: greedy, temperature, nucleus; the random number is an argument, so that two implementations can agree
exactly.
"""

from __future__ import annotations

import torch

from oracles.precision import expect


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The largest of logits [..., V], ties to the lower id -> int64 [...]."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    best = logits == logits.amax(dim=-1, keepdim=True)
    return torch.where(best, ids, logits.shape[-1] - 1).amin(dim=-1)


def sample(
    logits: torch.Tensor,
    uniform: torch.Tensor,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Inverse of the distribution function, in order of falling probability: logits [..., V], uniform [...] in [0, 1)
    -> ids int64 [...].

    p = softmax(logits / temperature). Kept are the most probable ids, ties to the lower one, up to the first whose
    sum reaches top_p (at least one). The id is the first whose running sum exceeds uniform x the kept sum.
    temperature 0: ``greedy``.
    """
    expect("sampler", temperature >= 0.0, "temperature", temperature, ">= 0")
    expect("sampler", 0.0 < top_p <= 1.0, "top_p", top_p, "0 < top_p <= 1")
    if temperature == 0.0:
        return greedy(logits)
    p, order = torch.softmax(logits.to(dtype) / temperature, dim=-1).sort(dim=-1, descending=True, stable=True)
    running = p.cumsum(dim=-1)
    kept = (running - p < top_p) & (p > 0)
    running = torch.where(kept, p, 0.0).cumsum(dim=-1)
    rank = (running <= uniform.to(dtype)[..., None] * running[..., -1:]).sum(dim=-1)
    return order.gather(-1, rank.clamp(max=kept.sum(dim=-1) - 1)[..., None]).squeeze(-1)
