"""One backend as the judge sees it: settings, counters, and what was compiled and launched.

Imports torch, and cutlass through the backend: only worker processes import this module.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping
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

    def set_policy(self, policy: str) -> None:
        """From now on complete asynchronous operations by `policy` (no effect on a GPU)."""
        if self.emulated:
            self.backend.policy = policy

    def to_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs where kernels can reach them; on the emulator that is where they are."""
        return {name: t.to(self.backend.device) for name, t in tensors.items()}

    def begin(self) -> None:
        """A run begins: launches are those from now on."""
        self.launches.clear()

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
            result = launch(*args, **kwargs)
            self.launches += getattr(self.backend, "last_launches", ())
            return result

        self.backend.compile, self.backend.launch = observed_compile, observed_launch

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
