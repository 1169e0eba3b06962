"""What every backend offers, and the records that it hands out. Imports neither torch nor cutlass."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

ARCHES = ("sm_100a", "sm_90a")


class NoDevice(RuntimeError):
    """The real GPU was asked for and there is none, or it is of another architecture."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as ptxas reports it. Counts are per thread for registers and bytes of `stack`,
    `spill_*`; `shared` is the static part in bytes a CTA (dynamic shared memory belongs to the launch), `constant`
    bytes a kernel."""

    registers: int
    barriers: int
    shared: int
    constant: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled host function with its kernels.

    `ptx` is one module with every kernel of `kernels` (entry names; they may equal those of another `Compiled`).
    `origin` says where this object came from: built, disk or memory. `folder` holds kernel.ptx, key.json and
    ptxas.json. `seconds` is how long that took. `dropped` are the positions of compile-time arguments, which a launch
    doesn't pass on. `tvm_ffi`: `function` is a TVM-FFI function, which takes tensors by DLPack instead of the DSL's
    runtime tensors.
    """

    name: str
    arch: str
    key: str
    origin: str
    seconds: float
    folder: Path
    ptx: str = field(repr=False)
    kernels: tuple[str, ...]
    resources: dict[str, Resources]
    dropped: frozenset[int] = field(repr=False)
    tvm_ffi: bool
    function: Any = field(repr=False)


@dataclass
class Counters:
    """What happened inside `with backend.count() as c`.

    `kernels`: names of the launched kernels of compiled functions, in order. `operations`: torch operations that
    launch a kernel on a GPU, by name, in order. `sync_calls`: what made the host wait for the device, in order.
    `peak_bytes`: most device bytes allocated at once by what ran inside, not counting what existed before.
    """

    kernels: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    sync_calls: list[str] = field(default_factory=list)
    compiles: int = 0
    peak_bytes: int = 0

    @property
    def launches(self) -> int:
        """Kernels on the device: those of compiled functions, and one for each torch operation that needs one."""
        return len(self.kernels) + len(self.operations)

    @property
    def syncs(self) -> int:
        """Times that the host waited for the device."""
        return len(self.sync_calls)


class Backend(Protocol):
    """Where kernels are compiled for and launched on. The methods are documented in `backends.common.CommonBackend`."""

    name: str
    arch: str

    @property
    def evidence(self) -> str:
        """What a result from here is obtained on, such as `emulated sm_100a` or `sm_90 NVIDIA H200`."""

    @property
    def device(self) -> torch.device:
        """Where torch tensors for this backend live."""

    @property
    def multiprocessors(self) -> int:
        """Streaming multiprocessors: the size of a persistent grid."""

    def compile(self, kernel: Any, *args: Any, options: str = "", name: str = "") -> Compiled: ...

    def launch(self, compiled: Compiled, *args: Any, touches: dict[str, torch.Tensor] | None = None) -> None: ...

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
    ) -> Any: ...

    def pointer(self, t: torch.Tensor, name: str, *, align: int = 16, element_type: Any = None) -> Any: ...

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> torch.Tensor: ...

    def stream(self) -> Any: ...

    def count(self) -> AbstractContextManager[Counters]: ...

    def synchronize(self) -> None: ...
