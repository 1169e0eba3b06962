"""`emulated`: CuTe DSL code that was written for a GPU, run on this CPU as it stands."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from backends import dsl
from backends.cache import Cache
from backends.emulation import MULTIPROCESSORS, EmulatedBackend
from backends.patches import Patches
from backends.reach import Reach


class _Active:
    """The contexts that this process is in, innermost last, and the one thread that may open more."""

    def __init__(self) -> None:
        self.backends: list[EmulatedBackend] = []
        self.reach = Reach()
        self.thread = 0
        self.lock = threading.Lock()

    @contextmanager
    def entered(self, backend: EmulatedBackend) -> Iterator[bool]:
        """Be inside; gives whether this is the outermost context."""
        with self.lock:
            if self.backends and self.thread != threading.get_ident():
                raise RuntimeError("emulated: another thread is inside emulated(), which is a setting of the process")
            if not self.backends:
                self.reach, self.thread = Reach(), threading.get_ident()
            self.backends.append(backend)
        try:
            yield len(self.backends) == 1
        finally:
            with self.lock:
                self.backends.remove(backend)


_active = _Active()


@contextmanager
def emulated(
    arch: str = "sm_100a",
    *,
    policy: str = "in_order",
    seed: int = 0,
    arithmetic: str | None = None,
    listeners: Sequence[Callable[[Any], None]] = (),
    watchdog: int | None = None,
    multiprocessors: int = MULTIPROCESSORS,
    torch_cuda: bool = False,
    cache: Cache | None = None,
    run: Callable[..., Any] | None = None,
) -> Iterator[EmulatedBackend]:
    """Inside, `cute.compile`, calls of what it returns and direct calls of `@cute.jit` functions run on the emulator,
    on CPU tensors of torch (or of whatever offers DLPack), as they would on a GPU of architecture `arch`.

    The settings are those of `EmulatedBackend`, which the context gives: they may be changed inside, and
    `last_launches` holds the records of the latest call. torch_cuda: torch also claims to have this GPU; "cuda" as a
    device means the CPU, every tensor says `is_cuda`, and new tensors are aligned to 256 bytes. It is for libraries
    that insist on a GPU.

    Calls are synchronous and raise the emulator's exceptions. Kernels reach the tensors whose addresses were given
    away inside (`backends.reach`); a tensor must be wrapped by `from_dlpack` inside. What was compiled inside can't
    be called outside. Contexts nest, the innermost one decides; all that is changed in other packages is restored at
    the end. It is a setting of the process: RuntimeError when another thread is inside. Raises ValueError for an
    unknown arch and CompilerMissing without a C++ compiler.
    """
    backend = EmulatedBackend(
        arch,
        cache,
        run=run,
        policy=policy,
        seed=seed,
        arithmetic=arithmetic,
        listeners=listeners,
        watchdog=watchdog,
        multiprocessors=multiprocessors,
    )
    with (
        _active.entered(backend) as outermost,
        tempfile.TemporaryDirectory(prefix="emulated-") as folder,
        Patches() as patches,
    ):
        _set_up_dsl(patches, backend)
        _answer_queries(patches, backend)
        if outermost:
            _keep_ptx(patches, folder)
            dsl.call_stand_in(patches)
            _serve_calls(patches)
            _active.reach.watch(patches)
        if torch_cuda:
            from backends.torch_cuda import pretend

            pretend(patches, backend)
        yield backend


def _set_up_dsl(patches: Patches, backend: EmulatedBackend) -> None:
    """Compile for the backend's architecture, against the stand-in library."""
    from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL

    patches.environment("CUTE_DSL_ARCH", backend.arch)
    patches.environment("CUTE_DSL_LIBS", str(backend.library))
    for live in (CuTeDSL._get_dsl(), CuteExperimentalDSL._get_dsl()):
        patches.set(live.envar, "_arch", backend.arch)
        patches.set(live.envar, "shared_libs", str(backend.library))
        patches.set(live.envar, "disable_file_caching", True)
        patches.set(live, "jit_cache", type(live.jit_cache)(max_elems=live.envar.jit_cache_max_elems))


