"""A backend for tests of the judge: "kernels" are Python callables on CPU tensors; it counts what they say they do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass
class Counters:
    """Same names as the real ones."""

    kernels: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    sync_calls: list[str] = field(default_factory=list)
    compiles: int = 0
    peak_bytes: int = 0

    @property
    def launches(self) -> int:
        return len(self.kernels) + len(self.operations)

    @property
    def syncs(self) -> int:
        return len(self.sync_calls)


@dataclass(frozen=True)
class Resources:
    """ptxas's figures of a kernel."""

    registers: int = 64
    shared: int = 1024
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True)
class Compiled:
    """A named callable."""

    name: str
    function: Any
    key: str
    origin: str
    seconds: float = 0.01
    ptx: str = ".version 8.8\n// a kernel\n"
    resources: dict[str, Resources] = field(default_factory=lambda: {"kernel": Resources()})


@dataclass(frozen=True)
class Launch:
    """What the emulator reports of a launch."""

    instructions: int
    by_warp: dict[int, int]
    shared_bytes: int = 2048


class Backend:
    """Has the attributes that the judge and host functions use."""

    name = "emulated"
    device = torch.device("cpu")

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.policy = "in_order"
        self.cache = Path("usual")
        self.listeners: list[Any] = []
        self.last_launches: list[Launch] = []
        self.counters = Counters()
        self._known: set[str] = set()

    @property
    def evidence(self) -> str:
        return f"emulated {self.arch}"

    def compile(self, function: Any, *, name: str) -> Compiled:
        if name == "does_not_compile":
            raise TypeError("expected a layout of rank 2, got rank 3")
        key = hashlib.sha256(name.encode()).hexdigest()
        built = key not in self._known
        self._known.add(key)
        self.counters.compiles += built
        return Compiled(name, function, key, "built" if built else "memory")

    def launch(self, compiled: Compiled, *args: Any) -> None:
        self.counters.kernels.append(compiled.name)
        self.last_launches = [Launch(1000, {0: 100, 1: 900})]
        compiled.function(*args)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        tensor.view(torch.uint8).fill_(0xFF)
        self.counters.peak_bytes += tensor.nbytes
        return tensor

    @contextmanager
    def count(self) -> Iterator[Counters]:
        self.counters = Counters()
        yield self.counters


def get(name: str, arch: str) -> Backend:
    """The fake backend, whatever the name."""
    if (Path(__file__).parent / "broken").exists():
        raise RuntimeError("no C++ compiler found (g++ or clang++)")
    return Backend(arch)
