"""The door: every call that compiled host code makes to CUDA arrives here and is answered in Python.

A loaded library is known by the SHA-256 of its image, never by the names of its kernels, which variants of one kernel
share. An exception cannot travel through C: it is kept, the call returns an error code, and `serve` raises the
original when the host code is back.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from backends.runtime import abi

_LAUNCH_FAILURE = 719
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)


class UnsupportedCall(RuntimeError):
    """Host code called a CUDA function, or asked for an attribute, that the emulated driver doesn't have."""


class UnknownImage(RuntimeError):
    """A kernel of an image whose PTX is not known was launched or looked up."""


@dataclass(frozen=True)
class Kernel:
    """An entry of a loaded image."""

    image: str
    name: str


class Host(Protocol):
    """Who answers: the emulated backend."""

    arch: str

    @property
    def multiprocessors(self) -> int: ...

    def run_kernel(self, ptx: str, image: str, entry: str, shape: abi.Shape, arguments: int) -> None:
        """Run one kernel; `arguments` is the address of an array of pointers to its parameters."""

    def static_shared(self, ptx: str, image: str, entry: str) -> int:
        """Bytes of static shared memory of an entry."""

    def encode_tensor_map(self, address: int, fields: tuple[Any, ...]) -> None:
        """Write the 128 bytes of a tensor map."""

    def waited(self, call: str) -> None:
        """Host code waited for the device."""


class Door:
    """The answering side of one loaded stand-in library.

    `serve(host)` must surround every call into compiled host code; outside of it calls fail with a named error.
    """

    def __init__(self, library: Path) -> None:
        self.library = library
        self._images: dict[str, str] = {}
        self._libraries: dict[int, str] = {}
        self._kernels: dict[int, Kernel] = {}
        self._next = 0x5EED_0000
        self._lock = threading.Lock()
        self._local = threading.local()
        self._dll = ctypes.CDLL(str(library))
        self._dll.standin_set_error.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        # The library keeps the bare function pointer: this reference keeps the function alive.
        self._callback = _CALLBACK(self._answer)
        self._dll.standin_attach(self._callback)

    @contextmanager
    def serve(self, host: Host, ptx: str | None = None) -> Iterator[list[str]]:
        """Answer for `host` on this thread; the list collects the SHA-256 of images that are loaded meanwhile, all of
        which were assembled from `ptx`. Without `ptx`, what the surrounding `serve` said holds: a call that the DSL
        makes while an entry of the cache is loaded knows no more than the loader.

        Raises the exception that an answer raised, itself, whatever the host code made of the error code.
        """
        before = getattr(self._local, "state", None)
        if ptx is None and before is not None:
            ptx = before.ptx
        state = _State(host, ptx, [], None)
        self._local.state = state
        try:
            yield state.loaded
        except Exception as error:
            if state.error is None or error is state.error:
                raise
            raise state.error from None
        finally:
            self._local.state = before
        if state.error is not None:
            raise state.error

    def _answer(self, symbol: bytes, words: Any, count: int) -> int:
        from backends.runtime.calls import CALLS

        state = getattr(self._local, "state", None)
        name = symbol.decode()
        try:
            if state is None:
                raise UnsupportedCall(
                    f"{name} was called outside Backend.compile, Backend.launch and emulated(): what is compiled for "
                    f"the emulator runs only there"
                )
            call: Callable[..., None] | None = CALLS.get(name)
            if call is None:
                raise UnsupportedCall(f"{name} is not supported by the emulated driver")
            call(self, state.host, *words[:count])
        except BaseException as error:  # nothing may cross into C; KeyboardInterrupt is raised again by serve
            if state is not None and state.error is None:
                state.error = error
            self._dll.standin_set_error(type(error).__name__.encode(), str(error).encode())
            return _LAUNCH_FAILURE
        return 0

    def load(self, address: int) -> int:
        """A handle for the image at `address`."""
        image = hashlib.sha256(abi.read_image(address)).hexdigest()
        state = self._local.state
        state.loaded.append(image)
        if state.ptx is not None:
            self._images[image] = state.ptx
        return self._handle(self._libraries, image)

    def unload(self, library: int) -> None:
        """Forget a handle; the image's PTX stays known."""
        self._libraries.pop(library, None)

    def look_up(self, library: int, name: str) -> int:
        """A handle for the kernel `name` of a loaded library."""
        if library not in self._libraries:
            raise UnsupportedCall(f"kernel {name} was looked up in a library that is not loaded ({library:#x})")
        return self._handle(self._kernels, Kernel(self._libraries[library], name))

    def kernel(self, handle: int) -> Kernel:
        """The kernel behind a handle."""
        if handle not in self._kernels:
            raise UnsupportedCall(f"kernel handle {handle:#x} was not given out by the emulated driver")
        return self._kernels[handle]

    def ptx(self, kernel: Kernel) -> str:
        """The PTX that the kernel's image was assembled from. Raises UnknownImage: without it there is nothing to
        run."""
        if kernel.image not in self._images:
            raise UnknownImage(
                f"kernel {kernel.name} belongs to an image (sha256 {kernel.image[:16]}…) whose PTX is not known; "
                f"only kernels compiled through Backend.compile can be emulated"
            )
        return self._images[kernel.image]

    def _handle(self, table: dict[int, Any], value: Any) -> int:
        with self._lock:
            self._next += 0x10
            table[self._next] = value
            return self._next


@dataclass
class _State:
    """What one thread's `serve` is about."""

    host: Host
    ptx: str | None
    loaded: list[str]
    error: BaseException | None


_doors: dict[str, Door] = {}
_doors_lock = threading.Lock()


def door(library: Path) -> Door:
    """The one door of this library in this process. Of equal libraries in several places the first one is used: its
    exports hide those of the others."""
    with _doors_lock:
        digest = library.parent.name
        if digest not in _doors:
            _doors[digest] = Door(library)
        return _doors[digest]
