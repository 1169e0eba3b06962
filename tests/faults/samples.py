"""Kernels into which faults are planted: inputs, right outputs, and the one launch, recorded so that it can be replayed
with other PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import emulator
from backends.emulation import EmulatedBackend
from emulator.memory.globals import GlobalMemory

Tensors = dict[str, torch.Tensor]
Call = Callable[[EmulatedBackend, Tensors], Tensors]
"""Compiles a kernel, launches it once on copies of the given inputs, gives every tensor that it was given."""


@dataclass(frozen=True)
class Sample:
    """A kernel, its inputs and its oracle, which gives the outputs in float64. `limit` bounds the absolute error."""

    name: str
    arch: str
    about: str
    call: Call
    inputs: Callable[[torch.Generator], Tensors]
    oracle: Callable[[Tensors], Tensors]
    limit: float = 1e-6


@dataclass
class Prepared:
    """A compiled sample with its launch."""

    sample: Sample
    ptx: str
    entry: str
    launch: dict[str, Any]
    tensors: Tensors
    expected: Tensors

    def run(self, module: Any, **settings: Any) -> Any:
        """Launch a parsed `module` in place of the kernel's own, on poisoned outputs. Raises the emulator's errors."""
        for name in self.expected:
            self.tensors[name].view(-1).view(torch.uint8).fill_(0xFF)
        return emulator.run(module, self.entry, **self.launch, **settings)

    def right(self) -> bool:
        """Whether the latest run left the right values. An infinity is right where the oracle has it."""
        for name, wanted in self.expected.items():
            found = self.tensors[name].double()
            near = (found - wanted).abs() <= self.sample.limit
            if not bool((near | (found == wanted)).all()):
                return False
        return True


def call_kernel(
    make: Callable[[], Any], outputs: dict[str, tuple[int, ...]], types: dict[str, str] | None = None
) -> Call:
    """The call of a kernel of ours: inputs in their order, float32 outputs, the stream. `make` gives the object to
    compile; `types` names the DSL's element types of inputs for which torch has none."""

    def call(backend: EmulatedBackend, inputs: Tensors) -> Tensors:
        import cutlass

        made = _adjacent(backend, inputs | {name: torch.empty(shape) for name, shape in outputs.items()})
        arguments = []
        for name, t in made.items():
            element = getattr(cutlass, types[name]) if types and name in types else None
            arguments.append(backend.tensor(t, name, writable=name in outputs, element_type=element))
        compiled = backend.compile(make(), *arguments, backend.stream())
        backend.launch(compiled, *arguments, backend.stream())
        return made

    return call


def _adjacent(backend: EmulatedBackend, tensors: Tensors) -> Tensors:
    """Copies that lie next to each other, each at the next multiple of 16 bytes: what is behind a tensor is mapped, and
    only its bounds tell that an access is wrong."""
    starts, end = [], 0
    for t in tensors.values():
        starts.append(-(-end // 16) * 16)
        end = starts[-1] + t.nbytes
    memory = backend.empty((end,), torch.uint8)
    return {
        name: memory[start : start + t.nbytes].view(t.dtype).view(t.shape).copy_(t)
        for (name, t), start in zip(tensors.items(), starts, strict=True)
    }


class _Recorder:
    """Stands in for `emulator.run` and keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self,
        module: Any,
        entry: str,
        grid: Any,
        block: Any,
        parameters: Sequence[bytes],
        memory: GlobalMemory,
        **settings: Any,
    ) -> None:
        kept = {name: settings[name] for name in ("cluster", "shared_bytes", "multiprocessors")}
        own = dict(grid=grid, block=block, parameters=list(parameters), memory=memory)
        self.calls.append({"ptx": module.source, "entry": entry, "launch": own | kept})


def prepare(sample: Sample) -> Prepared:
    """Compile the sample (from the disk cache, if it is there) and record its launch."""
    recorder = _Recorder()
    backend = EmulatedBackend(sample.arch, run=recorder)
    given = sample.inputs(torch.Generator().manual_seed(5))
    tensors = sample.call(backend, given)
    [call] = recorder.calls
    return Prepared(sample, **call, tensors=tensors, expected=sample.oracle(given))
