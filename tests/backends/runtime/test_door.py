"""The door: answers to host code, and how exceptions come back. The library's exports are called as host code calls
them."""

from __future__ import annotations

import ctypes
import threading

import pytest

from backends.runtime import abi
from backends.runtime.calls import CALLS
from backends.runtime.door import UnknownImage, UnsupportedCall, door
from tests.backends.runtime.host_code import Host, attribute, kernel, launch, load


def test_a_library_file_has_one_door(opened):
    assert door(opened.library) is opened


def test_two_images_with_one_kernel_name_run_their_own_ptx(opened, dll, host):
    with opened.serve(host, "first ptx"):
        first = kernel(dll, load(dll, b"image one"), b"k")
    with opened.serve(host, "second ptx"):
        second = kernel(dll, load(dll, b"image two"), b"k")
    with opened.serve(host):
        assert launch(dll, first) == launch(dll, second) == 0
    shape = abi.Shape((1, 2, 3), (32, 1, 1), (1, 1, 1), 0)
    assert host.kernels == [("first ptx", "k", shape, 0x1234), ("second ptx", "k", shape, 0x1234)]


def test_an_image_that_was_seen_before_keeps_its_ptx(opened, dll, host):
    with opened.serve(host, "the ptx") as loaded:
        load(dll, b"image three")
    assert len(loaded) == 1 and len(loaded[0]) == 64
    with opened.serve(host):
        assert launch(dll, kernel(dll, load(dll, b"image three"), b"k")) == 0
    assert host.kernels[0][0] == "the ptx"


def test_an_image_without_known_ptx_is_a_named_error(opened, dll, host):
    with pytest.raises(UnknownImage, match=r"kernel k belongs to an image \(sha256 \w{16}…\) whose PTX is not known"):
        with opened.serve(host):
            assert launch(dll, kernel(dll, load(dll, b"image of another"), b"k")) == 719
    assert host.kernels == []


@pytest.mark.parametrize("symbol", ["_cudaGraphLaunch", "_cudaMalloc", "_cuLibraryGetGlobal", "CuteDSLRT_Function_Run"])
def test_what_is_not_supported_is_named_and_never_succeeds(opened, dll, host, symbol):
    assert symbol not in CALLS
    with pytest.raises(UnsupportedCall, match=f"{symbol} is not supported by the emulated driver"):
        with opened.serve(host):
            assert getattr(dll, symbol)(0, 0, 0, 0) != 0


def test_a_call_outside_of_serve_fails(opened, dll):
    assert dll._cudaGetDevice(ctypes.byref(ctypes.c_int())) == 719
    assert b"outside Backend.compile" in ctypes.string_at(_text(dll.CuteDSLRT_GetErrorString)(0))


def _text(function):
    function.restype = ctypes.c_void_p
    return function


def test_the_original_exception_comes_back(opened, dll, host):
    class Deadlock(Exception):
        pass

    raised = Deadlock("no warp can step")

    def fail(*_):
        raise raised

    host.run_kernel = fail
    with opened.serve(host, "ptx"):
        handle = kernel(dll, load(dll, b"image four"), b"k")
    with pytest.raises(Deadlock) as caught:
        with opened.serve(host):
            assert launch(dll, handle) == 719
            raise RuntimeError("what host code makes of code 719")
    assert caught.value is raised
    with opened.serve(host):
        pass  # nothing is left over


def test_an_interrupt_is_not_swallowed(opened, dll, host):
    def fail(*_):
        raise KeyboardInterrupt

    host.run_kernel = fail
    with opened.serve(host, "ptx"):
        handle = kernel(dll, load(dll, b"image five"), b"k")
    with pytest.raises(KeyboardInterrupt):
        with opened.serve(host):
            launch(dll, handle)


def test_an_exception_of_the_caller_passes(opened, host):
    with pytest.raises(ZeroDivisionError):
        with opened.serve(host):
            raise ZeroDivisionError


def test_serve_nests_and_is_per_thread(opened, dll, host):
    outer, inner = host, Host()
    seen = []

    def elsewhere():
        other = Host()
        other.multiprocessors = 7
        with opened.serve(other):
            seen.append(attribute(dll, 16))

    with opened.serve(outer):
        with opened.serve(inner):
            dll._cudaDeviceSynchronize()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        dll._cudaStreamSynchronize(None)
    assert inner.waits == ["cudaDeviceSynchronize"] and outer.waits == ["cudaStreamSynchronize"] and seen == [7]


def test_the_tvm_ffi_setter_gets_kind_and_message(opened, dll, host):
    raised = []
    setter = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int)(
        lambda kind, parts, count: raised.append((kind, [parts[i] for i in range(count)]))
    )
    with pytest.raises(UnsupportedCall):
        with opened.serve(host):
            code = dll._cudaGraphLaunch(0, 0)
            dll.CuteDSLRT_TVMFFISetRaisedCudaError(setter, code)
            dll.CuteDSLRT_TVMFFISetRaisedCudaLaunchError(setter, code, 1, 2, 3)
    assert raised == [(b"UnsupportedCall", [b"_cudaGraphLaunch is not supported by the emulated driver"])] * 2


INIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)
SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)


def test_a_library_is_initialised_once(dll):
    calls = []

    def init(out):
        calls.append("init")
        out[0] = 77
        return 0

    library = ctypes.c_void_p()
    errors = []
    arguments = (INIT(init), LOAD(lambda out, device: calls.append((out[0], device)) or 0), SET_ERROR(errors.append))
    for _ in range(2):
        assert dll.cuda_dialect_init_library_once(ctypes.byref(library), *arguments) == 0
    assert calls == ["init", (77, 0)] and library.value == 77 and errors == []


def test_a_library_that_fails_to_load_says_why(opened, dll, host):
    errors = []

    def init(out):
        return dll._cudaLibraryLoadFromFile(None, None, None, None, 0, None, None, 0)

    library = ctypes.c_void_p()
    arguments = (INIT(init), LOAD(), SET_ERROR(lambda kind, message: errors.append((kind, message))))
    with pytest.raises(UnsupportedCall):
        with opened.serve(host):
            assert dll.cuda_dialect_init_library_once(ctypes.byref(library), *arguments) == -1
    assert errors == [(b"UnsupportedCall", b"_cudaLibraryLoadFromFile is not supported by the emulated driver")]
    assert library.value is None
