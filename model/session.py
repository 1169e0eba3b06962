"""One conversation: replies token by token, and what the cache already holds is not computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from model.cache import Cache
from model.errors import CacheError, InputError
from model.forward import Model
from model.mtp import Speculative
from model.sampler import Sampler


@dataclass
class Tally:
    """What the replies so far took. `prefilled` and `reused` count prompt tokens, `drafted` and `accepted` guesses."""

    prefilled: int = 0
    reused: int = 0
    new: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0


class Session:
    """Replies to prompts that grow. Owns one sequence of the cache, and a second one while a prefix is kept apart.

    stop     the token that ends a reply (EOS, and no other); None: only the length does
    drafts   guesses of the draft block for each step; then a prompt is always computed from its beginning
    chunk    most prompt tokens in one step
    """

    def __init__(
        self,
        model: Model,
        cache: Cache,
        sampler: Sampler,
        *,
        stop: int | None,
        drafts: int = 0,
        chunk: int | None = None,
    ) -> None:
        self.model, self.cache, self.sampler = model, cache, sampler
        self.stop, self.drafts, self.chunk = stop, drafts, chunk
        self.sequence = cache.open()
        self.held: list[int] = []
        self.kept: tuple[int, list[int]] | None = None
        self.tally = Tally()

    def reply(self, prompt: Sequence[int], most: int, *, keep: int = 0) -> Iterator[list[int]]:
        """New tokens as they come, one or, with drafts, a few at a time; the last one is `stop` or the `most`-th.

        keep: the first `keep` tokens of the prompt will also begin the next one, while what follows may not (a thinking
        model's reasoning is dropped): they stay in the cache apart, if it has a free sequence. Each item costs one wait
        for the device. Raises InputError or CacheError before anything has run.
        """
        ids = [int(t) for t in prompt]
        vocabulary = self.model.config.vocab_size
        bad = [t for t in ids if not 0 <= t < vocabulary]
        if bad or not ids:
            raise InputError(
                f"prompt: token id {bad[0]}; allowed: 0..{vocabulary - 1}"
                if bad
                else "prompt: no token; allowed: at least 1"
            )
        if most < 1:
            raise InputError(f"most={most}; allowed: at least 1")
        room = min(self.cache.capacity, self.model.config.max_position_embeddings)
        if len(ids) + most - 1 + self.drafts > room:
            need = f"{len(ids)} prompt tokens, {most} new ones and {self.drafts} drafts"
            raise CacheError(f"{need} need {len(ids) + most - 1 + self.drafts} places; allowed: {room}")
        if not 0 <= keep <= len(ids):
            raise InputError(f"keep={keep}; allowed: 0..{len(ids)}, the length of the prompt")
        return self._speculative(ids, most) if self.drafts else self._plain(ids, most, keep)

    def _plain(self, ids: list[int], most: int, keep: int) -> Iterator[list[int]]:
        logits = self._prefill(ids, keep)
        for count in range(1, most + 1):
            tokens = self.sampler(logits)
            self.sampler.advance()
            token = int(tokens)  # the step's only wait
            self.tally.new += 1
            yield [token]
            if token == self.stop or count == most:
                return
            logits = self.model.decode(self.cache, [self.sequence], tokens[:, None])[:, 0]
            self.held.append(token)
            self.tally.steps += 1

    def _speculative(self, ids: list[int], most: int) -> Iterator[list[int]]:
        self._restart()
        speculative = Speculative(self.model, self.cache, [self.sequence], drafts=self.drafts, pick=self.sampler)
        first = speculative.prefill([ids], chunk=self.chunk)
        self.tally.prefilled += len(ids)
        self.sampler.advance()
        new, count = [int(first)], 0
        while True:
            new = new[: most - count]
            if self.stop in new:
                new = new[: new.index(self.stop) + 1]
            count += len(new)
            self.tally.new += len(new)
            yield new
            if new[-1] == self.stop or count == most:
                return
            drafted, accepted = speculative.drafted, speculative.accepted
            new = speculative.step()[0]
            self.sampler.advance(len(new))
            self.tally.steps += 1
            self.tally.drafted += speculative.drafted - drafted
            self.tally.accepted += speculative.accepted - accepted

    def _prefill(self, ids: list[int], keep: int) -> torch.Tensor:
        """Logits [1, V] behind the prompt."""
        start = self._reuse(ids)
        self.tally.reused += start
        self.tally.prefilled += len(ids) - start
        if start < keep < len(ids):
            self._append(ids[start:keep])
            self._keep()
            start = keep
        return self._append(ids[start:])

    def _append(self, ids: list[int]) -> torch.Tensor:
        logits: torch.Tensor = self.model.prefill(self.cache, [self.sequence], [ids], chunk=self.chunk)
        self.held += ids
        return logits

    def _reuse(self, ids: list[int]) -> int:
        """How many tokens of the prompt the cache holds when this returns: the last one is always computed again."""
        common = _common(self.held, ids[:-1])
        if common == len(self.held):
            return common
        try:
            self.cache.rewind(self.sequence, len(self.held) - common)
        except CacheError:
            return self._restore(ids)
        self.held = self.held[:common]
        return common

    def _restore(self, ids: list[int]) -> int:
        """Go back to the prefix that was kept apart if it begins this prompt, else to nothing."""
        kept, self.kept = self.kept, None
        if kept is not None and kept[1] == ids[: len(kept[1])] and len(kept[1]) < len(ids):
            self.cache.free(self.sequence)
            self.sequence, self.held = kept[0], list(kept[1])
            return len(self.held)
        if kept is not None:
            self.cache.free(kept[0])
        self._restart()
        return 0

    def _restart(self) -> None:
        self.cache.rewind(self.sequence, self.cache.length(self.sequence))
        self.held = []

    def _keep(self) -> None:
        """Put what the sequence holds now apart; without a free sequence it is computed again later."""
        if self.kept is not None:
            self.cache.free(self.kept[0])
            self.kept = None
        try:
            self.kept = self.cache.fork(self.sequence), list(self.held)
        except CacheError:
            self.kept = None


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
