"""What the emulated driver answers."""

from __future__ import annotations

import ctypes

import pytest

from backends.runtime.door import UnsupportedCall
from tests.backends.runtime.host_code import attribute, kernel, load


@pytest.mark.parametrize(
    "arch, number, value",
    [
        ("sm_90a", 97, 232448),
        ("sm_100a", 97, 232448),
        ("sm_90a", 81, 233472),
        ("sm_90a", 16, 4),
        ("sm_90a", 75, 9),
        ("sm_100a", 75, 10),
        ("sm_100a", 76, 0),
        ("sm_90a", 10, 32),
        ("sm_90a", 1, 1024),
    ],
)
def test_device_attributes(opened, dll, host, arch, number, value):
    host.arch = arch
    with opened.serve(host):
        assert attribute(dll, number) == value


def test_an_unknown_device_attribute_is_refused(opened, dll, host):
    with pytest.raises(UnsupportedCall, match="cudaDeviceGetAttribute: attribute 1234"):
        with opened.serve(host):
            assert dll._cudaDeviceGetAttribute(ctypes.byref(ctypes.c_int()), 1234, 0) == 719


def test_devices(opened, dll, host):
    value = ctypes.c_int(-1)
    with opened.serve(host):
        assert dll._cudaGetDeviceCount(ctypes.byref(value)) == 0 and value.value == 1
        assert dll._cudaGetDevice(ctypes.byref(value)) == 0 and value.value == 0
        assert dll._cuDeviceGet(ctypes.byref(value), 0) == 0 and value.value == 0
        assert dll._cudaSetDevice(0) == 0


def test_kernel_attributes(opened, dll, host):
    value = ctypes.c_int(-1)
    with opened.serve(host, "12345678"):
        handle = kernel(dll, load(dll, b"image with attributes"), b"k")
        assert dll._cuKernelGetAttribute(ctypes.byref(value), 1, handle, 0) == 0
        assert value.value == 8  # this host answers with the length of the PTX
        assert dll._cudaKernelSetAttributeForDevice(handle, 8, 232448, 0) == 0
        assert dll._cudaKernelSetAttributeForDevice(handle, 14, 1, 0) == 0
        assert dll._cudaFuncSetAttribute(handle, 8, 232448) == 0
        assert dll._cudaOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(value), handle, 128, 0) == 0
        assert value.value == 1
    for call, message in (
        (lambda: dll._cuKernelGetAttribute(ctypes.byref(value), 4, handle, 0), "cuKernelGetAttribute: attribute 4"),
        (lambda: dll._cudaKernelSetAttributeForDevice(handle, 99, 1, 0), "kernel attribute 99"),
        (lambda: dll._cudaFuncSetAttribute(ctypes.c_uint64(3), 8, 1), "kernel handle 0x3 was not given out"),
    ):
        with pytest.raises(UnsupportedCall, match=message):
            with opened.serve(host):
                assert call() == 719


def test_a_library_that_was_unloaded_has_no_kernels(opened, dll, host):
    with pytest.raises(UnsupportedCall, match="kernel k was looked up in a library that is not loaded"):
        with opened.serve(host, "ptx"):
            library = load(dll, b"image to unload")
            assert dll._cudaLibraryUnload(library) == 0
            dll._cudaLibraryGetKernel(ctypes.byref(ctypes.c_uint64()), library, b"k")


def test_launch_with_separate_dimensions(opened, dll, host):
    with opened.serve(host, "ptx"):
        handle = kernel(dll, load(dll, b"image launched plainly"), b"k")
        words = (2, 3, 4, 64, 1, 1)
        code = dll._cudaLaunchKernel(handle, *words, ctypes.c_void_p(0x99), ctypes.c_size_t(4096), None)
    assert code == 0
    (_ptx, entry, shape, arguments) = host.kernels[0]
    assert (entry, shape.grid, shape.block, shape.cluster) == ("k", (2, 3, 4), (64, 1, 1), (1, 1, 1))
    assert (shape.shared_bytes, arguments) == (4096, 0x99)


def encode(dll, rank: int) -> int:
    sizes = (ctypes.c_uint64 * 5)(64, 32, 8, 4, 2)
    strides = (ctypes.c_uint64 * 4)(128, 4096, 32768, 131072)
    box = (ctypes.c_uint32 * 5)(64, 16, 1, 1, 1)
    steps = (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
    base = ctypes.c_void_p(0x7F0000000100)
    return dll._cuTensorMapEncodeTiled(
        ctypes.c_void_p(0x1000), 9, rank, base, sizes, strides, box, steps, 0, 3, 2, ctypes.c_int(1)
    )


def test_a_tensor_map_request_arrives_field_by_field(opened, dll, host):
    with opened.serve(host):
        assert encode(dll, 3) == 0 and encode(dll, 1) == 0
    assert host.maps == [
        (0x1000, (9, 0x7F0000000100, (64, 32, 8), (128, 4096), (64, 16, 1), (1, 1, 1), 0, 3, 2, 1)),
        (0x1000, (9, 0x7F0000000100, (64,), (), (64,), (1,), 0, 3, 2, 1)),
    ]


@pytest.mark.parametrize("rank", [0, 6])
def test_a_tensor_map_of_another_rank_is_refused(opened, dll, host, rank):
    with pytest.raises(ValueError, match=f"cuTensorMapEncodeTiled: tensorRank={rank} must be 1 to 5"):
        with opened.serve(host):
            assert encode(dll, rank) == 719


def test_a_failed_assertion_of_host_code_is_an_exception(opened, dll, host):
    with pytest.raises(UnsupportedCall, match="it had returned 719"):
        with opened.serve(host):
            dll.cuda_dialect_assert_success(719)
    with opened.serve(host):
        dll.cuda_dialect_assert_success(0)
