"""The CUDA functions that the emulated driver has. Each takes the door, the host and the call's arguments as 64-bit
words.

A function that is missing here is refused by name. Device attributes are NVIDIA's published figures for the chip.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from backends.runtime import abi
from backends.runtime.door import Door, Host, UnsupportedCall

_KERNEL_SHARED_BYTES = 1
_KERNEL_SETTABLE = {8: "maximum dynamic shared memory", 9: "shared memory carveout", 14: "non-portable cluster size"}
_CAPABILITY = {"sm_90a": (9, 0), "sm_100a": (10, 0)}
# cudaDeviceAttr, where both chips agree. Shared memory: 227 KiB a CTA and 228 KiB a multiprocessor, 1 KiB of a CTA
# reserved.
_DEVICE = {
    1: 1024,  # threads a block
    2: 1024,  # block x
    3: 1024,  # block y
    4: 64,  # block z
    5: 2**31 - 1,  # grid x
    6: 65535,  # grid y
    7: 65535,  # grid z
    8: 48 * 1024,  # shared memory a block without opting in
    10: 32,  # warp size
    12: 65536,  # registers a block
    39: 2048,  # threads a multiprocessor
    81: 228 * 1024,  # shared memory a multiprocessor
    82: 65536,  # registers a multiprocessor
    95: 1,  # cooperative launch
    97: 227 * 1024,  # shared memory a block after opting in
    106: 32,  # blocks a multiprocessor
    111: 1024,  # reserved shared memory a block
}


def _signed(word: int) -> int:
    """A 32-bit int argument: the upper half of its word is undefined."""
    return ctypes.c_int32(word & 0xFFFFFFFF).value


def _write(address: int, value: int) -> None:
    ctypes.c_int32.from_address(address).value = value


def _write_handle(address: int, value: int) -> None:
    ctypes.c_uint64.from_address(address).value = value


def _load(door: Door, host: Host, library: int, image: int, *_: int) -> None:
    _write_handle(library, door.load(image))


def _unload(door: Door, host: Host, library: int) -> None:
    door.unload(library)


def _get_kernel(door: Door, host: Host, kernel: int, library: int, name: int) -> None:
    _write_handle(kernel, door.look_up(library, ctypes.string_at(name).decode()))


def _kernel_attribute(door: Door, host: Host, value: int, attribute: int, handle: int, device: int) -> None:
    if _signed(attribute) != _KERNEL_SHARED_BYTES:
        raise UnsupportedCall(
            f"cuKernelGetAttribute: attribute {_signed(attribute)} is not known to the emulated driver"
        )
    kernel = door.kernel(handle)
    _write(value, host.static_shared(door.ptx(kernel), kernel.image, kernel.name))


def _set_kernel_attribute(door: Door, host: Host, handle: int, attribute: int, value: int, device: int = 0) -> None:
    door.kernel(handle)
    if _signed(attribute) not in _KERNEL_SETTABLE:
        raise UnsupportedCall(f"kernel attribute {_signed(attribute)} is not known to the emulated driver")


def _device_attribute(door: Door, host: Host, value: int, attribute: int, device: int) -> None:
    major, minor = _CAPABILITY[host.arch]
    known = _DEVICE | {16: host.multiprocessors, 75: major, 76: minor}
    if _signed(attribute) not in known:
        raise UnsupportedCall(
            f"cudaDeviceGetAttribute: attribute {_signed(attribute)} is not known to the emulated driver"
        )
    _write(value, known[_signed(attribute)])


def _occupancy(door: Door, host: Host, blocks: int, kernel: int, threads: int, shared: int) -> None:
    door.kernel(kernel)
    _write(blocks, 1)


def _launch_ex(door: Door, host: Host, config: int, handle: int, arguments: int) -> None:
    _run(door, host, handle, abi.read_config(config), arguments)


def _launch(door: Door, host: Host, handle: int, *words: int) -> None:
    gx, gy, gz, bx, by, bz, arguments, shared, _stream = words
    grid, block = (gx, gy, gz), (bx, by, bz)
    _run(door, host, handle, abi.Shape(grid, block, (1, 1, 1), shared), arguments)


def _run(door: Door, host: Host, handle: int, shape: abi.Shape, arguments: int) -> None:
    kernel = door.kernel(handle)
    host.run_kernel(door.ptx(kernel), kernel.image, kernel.name, shape, arguments)


def _encode(door: Door, host: Host, address: int, kind: int, rank: int, base: int, *words: int) -> None:
    """cuTensorMapEncodeTiled: sizes and strides are 64-bit, boxes and element strides 32-bit; strides leave out mode
    0."""
    sizes, strides, box, steps, interleave, swizzle, promotion, fill = words
    modes = _signed(rank)
    if not 1 <= modes <= 5:
        raise ValueError(f"cuTensorMapEncodeTiled: tensorRank={modes} must be 1 to 5")
    fields = (
        _signed(kind),
        base,
        tuple((ctypes.c_uint64 * modes).from_address(sizes)),
        tuple((ctypes.c_uint64 * (modes - 1)).from_address(strides)) if modes > 1 else (),
        tuple((ctypes.c_uint32 * modes).from_address(box)),
        tuple((ctypes.c_uint32 * modes).from_address(steps)),
        *(_signed(word) for word in (interleave, swizzle, promotion, fill)),
    )
    host.encode_tensor_map(address, fields)


def _zero(door: Door, host: Host, value: int, *_: int) -> None:
    _write(value, 0)


def _one(door: Door, host: Host, value: int) -> None:
    _write(value, 1)


def _nothing(door: Door, host: Host, *_: int) -> None:
    """Selecting the only device."""


def _wait(call: str) -> Callable[..., None]:
    def waited(door: Door, host: Host, *_: int) -> None:
        host.waited(call)

    return waited


def _assert_success(door: Door, host: Host, code: int) -> None:
    raise UnsupportedCall(f"host code asserted that a call had succeeded; it had returned {_signed(code)}")


CALLS: dict[str, Callable[..., None]] = {
    "_cudaLibraryLoadData": _load,
    "_cuLibraryLoadData": _load,
    "_cudaLibraryUnload": _unload,
    "_cuLibraryUnload": _unload,
    "_cudaLibraryGetKernel": _get_kernel,
    "_cuLibraryGetKernel": _get_kernel,
    "_cuKernelGetAttribute": _kernel_attribute,
    "_cudaKernelSetAttributeForDevice": _set_kernel_attribute,
    "_cudaFuncSetAttribute": _set_kernel_attribute,
    "_cudaDeviceGetAttribute": _device_attribute,
    "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": _occupancy,
    "_cudaLaunchKernelEx": _launch_ex,
    "_cudaLaunchKernel": _launch,
    "_cuTensorMapEncodeTiled": _encode,
    "_cudaGetDevice": _zero,
    "_cuDeviceGet": _zero,
    "_cudaGetDeviceCount": _one,
    "_cudaSetDevice": _nothing,
    "_cudaStreamSynchronize": _wait("cudaStreamSynchronize"),
    "_cudaDeviceSynchronize": _wait("cudaDeviceSynchronize"),
    "cuda_dialect_assert_success": _assert_success,
}
