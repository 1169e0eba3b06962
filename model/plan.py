"""What one step does, decided on the host from plain integers: which tokens at which positions, where keys are read and
written, which windows become complete.

All of it is one array of int64 that goes to the device in one copy; the code of the step reads views of that copy and
nothing else, so the same launches serve any step of the same `shape_key` (a captured graph is replayed after `refill`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from model.cache import Cache

Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Emission:
    """Windows that a step completes in the layers of one ratio m; W of them, with S = m (HCA) or 2 m (CSA) slots each.

    tail [R]        carry rows that they need, from before the step
    fresh [C]       tokens of the step that they need, by row of the step
    positions [R+C] of those
    slots [W, S]    which of the R + C goes into each slot, -1 for none (before the first window)
    first [W]       position of each window's first token
    rows [W]        where its entry goes
    """

    tail: torch.Tensor
    fresh: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    first: torch.Tensor
    rows: torch.Tensor


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences with the same number of new tokens: rows start .. start + batch * tokens of the step.

    positions [B, T], key_positions [B, 127 + T] (below 0: nothing there), prior [B, 127] window rows of the positions
    before the step, blocks [B, n] tables. `selects`: whether any query sees more entries than the indexer keeps."""

    start: int
    batch: int
    tokens: int
    selects: bool
    positions: torch.Tensor
    key_positions: torch.Tensor
    prior: torch.Tensor
    blocks: torch.Tensor

    @property
    def rows(self) -> slice:
        """Its rows of the step."""
        return slice(self.start, self.start + self.batch * self.tokens)


@dataclass(frozen=True)
class Append:
    """Rows of a ring to be written, and the tokens of the step that go there (None: all of them, in order)."""

    rows: torch.Tensor
    keep: torch.Tensor | None


@dataclass(frozen=True)
class Plan:
    """One step over `count` tokens. `window`, `carry[m]`: what is kept; `emissions[m]`: what is completed, if anything.

    `last` [B]: row of each sequence's last token.
    """

    count: int
    sequences: tuple[int, ...]
    counts: tuple[int, ...]
    starts: tuple[int, ...]
    groups: tuple[Group, ...]
    positions: torch.Tensor
    last: torch.Tensor
    window: Append
    carry: dict[int, Append]
    emissions: dict[int, Emission]
    buffer: torch.Tensor = field(repr=False)
    shape_key: tuple[Any, ...] = field(repr=False)

    def refill(self, other: Plan) -> None:
        """Take over the numbers of another step of the same shape, in place: one copy."""
        if self.shape_key != other.shape_key:
            raise ValueError(f"plan: shape {other.shape_key}; allowed: {self.shape_key}")
        self.buffer.copy_(other.buffer, non_blocking=True)