def _keep_ptx(patches: Patches, folder: str) -> None:
    """Have every compiled function keep its PTX, with the lines of the source.

    The setting `keep_ptx` of the environment would do that too, but it disables the cache of direct calls.
    """
    from cutlass.base_dsl.compiler import CompileOptions, DumpDir, GenerateLineInfo, KeepPTX

    def apply(options: Any, *args: Any) -> None:
        # Compiles without options of their own share one object: these are changes to restore, too.
        chosen = options.options
        patches.set(chosen[KeepPTX], "value", True)
        patches.set(chosen[GenerateLineInfo], "value", True)
        patches.set(chosen[DumpDir], "value", chosen[DumpDir].value or folder)
        before(options, *args)

    before = patches.set(CompileOptions, "apply_envar_settings", apply)


def _serve_calls(patches: Patches) -> None:
    """Have the innermost context's backend answer where the DSL enters compiled host code: when it loads an image, and
    at each call."""
    from cutlass.base_dsl.jit_executor import JitExecutor
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction, CudaDialectJitModule

    def serve(owner: Any, name: str) -> None:
        @functools.wraps(getattr(owner, name))
        def served(function: Any, *args: Any, **named: Any) -> Any:
            reach = _active.reach
            with _active.backends[-1].serving(reach.memory, getattr(function, "__ptx__", None)):
                reach.failure = None
                try:
                    return before(function, *args, **named)
                except Exception:
                    if reach.failure is None:
                        raise
                    raise reach.failure from None

        before = patches.set(owner, name, served)

    serve(CudaDialectJitCompiledFunction, "_load_cuda_library")
    serve(JitExecutor, "run_compiled_program")
    for owner in _tvm_ffi_functions():
        serve(owner, "__call__")
    # The DSL would ask the CUDA driver for the number of devices, and to unload a library that it never loaded.
    patches.set(CudaDialectJitCompiledFunction, "num_devices", 1)
    patches.set(CudaDialectJitModule, "unload", lambda module: None)


def _tvm_ffi_functions() -> tuple[Any, ...]:
    """The classes of functions compiled with --enable-tvm-ffi; none without apache-tvm-ffi."""
    try:
        from cutlass.cutlass_dsl import tvm_ffi_provider
    except ImportError:
        return ()
    return tvm_ffi_provider.TVMFFIJitCompiledFunction, tvm_ffi_provider.TVMFFIJitCompiledFunctionWithKwargs


def _answer_queries(patches: Patches, backend: EmulatedBackend) -> None:
    """The DSL's questions about the device, and the few driver calls of its helpers, which would need a driver."""
    from cuda.bindings import driver
    from cutlass.utils import HardwareInfo

    def clusters(info: Any, cluster_size: int, stream: Any = None) -> int:
        return max(1, backend.multiprocessors // cluster_size)

    patches.set(HardwareInfo, "__init__", lambda info, device_id=0: None)
    patches.set(HardwareInfo, "get_max_active_clusters", clusters)
    patches.set(HardwareInfo, "get_device_multiprocessor_count", lambda info: backend.multiprocessors)
    patches.set(HardwareInfo, "get_l2_cache_size_in_bytes", lambda info: backend.l2_bytes)
    ok = driver.CUresult.CUDA_SUCCESS
    for name, values in {
        "cuInit": (),
        "cuDriverGetVersion": (13000,),
        "cuDeviceGetCount": (1,),
        "cuDeviceGet": (driver.CUdevice(0),),
        "cuCtxCreate": (driver.CUcontext(0),),
        "cuCtxSetCurrent": (),
        "cuCtxGetCurrent": (driver.CUcontext(0),),
        "cuCtxSynchronize": (),
        "cuStreamCreate": (driver.CUstream(0),),
        "cuStreamSynchronize": (),
        "cuStreamDestroy": (),
    }.items():
        patches.set(driver, name, lambda *args, _values=values: (ok, *_values))
