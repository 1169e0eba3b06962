"""Special registers and addresses of variables, which native code reads from a buffer of its warp.

Most are the same in every CTA for warps of one index, so the first such warp of a launch leaves a copy for the others,
and only what depends on the CTA is filled in for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emulator.builders.llvm_values import LANES

Places = Mapping[tuple[str, str], int]

_OF_CTA = ("ctaid.", "cluster_ctaid.", "clusterid.", "smid", "cluster_ctarank")
"""Special registers that depend on the CTA; so do the addresses of shared and local variables."""


class Constants:
    """Fills the buffers of a launch's warps: 32 lanes of u32 for special registers, of u64 for addresses."""

    def __init__(self, places: Places, spaces: Mapping[str, tuple[str, int]]) -> None:
        self.nbytes = 8 * LANES * len(places)
        self._places = places
        self._varying = [
            (kind, name, offset)
            for (kind, name), offset in places.items()
            if (name.startswith(_OF_CTA) if kind == "special" else spaces[name][0] in ("shared", "local", "param"))
        ]
        self._copies: dict[int, np.ndarray] = {}

    def fill(self, warp: Any, buffer: np.ndarray) -> None:
        """Write a warp's constants to `nbytes` bytes."""
        copy = self._copies.get(warp.index)
        if copy is None:
            for (kind, name), offset in self._places.items():
                self._put(warp, buffer, kind, name, offset)
            self._copies[warp.index] = buffer.copy()
            return
        buffer[:] = copy
        words = buffer.view(np.uint32)
        for kind, name, offset in self._varying:
            if kind == "special":
                words[offset // 4 : offset // 4 + LANES] = warp.cta.scalar(name, warp.index)
            else:
                self._put(warp, buffer, kind, name, offset)

    @staticmethod
    def _put(warp: Any, buffer: np.ndarray, kind: str, name: str, offset: int) -> None:
        if kind == "special":
            buffer[offset : offset + 4 * LANES].view(np.uint32)[:] = warp.special(name)
        else:
            buffer[offset : offset + 8 * LANES].view(np.uint64)[:] = warp.symbol(name, np.uint64)