class _Packer:
    """Collects arrays and hands out views of their one copy on the device."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def add(self, values: Any, *shape: int) -> int:
        array = np.asarray(values, dtype=np.int64)
        self.arrays.append(array.reshape(shape) if shape else array)
        return len(self.arrays) - 1

    def upload(self, device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
        host = np.concatenate([a.ravel() for a in self.arrays]) if self.arrays else np.zeros(0, np.int64)
        buffer = torch.from_numpy(host)
        if device.type != "cpu":
            buffer = buffer.pin_memory().to(device, non_blocking=True)
        views, at = [], 0
        for a in self.arrays:
            views.append(buffer[at : at + a.size].view(a.shape))
            at += a.size
        return buffer, views


def plan(
    cache: Cache,
    sequences: Sequence[int],
    counts: Sequence[int],
    starts: Sequence[int] | None = None,
    *,
    ratios: Sequence[int] | None = None,
    static: bool = False,
) -> Plan:
    """The plan of appending `counts` tokens to `sequences` at their lengths (or `starts`); blocks must be reserved.

    ratios   of the layers that will run; default: those of the configuration
    static   tables are padded to a power of two of blocks, so that steps of many lengths share one shape
    """
    starts = [cache.length(s) for s in sequences] if starts is None else list(starts)
    ratios = [r for r in (4, 128) if r in (cache.config.ratios if ratios is None else ratios)]
    pack = _Packer()
    first_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    positions = [np.arange(s, s + n) for s, n in zip(starts, counts, strict=True)]
    at = pack.add(np.concatenate(positions)), pack.add(first_rows[1:] - 1)
    window = _ring(pack, cache.window_ring, sequences, positions, first_rows)
    carry = {m: _ring(pack, cache.carry_ring[m], sequences, positions, first_rows) for m in ratios}
    emissions = {m: _emission(pack, cache, m, sequences, starts, counts, first_rows) for m in ratios}
    groups = _groups(pack, cache, sequences, starts, counts, first_rows, ratios, static)
    buffer, views = pack.upload(cache.device)
    return Plan(
        count=int(first_rows[-1]),
        sequences=tuple(sequences),
        counts=tuple(counts),
        starts=tuple(starts),
        groups=tuple(Group(*g[:4], *(views[i] for i in g[4:])) for g in groups),
        positions=views[at[0]],
        last=views[at[1]],
        window=_append(window, views),
        carry={m: _append(a, views) for m, a in carry.items()},
        emissions={m: Emission(*(views[i] for i in e)) for m, e in emissions.items() if e is not None},
        buffer=buffer,
        shape_key=(*(a.shape for a in pack.arrays), *(g[:4] for g in groups), *(m for m in ratios if emissions[m])),
    )


def _append(indices: tuple[int, int | None], views: list[torch.Tensor]) -> Append:
    rows, keep = indices
    return Append(views[rows], None if keep is None else views[keep])


def _ring(
    pack: _Packer, ring: int, sequences: Sequence[int], positions: list[Array], first_rows: Array
) -> tuple[int, int | None]:
    """Ring rows of the last `ring` tokens of each sequence; older ones of the same step would only be overwritten."""
    kept = [p[-ring:] for p in positions]
    rows = np.concatenate([s * ring + p % ring for s, p in zip(sequences, kept, strict=True)])
    if all(len(k) == len(p) for k, p in zip(kept, positions, strict=True)):
        return pack.add(rows), None
    keep = [np.arange(stop - len(k), stop) for k, stop in zip(kept, first_rows[1:], strict=True)]
    return pack.add(rows), pack.add(np.concatenate(keep))


def _emission(
    pack: _Packer,
    cache: Cache,
    m: int,
    sequences: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    first_rows: Array,
) -> tuple[int, ...] | None:
    """Where everything is that the windows completed by this step are made of."""
    ring, slots_each = cache.carry_ring[m], 2 * m if m == 4 else m
    per_block = cache.block_tokens // m
    tails: list[Array] = []
    fresh: list[Array] = []
    windows: list[tuple[int, Array]] = []  # sequence in the step, window numbers
    for i, (start, n) in enumerate(zip(starts, counts, strict=True)):
        done = np.arange(start // m, (start + n) // m)
        if len(done):
            windows.append((i, done))
    if not windows:
        return None
    slots, firsts, rows, tail_positions, fresh_positions = [], [], [], [], []
    for i, done in windows:
        start, low = starts[i], max(0, (int(done[0]) + 1) * m - slots_each)
        high = (int(done[-1]) + 1) * m
        before, after = np.arange(low, max(start, low)), np.arange(max(start, low), high)
        tails.append(sequences[i] * ring + before % ring)
        fresh.append(first_rows[i] + after - start)
        tail_positions.append(before)
        fresh_positions.append(after)
        table = np.asarray(cache.table(sequences[i]), dtype=np.int64)
        firsts.append(done * m)
        rows.append(table[done // per_block] * per_block + done % per_block)
    tail_count = sum(len(t) for t in tails)
    tail_at, fresh_at = 0, tail_count
    for (_, done), before, after in zip(windows, tail_positions, fresh_positions, strict=True):
        wanted = (done[:, None] + 1) * m - slots_each + np.arange(slots_each)  # positions [w, S]
        low, middle = (before if len(before) else after)[0], after[0]
        place = np.where(wanted < middle, tail_at + wanted - low, fresh_at + wanted - middle)
        slots.append(np.where(wanted < 0, -1, place))
        tail_at, fresh_at = tail_at + len(before), fresh_at + len(after)
    return (
        pack.add(np.concatenate(tails)),
        pack.add(np.concatenate(fresh)),
        pack.add(np.concatenate([*tail_positions, *fresh_positions])),
        pack.add(np.concatenate(slots)),
        pack.add(np.concatenate(firsts)),
        pack.add(np.concatenate(rows)),
    )


def _groups(
    pack: _Packer,
    cache: Cache,
    sequences: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    first_rows: Array,
    ratios: Sequence[int],
    static: bool,
) -> list[tuple[Any, ...]]:
    """Runs of sequences with equal counts."""
    result: list[tuple[Any, ...]] = []
    begin = 0
    for end in range(1, len(counts) + 1):
        if end < len(counts) and counts[end] == counts[begin]:
            continue
        members = range(begin, end)
        tokens = counts[begin]
        if tokens:
            result.append(
                _group(
                    pack,
                    cache,
                    [sequences[i] for i in members],
                    [starts[i] for i in members],
                    tokens,
                    int(first_rows[begin]),
                    ratios,
                    static,
                )
            )
        begin = end
    return result


def _group(
    pack: _Packer,
    cache: Cache,
    sequences: list[int],
    starts: list[int],
    tokens: int,
    row: int,
    ratios: Sequence[int],
    static: bool,
) -> tuple[Any, ...]:
    batch, ring, reach = len(sequences), cache.window_ring, cache.config.sliding_window - 1
    base = np.asarray(starts, dtype=np.int64)[:, None]
    prior = base + np.arange(-reach, 0)
    rows = np.asarray(sequences, dtype=np.int64)[:, None] * ring + np.maximum(prior, 0) % ring
    blocks = max(-(-(s + tokens) // cache.block_tokens) for s in starts) if ratios else 0
    blocks = 1 << (blocks - 1).bit_length() if static and blocks else blocks
    tables = np.zeros((batch, blocks), dtype=np.int64)
    if ratios:
        for i, s in enumerate(sequences):
            table = cache.table(s)[:blocks]
            tables[i, : len(table)] = table
    selects = (max(starts) + tokens) // 4 > cache.config.index_topk
    return (
        row,
        batch,
        tokens,
        selects,
        pack.add(base + np.arange(tokens)),
        pack.add(base + np.arange(-reach, tokens)),
        pack.add(rows),
        pack.add(tables),
    )
