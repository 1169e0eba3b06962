"""Where a kernel is compiled for and launched on: a real GPU, or the emulator.

`get` gives a backend, which is an argument of every host function. Importing this package imports neither torch nor
cutlass, and nothing here asks for a GPU before a backend for one is asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from backends.base import ARCHES, Backend, Compiled, Counters, NoDevice, Resources

if TYPE_CHECKING:
    from backends.common import CommonBackend
    from backends.emulation import EmulatedBackend

__all__ = ["ARCHES", "NAMES", "Backend", "Compiled", "Counters", "NoDevice", "Resources", "emulated", "get"]

NAMES = ("auto", "emulated", "cuda")


def get(name: str = "auto", arch: str = "sm_100a", **settings: Any) -> CommonBackend:
    """The backend `name` for kernels of `arch` (sm_100a or sm_90a).

    auto: the GPU of this machine if `arch` is its architecture, else the emulator. `settings` go to the backend's
    constructor (`EmulatedBackend`: policy, seed, listeners, …). Both architectures, and both backends, may live in
    one process, and cutlass may be imported before or after.

    Raises ValueError for an unknown name or arch, NoDevice for `cuda` without a GPU of that architecture, and
    CompilerMissing for `emulated` on a machine without a C++ compiler.
    """
    if name not in NAMES:
        raise ValueError(f"backend: name={name!r} is not known; allowed: {', '.join(NAMES)}")
    if arch not in ARCHES:
        raise ValueError(f"backend: arch={arch!r} is not supported; allowed: {', '.join(ARCHES)}")
    from backends.cuda import CudaBackend, gpu_arch

    if name == "cuda" or (name == "auto" and gpu_arch() == arch):
        return CudaBackend(arch, **settings)
    from backends.emulation import EmulatedBackend

    return EmulatedBackend(arch, **settings)


def emulated(arch: str = "sm_100a", **settings: Any) -> AbstractContextManager[EmulatedBackend]:
    """A context in which CuTe DSL code for a GPU of `arch` runs on the emulator, on CPU tensors, as it stands.

    settings: policy, seed, arithmetic, listeners, watchdog, multiprocessors, torch_cuda; see
    `backends.context.emulated` and docs/emulated.md.
    """
    from backends.context import emulated as context

    return context(arch, **settings)
