"""What the emulated and the real backend share: compiling through the cache, and tensors as arguments."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from backends import dlpack, dsl, key
from backends.base import ARCHES, Compiled, Counters
from backends.cache import Cache, Memory

# Changes with what an entry holds or how it is made.
FORMAT = 2


class CommonBackend(ABC):
    """A backend for one architecture. Subclasses say where memory lives and how a launch happens."""

    name = ""
    # The runtime library that host code is linked to; None is the DSL's own.
    library: Path | None = None
    # Compile options that this backend always adds.
    options = ""

    def __init__(self, arch: str, cache: Cache | None = None) -> None:
        if arch not in ARCHES:
            raise ValueError(f"backend: arch={arch!r} is not supported; allowed: {', '.join(ARCHES)}")
        self.arch = arch
        self.cache = cache or Cache()
        self._memory = Memory()
        self._counters: list[Counters] = []

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where torch tensors for this backend live."""

    @property
    @abstractmethod
    def evidence(self) -> str:
        """What a result from here is obtained on."""

    @property
    @abstractmethod
    def multiprocessors(self) -> int:
        """Streaming multiprocessors: the size of a persistent grid."""

    @abstractmethod
    def stream(self) -> Any:
        """The stream argument of a `@cute.jit` host function: a `cuda.bindings.driver.CUstream`."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Memory for an output, aligned to at least 256 bytes. Counts as no launch."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device."""

    @abstractmethod
    def launch(self, compiled: Compiled, *args: Any, touches: dict[str, torch.Tensor] | None = None) -> None:
        """Run the host function of `compiled` with `args`, as given to `compile`. `touches`: tensors that kernels reach
        through pointers in memory, by name."""

    @abstractmethod
    def _counting(self, counters: Counters) -> AbstractContextManager[None]:
        """Let what happens inside count into `counters`."""

    def tensor(
        self,
        t: torch.Tensor,
        name: str,
        *,
        leading_dim: int | None = None,
        align: int = 16,
        dynamic: bool = True,
        element_type: Any = None,
        divisibility: dict[int, int] | None = None,
        writable: bool = True,
    ) -> Any:
        """`t` as the DSL's runtime tensor in global memory; no copy. `name` is what faults call it.

        leading_dim: the mode whose stride is the constant 1; the default is the last mode of stride 1 (none: all
        dynamic). dynamic: extents and strides are read at run time, so one compile serves all shapes; False compiles
        them in. align: bytes that the address is promised to be a multiple of (a power of two; TMA needs 16).
        element_type: the DSL's type where torch has none; a 4-bit type on a byte tensor means two values a byte, and
        the extent along the stride-1 mode doubles. divisibility: {mode: n} promises extents (and, of a compact
        tensor, strides) that n divides. writable=False lets the emulator fault on a write.

        Raises ValueError naming the tensor: wrong device, address not aligned, leading_dim without stride 1, extent
        not divisible.
        """
        return dlpack.present(
            t,
            name,
            device=self.device,
            leading_dim=leading_dim,
            align=align,
            dynamic=dynamic,
            element_type=element_type,
            divisibility=divisibility,
            writable=writable,
        )

    def pointer(self, t: torch.Tensor, name: str, *, align: int = 16, element_type: Any = None) -> Any:
        """A typed pointer to `t`'s first element in global memory; errors as in `tensor`."""
        return dlpack.point(t, name, device=self.device, align=align, element_type=element_type)

    def compile(self, kernel: Any, *args: Any, options: str = "", name: str = "") -> Compiled:
        """The compiled form of `kernel` for the types of `args`, from memory, else from disk, else built now.

        kernel: an object with a `@cute.jit __call__`, told apart by `key()` or by its frozen dataclass fields (its
        own or those of `.config`), or a `@cute.jit` function. args: as for `launch`; torch tensors, `tensor` results,
        the DSL's fake tensors and numbers, the stream. A Python number is part of the key with its value: wrap one
        that varies in `cutlass.Int32`. options: the DSL's compile options. name: how reports call it (default: the
        type).

        The key holds kernel, argument types, architecture, options, the sources of the kernel's packages, the
        versions of DSL, ptxas and Python, the host's processor and the DSL's debug flags. Raises ValueError for a
        kernel or an argument that can't be keyed; errors of the compile are the DSL's own.
        """
        begin = time.perf_counter()
        given = self._present(args)
        inputs = {
            "format": FORMAT,
            "backend": self.name,
            "kernel": key.describe_kernel(kernel),
            "arguments": key.describe_arguments(kernel, given),
            "arch": self.arch,
            "options": f"{self.options} {options}".strip(),
            "sources": key.describe_sources(kernel),
            "versions": key.versions(),
            "debug": key.debug_flags(),
        }
        digest = key.digest(inputs)
        known = self._memory.get(digest)
        if known is None:
            called = name or type(kernel).__name__
            known = self._obtain(kernel, given, digest, inputs, called)
            self._memory.put(digest, known)
            return replace(known, seconds=time.perf_counter() - begin)
        return replace(known, origin="memory", seconds=time.perf_counter() - begin)

    def _obtain(self, kernel: Any, args: tuple[Any, ...], digest: str, inputs: dict[str, Any], name: str) -> Compiled:
        """From disk or built. An entry that is whole but can't be loaded is thrown away and built once more; one that
        another process threw away while it was read here is asked for again."""
        options = inputs["options"]

        def build(folder: Path) -> dict[str, Any]:
            for counters in self._counters:
                counters.compiles += 1
            dsl.build(kernel, args, options, self.arch, self.library, folder)
            return {"inputs": inputs, "name": name}

        def opened(folder: Path, built: bool) -> Compiled:
            ptx = (folder / dsl.PTX).read_text()
            return Compiled(
                name=name,
                arch=self.arch,
                key=digest,
                origin="built" if built else "disk",
                seconds=0.0,
                folder=folder,
                ptx=ptx,
                kernels=dsl.entries(ptx),
                resources=dsl.resources(folder),
                dropped=key.compile_time_positions(kernel),
                tvm_ffi=dsl.uses_tvm_ffi(options),
                function=self._load(folder, options, ptx),
            )

        folder, built = self.cache.get(digest, build)
        try:
            return opened(folder, built)
        except Exception as problem:
            if built:
                raise
            # What vanished leaves nothing to throw away: what is there by now is the other process's new entry.
            if not isinstance(problem, FileNotFoundError):
                self.cache.discard(digest)
        return opened(*self.cache.get(digest, build))

    def _load(self, folder: Path, options: str, ptx: str) -> Any:
        """The entry's host function, ready to be called; `ptx` is the entry's."""
        return dsl.load(folder, options, self.arch, self.library)

    def _present(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`args` with bare torch tensors wrapped as `tensor(t, "argument <position>")`."""
        return tuple(self.tensor(a, f"argument {i}") if isinstance(a, torch.Tensor) else a for i, a in enumerate(args))

    def _launchable(self, compiled: Compiled, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Presented `args` as the compiled host function takes them. Raises ValueError when it was compiled for
        another architecture."""
        if compiled.arch != self.arch:
            raise ValueError(f"launch: {compiled.name} was compiled for {compiled.arch}, this backend is {self.arch}")
        given = tuple(a for i, a in enumerate(args) if i not in compiled.dropped)
        return tuple(dlpack.as_tvm_ffi(a, self.device) for a in given) if compiled.tvm_ffi else given

    @contextmanager
    def count(self) -> Iterator[Counters]:
        """Count launches, waits, compiles and bytes of what runs inside, on this thread. See `Counters`. Nests when
        emulated; a GPU has one profiler."""
        counters = Counters()
        self._counters.append(counters)
        try:
            with self._counting(counters):
                yield counters
        finally:
            self._counters.remove(counters)
