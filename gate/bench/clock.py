"""What times calls: an interface narrow enough for tests to stand in for it, and the GPU behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from gate.bench import timing
from gate.bench.timing import Sample

_LEAST_FP8_TOKENS = 16


class Clock(Protocol):
    """Times on one device."""

    device: torch.device

    def sample(self, calls: Sequence[Callable[[], Any]]) -> Sample:
        """All calls in turn, with nothing in L2 at the start."""

    def read_us(self, moved: int) -> float:
        """A cold read of `moved` bytes by a plain kernel."""

    def copy_us(self, moved: int) -> float:
        """A copy that reads and writes `moved` bytes in all."""

    def copy_rate(self) -> float:
        """Bytes a second that a large copy reads and writes."""

    def products_us(self, kind: str, m: int, n: int, k: int, groups: int) -> dict[str, float]:
        """torch's own products x w^T of these sizes, by their name: x (m, k) and w (n, k), or for `grouped` as many
        of them as there are groups."""


class GpuClock:
    """torch's current GPU. What is asked for twice is measured once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._evict = timing.evictor(device)
        self._known: dict[tuple[Any, ...], Any] = {}

    def sample(self, calls: Sequence[Callable[[], Any]]) -> Sample:
        """25 replays of one CUDA graph."""
        return timing.sample(calls, evict=self._evict)

    def read_us(self, moved: int) -> float:
        """The best of a few forms."""
        return float(self._once(("read", moved), lambda: self._read(moved)))

    def copy_us(self, moved: int) -> float:
        """torch's `copy_` in a graph."""
        return float(self._once(("copy", moved), lambda: self.sample(timing.copies(moved)).us))

    def copy_rate(self) -> float:
        """torch's `copy_` of 2 GiB."""
        return float(self._once(("rate",), timing.copy_rate))

    def products_us(self, kind: str, m: int, n: int, k: int, groups: int) -> dict[str, float]:
        """cuBLAS in BF16 and, not grouped, torch._scaled_mm in FP8 (of 16 tokens at least)."""
        found = self._once((kind, m, n, k, groups), lambda: self._products(kind, m, n, k, groups))
        return dict(found)

    def _once(self, key: tuple[Any, ...], measure: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = measure()
        return self._known[key]

    def _read(self, moved: int) -> float:
        from gate.bench import reads

        sets = [
            torch.empty(-(-moved // 4) * 4, dtype=torch.uint8, device=self.device).random_()
            for _ in range(timing.sets_for(moved))
        ]
        forms = reads.calls(sets)
        turns = timing.calls_for(moved)
        return min(self.sample([form[i % len(form)] for i in range(turns)]).us for form in forms)

    def _products(self, kind: str, m: int, n: int, k: int, groups: int) -> dict[str, float]:
        if kind == "grouped":
            x = self._random(groups, m, k)
            return {"cuBLAS bf16": self._rotated(lambda w: torch.bmm(x, w.mT), self._weights(2, groups, n, k))}
        x = self._random(m, k)
        bf16 = self._rotated(lambda w: torch.mm(x, w.T), self._weights(2, n, k))
        if n % 16 or k % 16:
            return {"cuBLAS bf16": bf16}
        x8, one = self._random(max(m, _LEAST_FP8_TOKENS), k).to(torch.float8_e4m3fn), torch.ones((), device=self.device)
        narrow = [w.to(torch.float8_e4m3fn) for w in self._weights(1, n, k)]
        fp8 = self._rotated(lambda w: torch._scaled_mm(x8, w.T, one, one, out_dtype=torch.bfloat16), narrow)
        return {"cuBLAS bf16": bf16, "scaled_mm fp8": fp8}

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16)

    def _weights(self, width: int, *shape: int) -> list[torch.Tensor]:
        """BF16 weights, as many as make enough sets when an element is `width` bytes."""
        size = width * torch.Size(shape).numel()
        first = self._random(*shape)
        return [first, *(first.clone() for _ in range(timing.sets_for(size) - 1))]

    def _rotated(self, call: Callable[[torch.Tensor], Any], weights: list[torch.Tensor]) -> float:
        calls = [partial(call, weight) for weight in weights]
        turns = max(timing.CALLS, len(calls))
        return self.sample([calls[i % len(calls)] for i in range(turns)]).us
