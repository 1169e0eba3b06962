"""What kernels of a model share: the backend they run on, and weights in their layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from model.reference import GLOBAL_SCALE, Stored
from model.weights import Weight


class Packs:
    """Weights in the layouts of kernels, packed when they are first used and kept beside the originals, which oracles
    and reports still read."""

    def __init__(self) -> None:
        # The weights are held too: an id belongs to a living object.
        self._kept: dict[tuple[Any, ...], tuple[tuple[Weight, ...], Any]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are kept."""
        tensors = (t for _, packed in self._kept.values() for t in vars(packed).values())
        return sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))

    def get(self, layout: tuple[Any, ...], weights: tuple[Weight, ...], pack: Callable[[], Any]) -> Any:
        """The weights in a layout; `pack` makes it, once."""
        key = (*layout, *map(id, weights))
        if key not in self._kept:
            self._kept[key] = weights, pack()
        return self._kept[key][1]


class Bound:
    """The backend of a model's kernels, their packed weights, how inputs of linears are stored, and the global scale of
    those that are NVFP4, on the device."""

    def __init__(self, backend: Any, stored: Stored = "plain") -> None:
        self.backend, self.stored = backend, stored
        self.packs = Packs()
        self.global_scale = torch.full((), GLOBAL_SCALE, device=backend.device) if stored == "nvfp4" else None
