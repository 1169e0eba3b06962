"""The caches of all layers for several sequences of different lengths.

Per sequence, a ring of window keys and a ring of what open compression windows need (the carry), both addressed by
position; per block of `block_tokens` tokens, the compressed entries and index entries of every layer, addressed through
one table of blocks. Rings hold `rewind` positions more than the model looks back, so that many tokens can be taken back
at any phase: an entry that a rejected token completed is overwritten later, because its place follows from its
position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from model.cache.blocks import Blocks
from model.cache.rows import FORMS, PLAIN, Form, Rows
from model.config import KINDS, Config, Kind
from model.errors import CacheError

CarryForm = Literal["hidden", "projected"]
CARRY: dict[CarryForm, str] = {
    "hidden": "normed hidden states; projected when a window is complete, so most steps run no projection",
    "projected": "what the compressor's projections give, f32, as the published code keeps it",
}
UNIT = 128
"""A block holds whole entries of every layer if its tokens are a multiple of this."""


@dataclass(frozen=True)
class LayerCache:
    """The pools of one layer. `window` and `carry`: one page per sequence. `entries`, `index`: one page per block."""

    kind: Kind
    window: Rows
    carry: Rows | None
    index_carry: Rows | None
    entries: Rows | None
    index: Rows | None

    @property
    def pools(self) -> list[Rows]:
        """All of them."""
        return [r for r in (self.window, self.carry, self.index_carry, self.entries, self.index) if r is not None]


@dataclass
class _Sequence:
    """Host state of one sequence. `high`: the greatest length since the rings were last full of valid positions."""

    length: int
    high: int
    table: list[int]


class Cache:
    """Preallocated; nothing grows.

    sequences     most sequences at once
    tokens        tokens of all sequences together, rounded up to whole blocks
    block_tokens  tokens of a block: a multiple of 128
    entries       format of window keys and compressed entries; index: of index keys
    rewind        most tokens that can be taken back; at least T - 1 for decoding T tokens a step with rejection
    carry         see CARRY
    mtp           also a window for the block of multi-token prediction (the last layer cache)
    dtype         of a "hidden" carry: f32 or bf16

    Raises CacheError naming argument, value and what is allowed.
    """

    def __init__(
        self,
        config: Config,
        *,
        sequences: int,
        tokens: int,
        block_tokens: int = 256,
        entries: Form = "fp32",
        index: Form | None = None,
        rewind: int = 0,
        carry: CarryForm = "hidden",
        mtp: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        index = entries if index is None else index
        _check(sequences, tokens, block_tokens, entries, index, rewind, carry)
        self.config, self.rewind_most, self.block_tokens = config, rewind, block_tokens
        self.carry_form: CarryForm = carry
        self.device = torch.device(device)
        self.window_ring = config.sliding_window + rewind
        self.carry_ring = {4: 8 + rewind, 128: 128 + rewind}
        compressed = any(config.ratios)
        self.blocks = Blocks(-(-tokens // block_tokens) if compressed else 0, block_tokens)
        self.capacity = -(-tokens // block_tokens) * block_tokens
        self._compressed = compressed
        self._free = list(range(sequences - 1, -1, -1))
        self._sequences: dict[int, _Sequence] = {}
        hidden: Form = "bf16" if dtype == torch.bfloat16 else "fp32"
        ratios = [*config.ratios, *(config.mtp_ratios if mtp else ())]
        self.layers = tuple(self._layer(r, sequences, entries, index, hidden) for r in ratios)

    @property
    def nbytes(self) -> int:
        """Bytes of all pools."""
        return sum(r.nbytes for layer in self.layers for r in layer.pools)

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence uses."""
        return self.blocks.free

    @property
    def sequences(self) -> list[int]:
        """The open sequences."""
        return sorted(self._sequences)

    def length(self, sequence: int) -> int:
        """Tokens that a sequence holds."""
        return self._get(sequence).length

    def table(self, sequence: int) -> list[int]:
        """The blocks of a sequence, in order of position."""
        return self._get(sequence).table

    def open(self) -> int:
        """A new empty sequence."""
        if not self._free:
            raise CacheError(f"no free sequence: all {len(self._sequences)} are open; allowed: free one first")
        sequence = self._free.pop()
        self._sequences[sequence] = _Sequence(0, 0, [])
        return sequence

    def free(self, sequence: int) -> None:
        """Give a sequence and its blocks back."""
        self.blocks.release(self._get(sequence).table)
        del self._sequences[sequence]
        self._free.append(sequence)

    def fork(self, sequence: int) -> int:
        """A second sequence with the same contents: rings are copied, blocks are shared until one of the two writes."""
        source = self._get(sequence)
        target = self.open()
        for layer in self.layers:
            for ring in (layer.window, layer.carry, layer.index_carry):
                if ring is not None:
                    ring.copy_page(sequence, target)
        self._sequences[target] = _Sequence(source.length, source.high, self.blocks.share(source.table))
        return target

    def rewind(self, sequence: int, tokens: int) -> None:
        """Take the last `tokens` tokens back; what follows is as if they had never been there.

        Raises CacheError past what the rings keep: `rewind` below the greatest length so far, or everything.
        """
        state = self._get(sequence)
        length = state.length - tokens
        least = max(0, state.high - self.rewind_most)
        if tokens < 0 or length < 0 or (length < least and length != 0):
            raise CacheError(
                f"rewind of sequence {sequence} by {tokens} tokens from {state.length}; allowed: "
                f"0..{state.length - least}, or all {state.length} (the cache keeps {self.rewind_most})"
            )
        kept = -(-length // self.block_tokens) if self._compressed else 0
        self.blocks.release(state.table[kept:])
        state.table = state.table[:kept]
        state.length = length
        if length == 0:
            state.high = 0

    def reserve(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        """Make room for `counts` more tokens of each sequence: all of it, or a CacheError and no change."""
        self.check_room(sequences, counts)
        for s, n in zip(sequences, counts, strict=True):
            state = self._sequences[s]
            if not self._compressed:
                continue
            reservation = self.blocks.reserve(state.table, state.length, state.length + n)
            for source, target in reservation.copies:
                for pool in (r for layer in self.layers for r in (layer.entries, layer.index) if r is not None):
                    pool.copy_page(source, target)
            state.table = reservation.table

    def check_room(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        """Raise CacheError unless `reserve` would succeed."""
        if len(set(sequences)) != len(sequences):
            raise CacheError(f"sequences {list(sequences)}; allowed: each of them once")
        needed = 0
        for s, n in zip(sequences, counts, strict=True):
            state = self._get(s)
            stop = state.length + n
            most = min(self.capacity, self.config.max_position_embeddings)
            if stop > most:
                raise CacheError(
                    f"sequence {s} holds {state.length} tokens and {n} more are {stop}; allowed: at most {most} "
                    f"(cache {self.capacity}, model {self.config.max_position_embeddings})"
                )
            needed += self.blocks.needed(state.table, state.length, stop) if self._compressed else 0
        if needed > self.blocks.free:
            raise CacheError(
                f"{needed} more blocks of {self.block_tokens} tokens are needed; "
                f"allowed: {self.blocks.free}, those free of {self.blocks.count}"
            )

    def advance(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        """Count tokens whose keys a step has written."""
        for s, n in zip(sequences, counts, strict=True):
            state = self._get(s)
            state.length += n
            state.high = max(state.high, state.length)

    def bytes_per_layer(self) -> list[dict[str, int]]:
        """Bytes of each layer's pools, by name."""
        names = ("window", "carry", "index_carry", "entries", "index")
        return [{n: getattr(x, n).nbytes for n in names if getattr(x, n) is not None} for x in self.layers]

    def _get(self, sequence: int) -> _Sequence:
        if sequence not in self._sequences:
            raise CacheError(f"sequence {sequence} is not open; allowed: {self.sequences}")
        return self._sequences[sequence]

    def _layer(self, ratio: int, sequences: int, entries: Form, index: Form, hidden: Form) -> LayerCache:
        config, device = self.config, self.device
        c, d, k = config.head_dim, config.hidden_size, config.index_head_dim
        window = Rows(sequences, self.window_ring, c, entries, device)
        if not ratio:
            return LayerCache(KINDS[ratio], window, None, None, None, None)
        ring, halves = self.carry_ring[ratio], 2 if ratio == 4 else 1
        per_block = self.block_tokens // ratio
        if self.carry_form == "hidden":
            carry, index_carry = Rows(sequences, ring, d, hidden, device), None
        else:
            carry = Rows(sequences, ring, 2 * halves * c, "fp32", device)
            index_carry = Rows(sequences, ring, 2 * halves * k, "fp32", device) if ratio == 4 else None
        return LayerCache(
            kind=KINDS[ratio],
            window=window,
            carry=carry,
            index_carry=index_carry,
            entries=Rows(self.blocks.count, per_block, c, entries, device),
            index=Rows(self.blocks.count, per_block, k, index, device) if ratio == 4 else None,
        )


def _check(sequences: int, tokens: int, block_tokens: int, entries: str, index: str, rewind: int, carry: str) -> None:
    checks = [
        ("sequences", sequences, sequences >= 1, "at least 1"),
        ("tokens", tokens, tokens >= 1, "at least 1"),
        ("block_tokens", block_tokens, block_tokens >= UNIT and block_tokens % UNIT == 0, f"a multiple of {UNIT}"),
        ("entries", entries, entries in FORMS["entries"], ", ".join(FORMS["entries"])),
        ("index", index, index in FORMS["index"], ", ".join(FORMS["index"])),
        ("rewind", rewind, rewind >= 0, "at least 0"),
        ("carry", carry, carry in CARRY, ", ".join(CARRY)),
    ]
    wrong = [f"{name}={value!r}; allowed: {allowed}" for name, value, right, allowed in checks if not right]
    if wrong:
        raise CacheError("; ".join(wrong))


__all__ = ["CARRY", "PLAIN", "Cache", "LayerCache"]
