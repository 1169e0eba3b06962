"""The emulated backend: kernels compiled for a GPU run on this CPU, by the emulator, through the stand-in runtime
library."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from backends import dlpack, dsl
from backends.base import Compiled, Counters
from backends.cache import Cache
from backends.common import CommonBackend
from backends.count import counting
from backends.runtime import abi
from backends.runtime.build import build
from backends.runtime.door import UnknownImage, door

# Few multiprocessors make the loops of persistent kernels turn on small problems.
MULTIPROCESSORS = 4
# NVIDIA's published sizes of the second-level cache.
_L2_BYTES = {"sm_90a": 50 << 20, "sm_100a": 126 << 20}
# CUtensorMapSwizzle 3 to 6 are the 128-byte swizzle with these atomicities: 16B, 32B, 32B with 8-byte flip, 64B.
_ATOMICITIES = (0, 1, 2, 3)


class EmulatedBackend(CommonBackend):
    """Runs kernels of one architecture on the emulator.

    Settings, read at each launch: `policy` (when asynchronous operations complete and who runs next), `seed`,
    `schedules` (of policy `replay`: each launch takes the first one away; without one it runs `in_order`),
    `arithmetic`, `listeners` (checkers and views), `watchdog` (most warp-instructions of a launch; None is the
    emulator's own limit). `last_launches` holds the emulator's records of the kernels of the latest `launch`, in order,
    up to the one that failed. `run` and `parse` default to the emulator's.
    """

    name = "emulated"
    # Source lines for reports of faults and deadlocks.
    options = "--generate-line-info"

    def __init__(
        self,
        arch: str = "sm_100a",
        cache: Cache | None = None,
        *,
        run: Callable[..., Any] | None = None,
        parse: Callable[[str], Any] | None = None,
        policy: str = "in_order",
        seed: int = 0,
        arithmetic: Any = None,
        listeners: Sequence[Callable[[Any], None]] = (),
        watchdog: int | None = None,
        multiprocessors: int = MULTIPROCESSORS,
    ) -> None:
        super().__init__(arch, cache)
        self._door = door(build(self.cache.root / "runtime"))
        self.library = self._door.library
        self.policy = policy
        self.seed = seed
        self.schedules: list[Any] = []
        self.arithmetic = arithmetic
        self.listeners = tuple(listeners)
        self.watchdog = watchdog
        self.last_launches: list[Any] = []
        self._multiprocessors = multiprocessors
        self._run = run
        self._parse = parse
        self._modules: dict[str, Any] = {}
        self._launching = threading.local()
        self._recorded: list[Callable[[], None]] | None = None

    @property
    def evidence(self) -> str:
        """`emulated <arch>`."""
        return f"emulated {self.arch}"

    @property
    def device(self) -> torch.device:
        """The CPU: a device address is a host address."""
        return torch.device("cpu")

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors host code and persistent kernels are told of."""
        return self._multiprocessors

    @property
    def l2_bytes(self) -> int:
        """The size of the second-level cache that host code is told of."""
        return _L2_BYTES[self.arch]

    def stream(self) -> Any:
        """The default stream; launches are synchronous."""
        from cuda.bindings.driver import CUstream

        return CUstream(0)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Memory for an output: 256-byte aligned, every byte 0xFF so that a missing write shows. Counts as no
        launch."""
        return dlpack.aligned_empty(tuple(shape), dtype)

    def synchronize(self) -> None:
        """Wait for the device: nothing to wait for, but counted."""
        self.waited("synchronize")

    def launch(self, compiled: Compiled, *args: Any, touches: dict[str, torch.Tensor] | None = None) -> None:
        """Run the host function of `compiled` with `args` (as given to `compile`) and emulate every kernel that it
        launches.

        The kernels see the memory of the tensors among `args`, and of `touches` (tensors reached through pointers in
        memory, by name); an access to anything else is the emulator's MemoryFault. Outputs are complete on return.
        Raises the emulator's exception itself (Deadlock, MemoryFault, …), or that of a listener.
        """
        from emulator.memory.globals import GlobalMemory

        presented = self._present(args)
        given = self._launchable(compiled, presented)
        memory = GlobalMemory()
        reached = [dlpack.region(t, name) for name, t in (touches or {}).items()]
        for region in dlpack.regions(presented) + reached:
            memory.register(
                region.address,
                region.nbytes,
                region.name,
                region.writable,
                region.shape,
                region.dtype,
                region.poisoned,
                region.strides,
            )
        with self.serving(lambda: memory, compiled.ptx):
            compiled.function(*given)

    @contextmanager
    def serving(self, memory: Callable[[], Any], ptx: str | None = None) -> Iterator[None]:
        """Answer the calls that compiled host code makes inside. `memory` gives the emulator's GlobalMemory of a
        launch when one happens; images that are loaded inside were assembled from `ptx`."""
        before = getattr(self._launching, "memory", None)
        self.last_launches = []
        self._launching.memory = memory
        try:
            with self._door.serve(self, ptx):
                yield
        finally:
            self._launching.memory = before

    def _load(self, folder: Path, options: str, ptx: str) -> Any:
        # Host code asks for a kernel's static shared memory while it loads: its PTX must be known by then.
        with self._door.serve(self, ptx):
            return dsl.load(folder, options, self.arch, self.library)

    @contextmanager
    def recording(self) -> Iterator[list[Callable[[], None]]]:
        """Launches inside are not run but listed, as a CUDA graph captures them; call one to run it."""
        before, self._recorded = self._recorded, []
        try:
            yield self._recorded
        finally:
            self._recorded = before

    # What the door asks of its host.

    def run_kernel(self, ptx: str, image: str, entry: str, shape: abi.Shape, arguments: int) -> None:
        """Emulate one kernel; `arguments` is the address of an array of pointers to its parameters."""
        function = self._function(ptx, image, entry)
        pointers = (ctypes.c_void_p * len(function.parameters)).from_address(arguments) if function.parameters else ()
        parameters = [ctypes.string_at(at, p.nbytes) for at, p in zip(pointers, function.parameters, strict=True)]
        memory = self._launching.memory

        def launch() -> None:
            self._emulate(image, entry, shape, parameters, memory())

        if self._recorded is None:
            launch()
        else:
            self._recorded.append(launch)

    def _emulate(self, image: str, entry: str, shape: abi.Shape, parameters: list[bytes], memory: Any) -> None:
        for counters in self._counters:
            counters.kernels.append(entry)
        run = self._run or _emulator_run()
        launch = run(
            self._modules[image],
            entry,
            shape.grid,
            shape.block,
            parameters,
            memory,
            cluster=shape.cluster,
            shared_bytes=shape.shared_bytes,
            multiprocessors=self.multiprocessors,
            **self._settings(),
        )
        self.last_launches.append(launch)
        # What the kernel printed, at the end of the launch as on a GPU.
        sys.stdout.write(getattr(launch, "output", ""))

    def static_shared(self, ptx: str, image: str, entry: str) -> int:
        """Bytes of the shared variables of an entry and its module, each at its alignment."""
        own = self._function(ptx, image, entry).variables
        end = 0
        for variable in (*self._modules[image].variables, *own):
            if variable.space == "shared" and not variable.extern:
                end = -(-end // variable.align) * variable.align + variable.nbytes
        return end

    def encode_tensor_map(self, address: int, fields: tuple[Any, ...]) -> None:
        """Write the bits that the hardware reads."""
        from emulator.memory.tensormap import TensorMap, driver_type

        kind, base, dims, strides, box, steps, interleave, swizzle, promotion, fill = fields
        if not 0 <= swizzle < 3 + len(_ATOMICITIES):
            raise ValueError(f"cuTensorMapEncodeTiled: swizzle={swizzle} must be 0 to {2 + len(_ATOMICITIES)}")
        tensor_map = TensorMap(
            base,
            driver_type(kind),
            dims,
            strides,
            box,
            steps,
            interleave=interleave,
            swizzle=min(swizzle, 3),
            atomicity=_ATOMICITIES[max(swizzle - 3, 0)],
            nan_fill=bool(fill),
            l2=promotion,
        )
        ctypes.memmove(address, tensor_map.encode(), 128)

    def waited(self, call: str) -> None:
        """Count a wait for the device."""
        for counters in self._counters:
            counters.sync_calls.append(call)

    def _function(self, ptx: str, image: str, entry: str) -> Any:
        """The parsed entry; parses each image's PTX once."""
        if image not in self._modules:
            parse = self._parse or _emulator_parse()
            self._modules[image] = parse(ptx)
        functions = self._modules[image].functions
        if entry not in functions:
            raise UnknownImage(f"the PTX of image {image[:16]}… has no entry {entry}; it has {', '.join(functions)}")
        return functions[entry]

    def _settings(self) -> dict[str, Any]:
        chosen = {"policy": self.policy, "seed": self.seed, "listeners": self.listeners}
        if self.policy == "replay":
            chosen |= {"schedule": self.schedules.pop(0)} if self.schedules else {"policy": "in_order"}
        if self.arithmetic is not None:
            chosen["arithmetic"] = self.arithmetic
        if self.watchdog is not None:
            chosen["watchdog"] = self.watchdog
        return chosen

    @contextmanager
    def _counting(self, counters: Counters) -> Iterator[None]:
        with counting(counters):
            yield


def _emulator_run() -> Callable[..., Any]:
    from emulator import run

    return run


def _emulator_parse() -> Callable[[str], Any]:
    from emulator.ptx import parse

    return parse
