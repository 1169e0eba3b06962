"""One backend as the judge sees it: settings, counters, and what was compiled and launched.

Imports torch, and cutlass through the backend: only worker processes import this module.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gate.job import COMPILER_ARCH


class Device:
    """A backend under observation.

    `step` is called with `compile` when a compile begins and with `run` when it has ended, so that an exception or a
    hang is known to belong to the one or the other. `cache`: a folder for compiled kernels instead of the usual one.
    """

    def __init__(self, on: str, arch: str, step: Callable[[str], None], cache: Path | None = None) -> None:
        backends: Any = importlib.import_module("backends")
        self.backend: Any = backends.get(on, arch=COMPILER_ARCH[arch])
        if cache is not None:
            self.backend.cache = type(self.backend.cache)(cache)
        self.emulated = self.backend.name == "emulated"
        self.compiled: dict[str, Any] = {}
        self.compile_seconds = 0.0
        self.built = 0
        self.launches: list[Any] = []
        self.schedules: list[Any] = []
        self._step = step
        self._observe()

    @property
    def evidence(self) -> str:
        """What a result from here is obtained on."""
        return str(self.backend.evidence)

    @property
    def policies(self) -> tuple[str, ...]:
        """Completion policies that a kernel must give the same bits under; a GPU has its own."""
        return ("in_order", "latest") if self.emulated else ()

    def set_policy(self, policy: str, seed: int = 0, schedules: Sequence[Any] = ()) -> None:
        """From now on schedule by `policy`: `random` takes `seed`, `replay` one of `schedules` for each launch; no
        effect on a GPU."""
        if self.emulated:
            self.backend.policy, self.backend.seed, self.backend.schedules = policy, seed, list(schedules)

    @contextmanager
    def bounded(self, watchdog: int) -> Iterator[None]:
        """Inside, a launch may execute this many warp-instructions."""
        before, self.backend.watchdog = getattr(self.backend, "watchdog", None), watchdog
        try:
            yield
        finally:
            self.backend.watchdog = before

    @contextmanager
    def listening(self, listener: Callable[[Any], None]) -> Iterator[None]:
        """Inside, the listener hears of every step."""
        before = self.backend.listeners
        self.backend.listeners = (*before, listener)
        try:
            yield
        finally:
            self.backend.listeners = before

    def to_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs where kernels can reach them; on the emulator that is where they are."""
        return {name: t.to(self.backend.device) for name, t in tensors.items()}

    def begin(self) -> None:
        """A run begins: launches and schedules are those from now on."""
        self.launches.clear()
        self.schedules.clear()

    def _observe(self) -> None:
        compile_, launch = self.backend.compile, self.backend.launch

        def observed_compile(*args: Any, **kwargs: Any) -> Any:
            self._step("compile")
            compiled = compile_(*args, **kwargs)
            self._step("run")
            if compiled.key not in self.compiled:
                self.compile_seconds += compiled.seconds
                self.built += compiled.origin == "built"
            self.compiled[compiled.key] = compiled
            return compiled

        def observed_launch(*args: Any, **kwargs: Any) -> Any:
            try:
                result = launch(*args, **kwargs)
            except Exception as error:
                self._decided(getattr(error, "schedule", None))
                raise
            self.launches += getattr(self.backend, "last_launches", ())
            self._decided()
            return result

        self.backend.compile, self.backend.launch = observed_compile, observed_launch

    def _decided(self, *last: Any) -> None:
        """Note the schedules of the latest launches; `last` is of one that failed."""
        own = [getattr(launch, "schedule", None) for launch in getattr(self.backend, "last_launches", ())]
        self.schedules += [schedule for schedule in (*own, *last) if schedule is not None]

    def cost(self) -> dict[str, Any]:
        """What the launches since `begin` took: exact counts on the emulator, ptxas's figures everywhere."""
        cost: dict[str, Any] = {}
        if self.launches:
            by_warp: dict[str, int] = {}
            for launch in self.launches:
                for warp, count in launch.by_warp.items():
                    by_warp[str(warp)] = by_warp.get(str(warp), 0) + count
            cost["instructions"] = sum(launch.instructions for launch in self.launches)
            cost["by_warp"] = by_warp
        cost.update(self.resources())
        return cost

    def resources(self) -> dict[str, int]:
        """The most that any kernel takes; `smem_bytes` is static and, where known, dynamic shared memory."""
        found = [r for compiled in self.compiled.values() for r in compiled.resources.values()]
        if not found:
            return {}
        dynamic = [launch.shared_bytes for launch in self.launches]
        return {
            "registers": max(r.registers for r in found),
            "spill_bytes": max(r.spill_stores + r.spill_loads for r in found),
            "smem_bytes": max(r.shared for r in found) + max(dynamic, default=0),
        }


class TensorMemoryWatch:
    """A listener of the emulator that knows the most tensor-memory columns any CTA held at once."""

    def __init__(self) -> None:
        self.most = 0
        self._held: dict[tuple[Any, int], int] = {}

    def __call__(self, record: Any) -> None:
        if type(record).__name__ == "TensorAllocation":
            key = (record.who.cta, record.rank)
            self._held[key] = self._held.get(key, 0) + (-record.columns if record.release else record.columns)
            self.most = max(self.most, self._held[key])


def live_bytes(device: torch.device) -> int:
    """Bytes of all tensors alive on `device` (every storage once)."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    gc.collect()
    storages: dict[int, int] = {}
    for item in gc.get_objects():
        if type(item) is Tensor and item.device.type == "cpu":
            storage = item.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def storage_bytes(tensor: Tensor) -> Tensor:
    """The whole storage behind a tensor as uint8, padding between its elements included."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
