"""The model: prefill of several prompts at once, in chunks if wanted, and decode of one or a few tokens for each
sequence.

A step is a plan made on the host from plain integers, one copy of it to the device, and launches: nothing is read back.
The caller reads the tokens it wants to print, and that is the only wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from model.cache import Cache
from model.config import Config
from model.errors import InputError
from model.layer import Step, Tap, block
from model.ops import Ops
from model.plan import Plan, plan
from model.weights import Weights
from oracles.rope import Yarn, angles, frequencies

Prompt = Sequence[int] | torch.Tensor


class Model:
    """Weights with an operations table. `dtype` is that of activations and of caches by default: f32 or bf16."""

    def __init__(
        self, config: Config, weights: Weights, ops: Ops | None = None, *, dtype: torch.dtype = torch.float32
    ) -> None:
        if dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"dtype={dtype}; allowed: torch.float32, torch.bfloat16")
        self.config, self.weights, self.dtype = config, weights, dtype
        self.ops = Ops.oracles() if ops is None else ops
        self.device = weights.embed.device
        yarn = Yarn(config.rope_factor, config.beta_fast, config.beta_slow, config.original_positions)
        dim = config.qk_rope_head_dim
        self.freqs = {
            False: frequencies(dim, theta=config.rope_theta, device=self.device),
            True: frequencies(dim, theta=config.compress_rope_theta, yarn=yarn, device=self.device),
        }

    def new_cache(self, sequences: int, tokens: int, **options: Any) -> Cache:
        """A cache for this model: its dtype, its device, with a window for the draft block if the weights have one."""
        defaults: dict[str, Any] = {
            "entries": "bf16" if self.dtype == torch.bfloat16 else "fp32",
            "mtp": self.weights.mtp is not None,
            "dtype": self.dtype,
            "device": self.device,
        }
        return Cache(self.config, sequences=sequences, tokens=tokens, **(defaults | options))

    def prefill(
        self,
        cache: Cache,
        sequences: Sequence[int],
        prompts: Sequence[Prompt],
        *,
        chunk: int | None = None,
        logits: Literal["last", "all"] = "last",
        tap: Tap | None = None,
    ) -> Any:
        """Append prompts (of any lengths, at any start) and return the logits: f32 [B, V] after the last tokens, or a
        list of [T_i, V] with logits="all".

        `chunk`: most tokens of a sequence in one step. Raises InputError or CacheError before anything has run.
        """
        if logits not in ("last", "all"):
            raise InputError(f"logits={logits!r}; allowed: 'last', 'all'")
        self._same_count(sequences, prompts)
        order = {s: i for i, s in enumerate(sequences)}
        ends = {s: cache.length(s) + len(p) for s, p in zip(sequences, prompts, strict=True)}
        pieces: list[list[torch.Tensor]] = [[] for _ in prompts]
        for step, _, streams in self.steps(cache, sequences, prompts, chunk, tap):
            if logits == "all":
                found = dict(zip(step.sequences, self.logits(streams).split(step.counts), strict=True))
            else:
                done = [i for i, s in enumerate(step.sequences) if step.starts[i] + step.counts[i] == ends[s]]
                if not done:
                    continue
                rows = self.logits(streams.index_select(0, step.last)[done])
                found = dict(zip([step.sequences[i] for i in done], rows.split(1), strict=True))
            for s, piece in found.items():
                pieces[order[s]].append(piece)
        joined = [torch.cat(p) for p in pieces]
        return joined if logits == "all" else torch.cat(joined)

    def steps(
        self,
        cache: Cache,
        sequences: Sequence[int],
        prompts: Sequence[Prompt],
        chunk: int | None = None,
        tap: Tap | None = None,
    ) -> Iterator[tuple[Plan, torch.Tensor, torch.Tensor]]:
        """Prefill step by step: the plan, its token ids [N] and the streams [N, n, d] after the last layer."""
        flat = self._check(sequences, prompts)
        if chunk is not None and chunk < 1:
            raise InputError(f"chunk={chunk}; allowed: at least 1, or None")
        counts = [len(p) for p in flat]
        cache.reserve(sequences, counts)
        size = chunk or max(counts)
        for low in range(0, max(counts), size):
            live = [i for i, n in enumerate(counts) if n > low]
            parts = [flat[i][low : low + size] for i in live]
            step = plan(cache, [sequences[i] for i in live], [len(p) for p in parts])
            ids = torch.cat(parts)
            streams = self.run(cache, step, ids, tap)
            cache.advance(step.sequences, step.counts)
            yield step, ids, streams

    def decode(
        self, cache: Cache, sequences: Sequence[int], tokens: torch.Tensor, *, tap: Tap | None = None
    ) -> torch.Tensor:
        """Append tokens [B, T] (int64, on the device, not checked there) and return their logits f32 [B, T, V].

        T is 1, or 1 + drafts: take rejected ones back with `cache.rewind`.
        """
        streams = self.decode_streams(cache, sequences, tokens, tap=tap)
        return self.logits(streams.flatten(0, 1)).unflatten(0, tuple(tokens.shape))

    def decode_streams(
        self, cache: Cache, sequences: Sequence[int], tokens: torch.Tensor, *, tap: Tap | None = None
    ) -> torch.Tensor:
        """As `decode`, but the residual streams [B, T, n, d] after the last layer: what logits and drafts are made
        from."""
        if tokens.ndim != 2 or tokens.shape[0] != len(sequences) or tokens.shape[1] < 1 or tokens.dtype != torch.int64:
            found = f"{tokens.dtype} {list(tokens.shape)}"
            raise InputError(f"tokens: {found}; allowed: torch.int64 [{len(sequences)}, T], T at least 1")
        if not sequences:
            raise InputError("sequences: none; allowed: at least one")
        counts = [tokens.shape[1]] * len(sequences)
        cache.reserve(sequences, counts)
        step = plan(cache, sequences, counts, static=True)
        streams = self.run(cache, step, tokens.flatten(), tap)
        cache.advance(sequences, counts)
        return streams.unflatten(0, tuple(tokens.shape))

    def run(self, cache: Cache, step: Plan, ids: torch.Tensor, tap: Tap | None = None) -> torch.Tensor:
        """The launches of one step: ids [N] on the device -> streams [N, n, d] after the last layer. Reads nothing
        back."""
        context = self.context(step, ids, tap)
        streams = self.ops.embed(ids, self.weights.embed, self.config, self.dtype)
        for i, (w, ratio) in enumerate(zip(self.weights.layers, self.config.ratios, strict=True)):
            streams = block(streams, w, cache.layers[i], ratio, f"layers.{i}", context)
        return streams

    def context(self, step: Plan, ids: torch.Tensor, tap: Tap | None = None) -> Step:
        """What all layers of a step share."""
        turns = {k: angles(step.positions, f, dtype=torch.float32) for k, f in self.freqs.items()}
        return Step(step, ids, turns, self.freqs, self.ops, self.config, tap)

    def logits(self, streams: torch.Tensor) -> torch.Tensor:
        """Logits f32 [N, V] of streams [N, n, d]."""
        x = self.ops.hc_head(streams, self.weights.hc_head, self.config)
        return self.ops.logits(x, self.weights.norm, self.weights.head, self.config)

    def _same_count(self, sequences: Sequence[int], prompts: Sequence[Prompt]) -> None:
        if len(sequences) != len(prompts) or not prompts:
            raise InputError(f"{len(sequences)} sequences, {len(prompts)} prompts; allowed: as many, at least one")

    def _check(self, sequences: Sequence[int], prompts: Sequence[Prompt]) -> list[torch.Tensor]:
        """Prompts as device tensors, after checking those that the host can read."""
        self._same_count(sequences, prompts)
        result = []
        for i, prompt in enumerate(prompts):
            if not isinstance(prompt, torch.Tensor):
                bad = [t for t in prompt if not 0 <= t < self.config.vocab_size]
                if bad:
                    raise InputError(f"prompt {i}: token id {bad[0]}; allowed: 0..{self.config.vocab_size - 1}")
            ids = torch.as_tensor(prompt, dtype=torch.int64, device=self.device)
            if ids.ndim != 1 or len(ids) == 0:
                raise InputError(f"prompt {i}: {list(ids.shape)} token ids; allowed: one dimension, at least 1 token")
            result.append(ids)
        return result
