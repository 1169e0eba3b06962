"""What a handler may ask of the warp that executes it. The machine implements it; `isa` does not import the machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from emulator.errors import IllegalInstruction

EVERYBODY = np.full(32, 0xFFFFFFFF, np.uint32)
"""A member mask that names all lanes."""


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
    cluster_arrivals: np.ndarray
    cluster_waits: np.ndarray
    slept: int

    def converge(self, mask: np.ndarray, members: np.ndarray) -> bool | None:
        """True when the live lanes of `members` execute together, None when the warp must wait."""

    def wait(self, reason: str, what: Any) -> Any:
        """Note the reason for waiting; the answer is always None, which makes a handler wait."""

    def progress(self) -> None:
        """State changed that others may wait for."""

    def shared(self, addresses: np.ndarray) -> np.ndarray:
        """Addresses as u32 shared::cluster addresses."""

    def get_register(self, slot: int) -> np.ndarray:
        """The raw lanes of a register as it is in the register file; not to be changed in place."""

    def set_register(self, slot: int, lanes: np.ndarray) -> None:
        """Write all lanes of a register behind the back of the running block."""

    def get_registers(self, slots: tuple[int, ...]) -> np.ndarray:
        """Several 32-bit registers: uint32 [n, 32]."""

    def set_registers(self, slots: tuple[int, ...], values: np.ndarray) -> None:
        """Write several 32-bit registers, uint32 [n, 32]."""


def ballot(mask: np.ndarray) -> int:
    """A bool[32] as a 32-bit integer, lane 0 lowest."""
    return int(np.packbits(mask, bitorder="little").view(np.uint32)[0])


def word_of(lanes: Iterable[int]) -> int:
    """Lane numbers as a 32-bit word, lane 0 lowest."""
    return sum(1 << lane for lane in lanes)


@lru_cache(1024)
def _numbers(mask: bytes) -> tuple[int, ...]:
    return tuple(lane for lane, executes in enumerate(mask) if executes)


def lanes_in(mask: np.ndarray) -> tuple[int, ...]:
    """The numbers of the executing lanes, lowest first."""
    return _numbers(mask.tobytes())


def alike(values: np.ndarray, mask: np.ndarray) -> bool:
    """Whether all executing lanes hold the same value."""
    lanes = lanes_in(mask)
    raw = (values if len(lanes) == values.size else values[mask]).tobytes()
    return raw == raw[: values.itemsize] * len(lanes)


def first_lane(mask: np.ndarray) -> int:
    """The lowest executing lane."""
    return int(mask.argmax())


def multicast_ranks(warp: WarpLike, mask: int) -> list[int]:
    """The CTAs that a multicast mask names. One beyond the cluster is an error (CUDA error 719 on an H200)."""
    count = len(warp.cluster.ctas)
    if mask >> count:
        raise IllegalInstruction(f"multicast mask {mask:#x} names CTAs beyond the cluster of {count}")
    return [rank for rank in range(count) if mask >> rank & 1]


def whole_warp(warp: WarpLike, mask: np.ndarray, what: str) -> bool | None:
    """True when all 32 lanes execute `what` together, None while live ones are missing. Lanes that have ended, or that
    the block does not have, can never come: IllegalInstruction."""
    if warp.converge(mask, EVERYBODY) is None:
        return None
    if not mask.all():
        raise IllegalInstruction(f"{what}: lanes {np.flatnonzero(~mask).tolist()} do not execute it; all 32 must")
    return True
