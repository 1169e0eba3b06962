"""The exports of the stand-in library, called as compiled host code calls them."""

from __future__ import annotations

import ctypes
import struct

from backends.runtime import abi


class Host:
    """Answers as a backend would."""

    arch = "sm_90a"
    multiprocessors = 4

    def __init__(self):
        self.kernels, self.maps, self.waits = [], [], []

    def run_kernel(self, ptx, image, entry, shape, arguments):
        self.kernels.append((ptx, entry, shape, arguments))

    def static_shared(self, ptx, image, entry):
        return len(ptx)

    def encode_tensor_map(self, address, fields):
        self.maps.append((address, fields))

    def waited(self, call):
        self.waits.append(call)


def image(content: bytes) -> ctypes.Array[ctypes.c_char]:
    data = struct.pack("<IHHQ", abi.FATBIN_MAGIC, 1, 16, len(content)) + content
    return ctypes.create_string_buffer(data, len(data))


def load(dll, content: bytes) -> ctypes.c_uint64:
    library = ctypes.c_uint64()
    assert dll._cudaLibraryLoadData(ctypes.byref(library), image(content), None, None, 0, None, None, 0) == 0
    return library


def kernel(dll, library: ctypes.c_uint64, name: bytes) -> ctypes.c_uint64:
    found = ctypes.c_uint64()
    assert dll._cudaLibraryGetKernel(ctypes.byref(found), library, name) == 0
    return found


def launch(dll, handle: ctypes.c_uint64) -> int:
    config = abi.LaunchConfig()
    config.grid[:], config.block[:] = (1, 2, 3), (32, 1, 1)
    return dll._cudaLaunchKernelEx(ctypes.byref(config), handle, ctypes.c_void_p(0x1234))


def attribute(dll, number: int) -> int:
    value = ctypes.c_int(-1)
    assert dll._cudaDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
    return value.value
