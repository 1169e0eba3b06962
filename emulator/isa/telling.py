"""How handlers tell listeners what they do. Callers ask `warp.bus.on` first: an unwatched run builds no record."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.events import GROUPS, Access, Synchronise
from emulator.isa.warplike import WarpLike, ballot

ALL_LANES = 0xFFFFFFFF


def tell_access(
    warp: WarpLike,
    space: str,
    kind: str,
    addresses: np.ndarray,
    nbytes: int,
    rank: int = 0,
    lanes: np.ndarray | None = None,
    proxy: str = "generic",
) -> None:
    """An access by the warp's own instruction."""
    warp.bus.publish(Access(warp.id, space, kind, proxy, addresses, nbytes, rank, -1, warp.at, lanes))


def tell_operation(
    warp: WarpLike,
    number: int,
    space: str,
    kind: str,
    addresses: np.ndarray,
    nbytes: int,
    rank: int = 0,
    proxy: str = "async",
    lanes: np.ndarray | None = None,
) -> None:
    """An access by an asynchronous operation of the warp that completes."""
    warp.bus.publish(Access(warp.id, space, kind, proxy, addresses, nbytes, rank, number, -1, lanes))


def tell_step(
    warp: WarpLike,
    what: str,
    key: tuple[int, int],
    *detail: int,
    mask: np.ndarray | None = None,
    lanes: int = ALL_LANES,
    operation: int = -1,
    phase: int = -1,
    ended: bool = False,
) -> None:
    """A synchronising step of the lanes of `mask` (or of the word `lanes`), or of an operation that completes."""
    word = lanes if mask is None else ballot(mask)
    at = warp.at if operation < 0 else -1
    warp.bus.publish(Synchronise(warp.id, what, key, detail, word, operation, at, phase, ended))


def tell_group(warp: WarpLike, mask: np.ndarray, what: str, kind: str, *detail: int) -> None:
    """A step of the commit groups of a kind."""
    tell_step(warp, what, (warp.cta.rank, warp.index), GROUPS[kind], *detail, mask=mask)


def tell_signal(warp: WarpLike, number: int, what: str, key: tuple[int, int], barrier: Any, amount: int) -> None:
    """Let an operation signal an mbarrier, `complete_tx` of `amount` bytes or `arrive` of `amount`, and tell."""
    before = barrier.completions
    (barrier.complete_tx if what == "complete_tx" else barrier.arrive)(amount)
    if warp.bus.on:
        ended = barrier.completions != before
        tell_step(warp, f"mbarrier.{what}", key, amount, operation=number, phase=before, ended=ended)
