"""From logits to token ids, on the device: greedy, or drawn with a temperature from the most probable tokens.

Nothing is read back. Every random number is made before the first step, on the host, from the seed of its sequence
alone: the same seed gives the same tokens on any device, in any batch, and with any number of drafts a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from model.errors import InputError
from oracles import sampler


class Sampler:
    """Calls give token ids int64 of logits f32: [B] of [B, V], or [B, T] of [B, T, V] for T tokens in a row.

    temperature   0: the largest logit, ties to the lower id; then `seeds` and `top_p` don't matter
    top_p         only the most probable tokens whose sum reaches it, at least one
    seeds         one for each sequence: sequence b draws its n-th token with the n-th number of seed b
    draws         numbers for each sequence; after the last one they begin again

    A call doesn't count as drawing: `advance` does, by as many tokens as were kept, so that a token drawn again after a
    rejected draft is drawn with the same number. Raises InputError naming argument, value and what is allowed.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seeds: Sequence[int] = (0,),
        draws: int = 4096,
        device: torch.device | str = "cpu",
    ) -> None:
        checks = [
            ("temperature", temperature, temperature >= 0 and math.isfinite(temperature), "a finite number from 0"),
            ("top_p", top_p, 0 < top_p <= 1, "above 0, at most 1"),
            ("draws", draws, draws >= 1, "at least 1"),
            ("seeds", list(seeds), len(seeds) > 0 and all(0 <= s < 2**63 for s in seeds), "0..2^63 - 1, at least one"),
        ]
        wrong = [f"{name}={value!r}; allowed: {allowed}" for name, value, right, allowed in checks if not right]
        if wrong:
            raise InputError("; ".join(wrong))
        self.temperature, self.top_p = float(temperature), float(top_p)
        rows = [torch.rand(draws, generator=torch.Generator().manual_seed(s)) for s in seeds]
        self.numbers = torch.stack(rows).to(device)
        self.drawn = torch.zeros(len(seeds), dtype=torch.int64, device=device)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Ids for the next tokens of each sequence; may be called again before `advance`."""
        if logits.ndim not in (2, 3) or logits.shape[0] != len(self.drawn):
            allowed = f"[{len(self.drawn)}, V] or [{len(self.drawn)}, T, V]: one seed for each sequence"
            raise InputError(f"logits: {list(logits.shape)}; allowed: {allowed}")
        if self.temperature == 0:
            return sampler.greedy(logits)
        ahead = torch.arange(logits.shape[1] if logits.ndim == 3 else 1, device=logits.device)
        uniform = self.numbers.gather(1, (self.drawn[:, None] + ahead) % self.numbers.shape[1])
        uniform = uniform if logits.ndim == 3 else uniform[:, 0]
        return sampler.sample(logits, uniform, temperature=self.temperature, top_p=self.top_p, dtype=torch.float32)

    def advance(self, tokens: int | Sequence[int] = 1) -> None:
        """Count tokens that were kept: as many of each sequence, or a number for each."""
        if self.temperature == 0:
            return
        if isinstance(tokens, int):
            self.drawn.add_(tokens)
        else:
            self.drawn.add_(torch.tensor(list(tokens), device=self.drawn.device))
