"""Multi-token prediction: the model's own draft block guesses tokens ahead, one step of the model checks them all.

The block at position i takes the residual streams of position i and the token at i + 1, and predicts the token at i +
2. It has a window of its own. With more than one draft it goes on from its own output. Whatever it guesses, what `step`
returns is what decoding one token at a time with the same `pick` would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from model.cache import Cache
from model.errors import InputError
from model.forward import Model, Prompt
from model.layer import block
from model.plan import Plan, plan

Pick = Callable[[torch.Tensor], torch.Tensor]
"""Logits f32 [..., V] to token ids int64 [...], on the device."""


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The most likely token; of equal ones the lowest."""
    return logits.argmax(dim=-1)


class Speculative:
    """Decoding of several sequences with `drafts` guesses a step. `tokens` [B] are the newest ones, not yet in the
    cache; `guesses` [B, drafts] what the block expects after them. `drafted` and `accepted` count guesses.

    The sequences belong to this object from its `prefill` on. Raises InputError if the weights or the cache have no
    draft block, or the cache keeps fewer tokens for rewinding than there are drafts."""

    def __init__(
        self, model: Model, cache: Cache, sequences: Sequence[int], *, drafts: int = 1, pick: Pick = greedy
    ) -> None:
        if model.weights.mtp is None or len(cache.layers) != len(model.config.ratios) + 1:
            raise InputError(
                "no block of multi-token prediction; allowed: weights that have one, a cache with mtp=True"
            )
        if not 1 <= drafts <= cache.rewind_most:
            raise InputError(f"drafts={drafts}; allowed: 1..{cache.rewind_most}, the `rewind` of the cache")
        self.model, self.cache, self.sequences, self.drafts, self.pick = model, cache, list(sequences), drafts, pick
        self.mtp = model.weights.mtp
        self.drafted = self.accepted = 0
        self.hidden: dict[int, torch.Tensor] = {}
        self.tokens = self.guesses = torch.empty(0, dtype=torch.int64, device=model.device)

    def prefill(self, prompts: Sequence[Prompt], *, chunk: int | None = None) -> torch.Tensor:
        """Append a prompt to each sequence, empty or prefilled by this object; returns the first new tokens [B], on the
        device."""
        for s in self.sequences:
            if self.cache.length(s) and s not in self.hidden:
                raise InputError(f"sequence {s} holds {self.cache.length(s)} tokens of others; allowed: an empty one")
        last: dict[int, torch.Tensor] = {}
        for step, ids, streams in self.model.steps(self.cache, self.sequences, prompts, chunk):
            self._follow(step, ids, streams)
            for s, x in zip(step.sequences, streams.index_select(0, step.last), strict=True):
                last[s] = self.hidden[s] = x
        newest = torch.stack([last[s] for s in self.sequences])
        self.tokens = self.pick(self.model.logits(newest))
        starts = [self.cache.length(s) - 1 for s in self.sequences]
        self.guesses = self._guess(newest, self.tokens, starts)
        return self.tokens

    def step(self) -> list[list[int]]:
        """Check the guesses: 1 to 1 + drafts new tokens of each sequence. Reading them is the only wait of the step."""
        cache, width = self.cache, 1 + self.drafts
        starts = [cache.length(s) for s in self.sequences]
        given = torch.cat((self.tokens[:, None], self.guesses), dim=1)
        streams = self.model.decode_streams(cache, self.sequences, given)
        chosen = self.pick(self.model.logits(streams.flatten(0, 1)).unflatten(0, tuple(given.shape)))
        right = (chosen[:, :-1] == self.guesses).long().cumprod(dim=1).sum(dim=1, keepdim=True)
        numbers = torch.cat((chosen, right), dim=1).tolist()
        accepted = [int(row[-1]) for row in numbers]
        for s, n in zip(self.sequences, accepted, strict=True):
            cache.rewind(s, self.drafts - n)
        self.drafted += self.drafts * len(accepted)
        self.accepted += sum(accepted)
        # All positions at once, those of rejected guesses too: the next step writes theirs again.
        where = plan(cache, self.sequences, [width] * len(starts), starts, ratios=())
        out = self._block(where, chosen.flatten(), streams.flatten(0, 1)).unflatten(0, tuple(given.shape))
        self.tokens = chosen.gather(1, right).squeeze(1)
        rows = torch.arange(len(starts), device=out.device), right.squeeze(1)
        for i, s in enumerate(self.sequences):
            self.hidden[s] = streams[i, accepted[i]]
        ends = [a + n for a, n in zip(starts, accepted, strict=True)]
        self.guesses = self._continue(out[rows], ends)
        return [[int(t) for t in row[: n + 1]] for row, n in zip(numbers, accepted, strict=True)]

    def _follow(self, step: Plan, ids: torch.Tensor, streams: torch.Tensor) -> None:
        """Take a piece of the prompts through the block: position i needs token i + 1, so it lags one token behind."""
        tokens, hidden, counts, starts = [], [], [], []
        pieces = zip(step.sequences, step.starts, ids.split(step.counts), streams.split(step.counts), strict=True)
        for s, start, piece, x in pieces:
            tokens.append(piece if start else piece[1:])
            hidden.append(torch.cat((self.hidden[s][None], x[:-1])) if start else x[:-1])
            counts.append(len(tokens[-1]))
            starts.append(max(start - 1, 0))
        live = [i for i, n in enumerate(counts) if n]
        if live:
            where = plan(
                self.cache,
                [step.sequences[i] for i in live],
                [counts[i] for i in live],
                [starts[i] for i in live],
                ratios=(),
            )
            self._block(where, torch.cat(tokens), torch.cat(hidden))

    def _guess(self, hidden: torch.Tensor, tokens: torch.Tensor, positions: list[int]) -> torch.Tensor:
        """Guesses [B, drafts] from the streams [B, n, d] at `positions` and the tokens after them."""
        where = plan(self.cache, self.sequences, [1] * len(positions), positions, ratios=())
        return self._continue(self._block(where, tokens, hidden), positions)

    def _continue(self, out: torch.Tensor, positions: list[int]) -> torch.Tensor:
        """Guesses [B, drafts] from the block's output [B, n, d] at `positions`, the later ones from its own output."""
        guesses = [self._choose(out)]
        for ahead in range(1, self.drafts):
            where = plan(self.cache, self.sequences, [1] * len(positions), [p + ahead for p in positions], ratios=())
            out = self._block(where, guesses[-1], out)
            guesses.append(self._choose(out))
        return torch.stack(guesses, dim=1)

    def _block(self, where: Plan, tokens: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
        """The block over tokens [N] and streams [N, n, d] -> [N, n, d]; writes its window."""
        model, config = self.model, self.model.config
        embedded = model.ops.embed(tokens, model.weights.embed, config, model.dtype)[:, 0]
        x = model.ops.mtp_combine(streams, embedded, self.mtp, config)
        return block(x, self.mtp.block, self.cache.layers[-1], 0, "mtp", model.context(where, tokens))

    def _choose(self, out: torch.Tensor) -> torch.Tensor:
        """The most likely tokens [B] of the block's output."""
        ops, config = self.model.ops, self.model.config
        x = ops.hc_head(out, self.mtp.hc_head, config)
        return greedy(ops.logits(x, self.mtp.norm, self.model.weights.head, config))
