"""An asynchronous operation in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.errors import Where


@dataclass
class Operation:
    """One operation in flight. `channel` orders it: operations of one channel complete in order of issue (the tensor
    core's pipe), those without (None) in any. `signals` are the barriers it touches when it completes. `key` is the
    warp that issued it, counted over the cluster, and how many that warp had issued before: the same under every
    schedule."""

    number: int
    what: str
    complete: Callable[[int], None]
    where: Callable[[], Where]
    channel: Any = None
    signals: tuple[Any, ...] = ()
    done: bool = False
    key: tuple[int, int] = (0, 0)
