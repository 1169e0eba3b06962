"""Tensor memory of one CTA over a run: values, who wrote each word, and which words went through other threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.memory.tmem import COLUMNS, LANES, POISON
from emulator.views.labels import ViewError

WORDS = LANES * COLUMNS
JOURNAL_BYTES = 256 << 20
"""Changes that are kept for looking back; beyond that the oldest are folded into the first state."""


@dataclass(frozen=True)
class Writer:
    """Who wrote a word: `kind` mma, st or cp, the warp that issued it, and the static instruction."""

    kind: str
    warp: int
    index: int


@dataclass(frozen=True, eq=False)
class State:
    """Tensor memory at one moment. [128 lanes, 512 columns] each: `words` uint32; `writer` int16, an index into
    `writers` or -1 for never written since it was allocated; `moved` bool: stored by another thread than the one that
    had loaded the word (a round trip that is not the identity), and not written anew since."""

    step: int
    words: NDArray[np.uint32]
    writer: NDArray[np.int16]
    moved: NDArray[np.bool_]
    writers: tuple[Writer, ...]
    allocated: tuple[tuple[int, int], ...] = ()

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Written since it was allocated."""
        return self.writer >= 0


@dataclass(frozen=True, eq=False)
class _Change:
    """`where` int32 [n] flat words; `writer` -1 undefines them; `moved` bool [n], or None to leave as it is."""

    step: int
    where: NDArray[np.int32]
    words: NDArray[np.uint32]
    writer: int
    moved: NDArray[np.bool_] | None


@dataclass
class TensorHistory:
    """The journal of one CTA's tensor memory. `allocations`: (step, column, columns, released)."""

    writers: list[Writer] = field(default_factory=list)
    allocations: list[tuple[int, int, int, bool]] = field(default_factory=list)
    trips: dict[tuple[int, int], int] = field(default_factory=dict)
    """(static tcgen05.ld, static tcgen05.st) → words that the store moved to other threads' words."""

    def __post_init__(self) -> None:
        self._first = _blank()
        self._from = 0
        self._changes: list[_Change] = []
        self._bytes = 0
        self._now = np.full(WORDS, POISON, np.uint32)
        self._loader = np.full(WORDS, -1, np.int32)
        self._load_index = np.full(WORDS, -1, np.int32)

    def begin(self, step: int, parts: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]) -> None:
        """Start from a state: flat words uint32, writer int16, moved bool."""
        self._first, self._from = parts, step
        self._now = parts[0].copy()

    # ---------------------------------------------------------------- recording
    def allocate(self, step: int, column: int, columns: int, release: bool) -> None:
        """Columns change hands; what a new owner has not written is undefined."""
        self.allocations.append((step, column, columns, release))
        if not release:
            where = _columns(column, columns)
            self._add(_Change(step, where, self._now[where], -1, np.zeros(where.size, bool)))

    def load(self, where: NDArray[Any], threads: NDArray[Any], index: int) -> None:
        """tcgen05.ld of flat words `where` by `threads`, both int [n]."""
        self._loader[where] = threads
        self._load_index[where] = index

    def write(
        self,
        step: int,
        words: NDArray[np.uint32],
        writer: Writer,
        where: NDArray[Any] | None,
        threads: NDArray[Any] | None = None,
        fresh: bool = False,
    ) -> None:
        """`writer` has written: `words` is tensor memory after it, `where` the flat words if they are known (else those
        that changed); `threads` int [n] for tcgen05.st. `fresh`: what was there before no longer matters."""
        flat = words.reshape(-1)
        if where is None:
            where = np.flatnonzero(flat != self._now)
        if not where.size:
            return
        where = where.astype(np.int32)
        if writer not in self.writers:
            self.writers.append(writer)
        moved: NDArray[np.bool_] | None = np.zeros(where.size, bool) if fresh else None
        if threads is not None:
            loaders = self._loader[where]
            moved = (loaders >= 0) & (loaders != threads)
            self._note_trips(where[moved], writer.index)
        self._loader[where] = -1
        self._now[where] = flat[where]
        self._add(_Change(step, where, flat[where].copy(), self.writers.index(writer), moved))

    def _note_trips(self, where: NDArray[np.int32], store: int) -> None:
        for load, count in zip(*np.unique(self._load_index[where], return_counts=True), strict=True):
            key = (int(load), store)
            self.trips[key] = self.trips.get(key, 0) + int(count)

    def _add(self, change: _Change) -> None:
        self._changes.append(change)
        self._bytes += 8 * change.where.size
        while self._bytes > JOURNAL_BYTES:
            old = self._changes.pop(0)
            _apply(self._first, old)
            self._from = old.step
            self._bytes -= 8 * old.where.size

    # ---------------------------------------------------------------- looking back
    @property
    def steps(self) -> list[int]:
        """Moments at which something changed."""
        return sorted({change.step for change in self._changes})

    def at(self, step: int | None = None) -> State:
        """The state after everything up to `step`; by default the last one. Raises ViewError for a moment before what
        is kept."""
        if step is not None and step < self._from:
            raise ViewError(f"step={step}: tensor memory is kept from step {self._from} on")
        parts = tuple(a.copy() for a in self._first)
        until = max((c.step for c in self._changes), default=self._from) if step is None else step
        for change in self._changes:
            if change.step > until:
                break
            _apply(parts, change)
        words, writer, moved = (a.reshape(LANES, COLUMNS) for a in parts)
        held: dict[int, int] = {}
        for when, column, columns, release in self.allocations:
            if step is None and release:
                continue  # the last state is that before tensor memory was given back
            if step is None or when <= step:
                held.pop(column, None) if release else held.update({column: columns})
        return State(until, words, writer, moved, tuple(self.writers), tuple(sorted(held.items())))


def _blank() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return np.full(WORDS, POISON, np.uint32), np.full(WORDS, -1, np.int16), np.zeros(WORDS, bool)


def _apply(parts: tuple[NDArray[Any], ...], change: _Change) -> None:
    words, writer, moved = parts
    words[change.where] = change.words
    writer[change.where] = change.writer
    if change.moved is not None:
        moved[change.where] = change.moved


def _columns(column: int, columns: int) -> NDArray[np.int32]:
    return (np.arange(LANES)[:, None] * COLUMNS + np.arange(column, column + columns)).ravel().astype(np.int32)


def flat(addresses: NDArray[Any]) -> NDArray[np.int64]:
    """Flat word numbers of tensor-memory addresses (lane << 16 | column) of any shape."""
    where = np.asarray(addresses).astype(np.int64)
    return ((where >> 16) * COLUMNS + (where & 0xFFFF)).ravel()
