"""What a handler may ask of the warp that executes it. The machine implements it; `isa` does not import the machine."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class WarpLike(Protocol):
    """The face of `machine.warp.Warp`."""

    cta: Any
    cluster: Any
    memory: Any
    bus: Any
    id: Any
    index: int
    at: int
    live: np.ndarray
    arrived: dict[Any, int]
    give_up: bool
    yielding: bool
    async_groups: Any
    cluster_arrivals: int
    cluster_waits: int

    def converge(self, mask: np.ndarray, members: np.ndarray) -> bool | None:
        """True when the live lanes of `members` execute together, None when the warp must wait."""

    def wait(self, reason: str, what: Any) -> Any:
        """Note the reason for waiting; the answer is always None, which makes a handler wait."""

    def progress(self) -> None:
        """State changed that others may wait for."""

    def shared(self, addresses: np.ndarray) -> np.ndarray:
        """Addresses as u32 shared::cluster addresses."""


def ballot(mask: np.ndarray) -> int:
    """A bool[32] as a 32-bit integer, lane 0 lowest."""
    return int(np.packbits(mask, bitorder="little").view(np.uint32)[0])


def first_lane(mask: np.ndarray) -> int:
    """The lowest executing lane."""
    return int(mask.argmax())
