"""Flags in memory: what strong writes (volatile, relaxed, release, atomics) tell those who read them."""

from __future__ import annotations

from typing import Any

from emulator.events import Access
from emulator.watch.agents import WarpState
from emulator.watch.clocks import AFTER, Knowledge
from emulator.watch.sites import Strength


class Flags:
    """By place: what its last write released. Clusters have agents of their own, so a message says what is known of
    each cluster (`Knowledge.others`)."""

    def __init__(self) -> None:
        self._told: dict[tuple[Any, ...], Knowledge] = {}

    def access(self, warp: WarpState, record: Access, word: int, strength: Strength) -> None:
        """A strong access by the lanes of `word`. Without an acquire of its own a read counts at the next fence;
        without a release, a write tells what stood before the last one."""
        clock = warp.clock
        keys = [_place(warp, record, a) for a in record.addresses.ravel().tolist()]
        if record.kind != "write":
            for told in [self._told[k] for k in keys if k in self._told]:
                if strength.acquire:
                    clock.acquire(word, _as_seen(told, warp))
                else:
                    clock.hear(_as_seen(told, warp))
        if record.kind != "read":
            released = clock.release(word) if strength.release else clock.fenced
            for k in keys:
                self._leave(k, released, warp, record.kind == "write")

    def _leave(self, key: tuple[Any, ...], released: Knowledge | None, warp: WarpState, replace: bool) -> None:
        """A plain write ends what was told before; a read-modify-write goes on with it."""
        if released is None:
            if replace:
                self._told.pop(key, None)
            return
        message = Knowledge(1)
        message.others = dict(released.others)
        message.learn_cluster(warp.cluster.number, released)
        if not replace and key in self._told:
            message.join(self._told[key])
        self._told[key] = message


def _place(warp: WarpState, record: Access, address: int) -> tuple[Any, ...]:
    if record.space == "global":
        return ("global", address)
    return ("shared", warp.cluster.number, record.rank, address)


def _as_seen(told: Knowledge, warp: WarpState) -> Knowledge:
    """A message as a warp of one cluster reads it."""
    seen = Knowledge(warp.cluster.size)
    for cluster, known in told.others.items():
        if cluster == warp.cluster.number:
            seen.join(known)
            seen.rows[AFTER] = 0
        else:
            seen.others[cluster] = known
    return seen
