"""The memory that kernels may touch when nobody hands a list of tensors to the launch.

On a GPU a kernel reaches a tensor because somebody gave it the address: as a DLPack tensor, through TVM-FFI, or as a
number. `Reach` watches these three ways. A tensor can be reached from the moment when its address is given away until
its storage is freed; anything else is a MemoryFault. A tensor that is given as such can be reached within its own
span; one whose `data_ptr()` is asked for, within its storage, since an address says nothing about an extent.

Tensors are announced as CUDA memory: of a CPU tensor the DSL would make a *generic* pointer, and other PTX.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from backends import dlpack
from backends.patches import Patches
from emulator.memory.globals import GlobalMemory, Region

_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
# DLPackExchangeAPI: a header of 16 bytes, then function pointers.
_SLOTS_AT = 16
_MANAGED_FROM_OBJECT, _TENSOR_FROM_OBJECT, _CURRENT_STREAM = 1, 3, 4
_FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


class DLTensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]

    def span(self) -> tuple[int, int, tuple[int, ...], str]:
        """Address, bytes from the first to the last element, shape, and the element's type as text."""
        shape = tuple(self.shape[: self.ndim])
        element = self.bits * self.lanes
        last = 0
        for mode, extent in enumerate(shape):
            # Without strides the tensor is compact.
            compact = 1
            for following in shape[mode + 1 :]:
                compact *= following
            last += (extent - 1) * abs(self.strides[mode] if self.strides else compact)
        nbytes = 0 if 0 in shape else -(-(last + 1) * element // 8)
        return self.data + self.byte_offset, nbytes, shape, f"{_CODES.get(self.code, f'type {self.code}, ')}{element}"


class Reach:
    """Tensors whose addresses have been given away, and one GlobalMemory that follows them."""

    def __init__(self) -> None:
        self._memory = GlobalMemory()
        self._regions: dict[tuple[int, int, int], tuple[Region, Callable[[], bool]]] = {}
        self._given: dict[tuple[int, int, int], tuple[tuple[int, ...], str, Callable[[], bool]]] = {}
        # What torch raised when TVM-FFI asked for a tensor: it cannot travel through the C function that we wrap.
        self.failure: BaseException | None = None

    def memory(self) -> GlobalMemory:
        """The memory of every given tensor that is still alive. One object, brought up to date by each call."""
        for key, (region, dead) in list(self._regions.items()):
            if dead():
                self._memory.unregister(region)
                del self._regions[key]
        given, self._given = self._given, {}
        for key, (shape, dtype, dead) in given.items():
            if key not in self._regions and not dead():
                self._regions[key] = self._memory.register(*key[:2], "tensor", True, shape, dtype), dead
        return self._memory

    def give(self, tensor: DLTensor, owner: Any) -> None:
        """`tensor` is about to reach a kernel; its memory lives as long as the storage of `owner`, if that is a torch
        tensor, else as long as `owner`."""
        tensor.device_type = dlpack.KDL_CUDA
        address, nbytes, shape, dtype = tensor.span()
        if isinstance(owner, torch.Tensor):
            storage = owner.untyped_storage()
            self._given[address, nbytes, storage._cdata] = shape, dtype, StorageWeakRef(storage).expired
        else:
            alive = weakref.ref(owner)
            self._given[address, nbytes, id(owner)] = shape, dtype, lambda: alive() is None

    def give_address(self, owner: torch.Tensor) -> None:
        """The address of some element of `owner` is about to be known."""
        storage = owner.untyped_storage()
        dtype = str(owner.dtype).removeprefix("torch.")
        key = storage.data_ptr(), storage.nbytes(), storage._cdata
        self._given[key] = tuple(owner.shape), dtype, StorageWeakRef(storage).expired

    def watch(self, patches: Patches) -> None:
        """Watch the three ways until `patches` closes."""
        _watch_addresses(self, patches)
        _watch_runtime_tensors(self, patches)
        _watch_tvm_ffi(self, patches)


def _watch_addresses(reach: Reach, patches: Patches) -> None:
    def data_ptr(tensor: torch.Tensor) -> int:
        address: int = before(tensor)
        if address and tensor.device.type == "cpu":
            reach.give_address(tensor)
        return address

    before = patches.set(torch.Tensor, "data_ptr", data_ptr)


def _watch_runtime_tensors(reach: Reach, patches: Patches) -> None:
    from cutlass.cute.runtime import _Tensor

    def init(runtime_tensor: Any, tensor: Any, *args: Any, **settings: Any) -> None:
        device = getattr(getattr(tensor, "device", None), "type", "cpu")
        if device not in ("cpu", "meta"):
            raise ValueError(f"from_dlpack: the tensor is on {device}; emulated() takes CPU tensors")
        before(runtime_tensor, tensor, *args, **settings)
        capsule = runtime_tensor._dlpack_data
        kind = dlpack.capsule_name(capsule)
        if kind in _TENSOR_AT:
            held = DLTensor.from_address(dlpack.capsule_pointer(capsule, kind) + _TENSOR_AT[kind])
            reach.give(held, tensor if isinstance(tensor, torch.Tensor) else runtime_tensor)

    before = patches.set(_Tensor, "__init__", init)


def _watch_tvm_ffi(reach: Reach, patches: Patches) -> None:
    """TVM-FFI takes torch tensors through a table of C functions that torch publishes: wrap those that it calls."""
    capsule = torch.Tensor.__dlpack_c_exchange_api__
    table = dlpack.capsule_pointer(capsule, b"dlpack_exchange_api") + _SLOTS_AT

    def managed(obj: int, out: int) -> int:
        def locate() -> int:
            return (ctypes.c_void_p.from_address(out).value or 0) + _TENSOR_AT[b"dltensor_versioned"]

        return give(managed_before, obj, out, locate)

    def tensor(obj: int, out: int) -> int:
        return give(tensor_before, obj, out, lambda: out)

    def give(function: Callable[[int, int], int], obj: int, out: int, locate: Callable[[], int]) -> int:
        try:
            code = function(obj, out)
            if not code:
                reach.give(DLTensor.from_address(locate()), ctypes.cast(obj, ctypes.py_object).value)
        except Exception as error:
            reach.failure = error
            return -1
        return code

    def stream(device_type: int, device_id: int, out: Any) -> int:
        out[0] = None
        return 0

    managed_before = _FROM_OBJECT(_swap(table, _MANAGED_FROM_OBJECT, _FROM_OBJECT(managed), patches))
    tensor_before = _FROM_OBJECT(_swap(table, _TENSOR_FROM_OBJECT, _FROM_OBJECT(tensor), patches))
    _swap(table, _CURRENT_STREAM, _STREAM(stream), patches)


def _swap(table: int, slot: int, function: Any, patches: Patches) -> int:
    """Put `function` into a slot of a table of C functions; returns the address that was there."""
    place = ctypes.c_void_p.from_address(table + 8 * slot)
    before = place.value or 0

    def restore(_kept: Any = function) -> None:
        place.value = before

    patches.callback(restore)
    place.value = ctypes.cast(function, ctypes.c_void_p).value
    return before
