"""Torch tensors as the DSL's runtime tensors and pointers in global memory, without a copy.

What the DSL does with a DLPack tensor, measured on nvidia-cutlass-dsl 4.8.1:

- A CPU tensor becomes memory space *generic*: other PTX, and copies that refuse to compile. `device_type` in the
  capsule is therefore rewritten to CUDA when emulated; the PTX is then what a GPU gets.
- `mark_layout_dynamic(leading_dim)` gives `(?,?):(?{i64},1)`: every extent and every stride but that of the leading
  mode is read at run time. One compile serves all shapes. Without `leading_dim` it takes the only mode of stride 1,
  or, of several, the only one with more than one element: a [m, 1] tensor would then become *column major*, another
  type and another compile. `present` therefore takes the last mode of stride 1.
- `mark_compact_shape_dynamic(mode, divisibility)` on top promises that an extent is divisible and carries the promise
  to the strides, `(?,?{div=8}):(?{i64 div=8},1)`. It refuses a tensor that isn't compact.
- torch.float4_e2m1fn_x2 holds two values a byte and becomes f4E2M1FN with *twice* the extent along the stride-1 mode.
  Setting `element_type` on a uint8 tensor keeps the extent in bytes, which is wrong: `present` views it first.
- Alignment is looked at when the tensor is launched, with a message that names no tensor: `present` checks it first.
- A tensor with no elements has a null pointer and is accepted; a scalar tensor has the layout `():()`.
- 14 us a tensor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from emulator.memory.globals import ALLOCATIONS

KDL_CUDA = 2
# Offset of `device.device_type` in DLManagedTensor and DLManagedTensorVersioned.
_DEVICE_TYPE_AT = {b"dltensor": 8, b"dltensor_versioned": 40}
# Bytes that CPU memory is aligned to when a backend allocates it: kernels may ask for 128.
ALIGN = 256

_poisoned: dict[int, tuple[int, int, Callable[[], bool]]] = {}
"""Allocations that hold nothing yet, by their storage: number, torch's version of the tensor, whether it is gone."""

capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype = ctypes.c_char_p
capsule_name.argtypes = [ctypes.py_object]


@dataclass(frozen=True)
class Region:
    """The bytes that a tensor spans, from its first to its last element (a strided view includes what lies between).
    `poisoned`: the number of the allocation if nothing but kernels has written to it, else 0. `strides`: in bytes, of
    a tensor that isn't contiguous (and repeats no element)."""

    address: int
    nbytes: int
    name: str
    writable: bool
    shape: tuple[int, ...]
    dtype: str
    owner: torch.Tensor
    poisoned: int = 0
    strides: tuple[int, ...] = ()


class OnDevice:
    """A DLPack producer that announces a tensor's memory as CUDA memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDL_CUDA, 0

    def __dlpack__(self, stream: int | None = None, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        kind = capsule_name(capsule)
        ctypes.c_int.from_address(capsule_pointer(capsule, kind) + _DEVICE_TYPE_AT[kind]).value = KDL_CUDA
        return capsule


def region(tensor: torch.Tensor, name: str, writable: bool = True) -> Region:
    """The region of `tensor`; 0 bytes when it has no elements."""
    last = sum((extent - 1) * abs(stride) for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    nbytes = (last + 1) * tensor.element_size() if tensor.numel() else 0
    plain = tensor.is_contiguous() or min(tensor.stride()) <= 0
    strides = () if plain else tuple(stride * tensor.element_size() for stride in tensor.stride())
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Region(
        tensor.data_ptr(), nbytes, name, writable, tuple(tensor.shape), dtype, tensor, poison(tensor), strides
    )


def lead(tensor: torch.Tensor, name: str, leading_dim: int | None) -> tuple[torch.Tensor, int | None]:
    """`tensor` and its mode of stride 1: `leading_dim` if given, else the last mode of stride 1, or None when there
    is none.

    A given mode with at most one element may have any stride: it is viewed with stride 1. Raises ValueError for a
    given mode that doesn't exist or that has several elements and another stride.
    """
    strides = tensor.stride()
    if leading_dim is None:
        return tensor, max((d for d, stride in enumerate(strides) if stride == 1), default=None)
    if not -tensor.dim() <= leading_dim < tensor.dim():
        raise ValueError(f"tensor {name}: leading_dim={leading_dim} is outside a tensor of {tensor.dim()} modes")
    mode = leading_dim % tensor.dim()
    if strides[mode] == 1:
        return tensor, mode
    if tensor.shape[mode] > 1:
        raise ValueError(
            f"tensor {name}: leading_dim={leading_dim} has stride {strides[mode]}, not 1; "
            f"shape {tuple(tensor.shape)}, strides {strides}"
        )
    return tensor.as_strided(tensor.shape, tuple(1 if d == mode else s for d, s in enumerate(strides))), mode


def check(tensor: torch.Tensor, name: str, align: int, device: torch.device) -> torch.Tensor:
    """`tensor` without its gradient. Raises ValueError when it is on another device, or when its address is no
    multiple of `align` bytes (a power of two)."""
    if align < 1 or align & (align - 1):
        raise ValueError(f"tensor {name}: align={align} must be a power of two")
    if tensor.device.type != device.type or (tensor.device.index or 0) != (device.index or 0):
        raise ValueError(f"tensor {name} is on {tensor.device}, this backend's tensors live on {device}")
    if tensor.data_ptr() % align:
        raise ValueError(
            f"tensor {name}: address {tensor.data_ptr():#x} is not a multiple of {align} bytes "
            f"(shape {tuple(tensor.shape)}, {tensor.dtype}, storage offset {tensor.storage_offset()})"
        )
    return tensor.detach()


def _packed(tensor: torch.Tensor, name: str, element_type: Any) -> torch.Tensor:
    """`tensor` as the DSL is to see it: bytes that hold 4-bit elements become torch's packed type."""
    width = getattr(element_type, "width", None)
    if width != 4 or tensor.dtype is torch.float4_e2m1fn_x2:
        return tensor
    if tensor.element_size() != 1:
        raise ValueError(
            f"tensor {name}: element_type {element_type.__name__} packs two to a byte, but dtype is {tensor.dtype}"
        )
    return tensor.view(torch.float4_e2m1fn_x2)


def present(
    tensor: torch.Tensor,
    name: str,
    *,
    device: torch.device,
    leading_dim: int | None = None,
    align: int = 16,
    dynamic: bool = True,
    element_type: Any = None,
    divisibility: dict[int, int] | None = None,
    writable: bool = True,
) -> Any:
    """The DSL's runtime tensor on `tensor`'s memory; see the module's docstring and `CommonBackend.tensor`."""
    from cutlass.cute.runtime import from_dlpack

    detached = _packed(check(tensor, name, align, device), name, element_type)
    detached, mode = lead(detached, name, leading_dim)
    source = OnDevice(detached) if device.type == "cpu" else detached
    runtime_tensor: Any = from_dlpack(source, assumed_align=align)
    if element_type is not None:
        runtime_tensor.element_type = element_type
    if dynamic and detached.dim():
        runtime_tensor.mark_layout_dynamic(leading_dim=mode)
    for promised, divisor in (divisibility or {}).items():
        extent = runtime_tensor.shape[promised]
        if extent % divisor:
            raise ValueError(f"tensor {name}: mode {promised} has {extent} elements, which {divisor} does not divide")
        order = tuple(sorted(range(detached.dim()), key=lambda d: detached.stride(d), reverse=True))
        runtime_tensor.mark_compact_shape_dynamic(mode=promised, stride_order=order, divisibility=divisor)
    # The launch finds the memory behind its arguments here.
    runtime_tensor.region = region(detached, name, writable)
    return runtime_tensor


def point(tensor: torch.Tensor, name: str, *, device: torch.device, align: int = 16, element_type: Any = None) -> Any:
    """A typed pointer to `tensor`'s first element in global memory; the memory that it may reach is the tensor's."""
    from cutlass.cute import AddressSpace
    from cutlass.cute.runtime import make_ptr

    detached = check(tensor, name, align, device)
    chosen = element_type or present(detached, name, device=device, align=align).element_type
    pointer: Any = make_ptr(chosen, detached.data_ptr(), AddressSpace.gmem, assumed_align=align)
    pointer.region = region(detached, name)
    return pointer


def as_tvm_ffi(argument: Any, device: torch.device) -> Any:
    """A launch argument as a TVM-FFI function takes it: tensors by DLPack, the DSL's numbers as Python numbers."""
    import tvm_ffi

    if isinstance(argument, (tuple, list)):
        return type(argument)(as_tvm_ffi(a, device) for a in argument)
    own = getattr(argument, "region", None)
    if isinstance(own, Region) and hasattr(argument, "load_dltensor"):
        return tvm_ffi.from_dlpack(OnDevice(own.owner) if device.type == "cpu" else own.owner)
    return argument.value if hasattr(type(argument), "mlir_type") and hasattr(argument, "value") else argument


def regions(arguments: Any) -> list[Region]:
    """The regions behind launch arguments, in order, looking into tuples, lists, dicts and dataclasses."""
    found: list[Region] = []
    for argument in arguments:
        own = getattr(argument, "region", None)
        if isinstance(own, Region):
            found.append(own)
        elif isinstance(argument, (tuple, list)):
            found += regions(argument)
        elif isinstance(argument, dict):
            found += regions(argument.values())
        elif hasattr(argument, "__dataclass_fields__"):
            found += regions(getattr(argument, field) for field in argument.__dataclass_fields__)
    return found


def aligned_empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised CPU memory at a multiple of ALIGN bytes with every byte 0xFF: NaN, -1 or the largest index, so
    that an element which a kernel forgets to write shows. Written past torch: it counts as no launch."""
    itemsize = torch.empty((), dtype=dtype).element_size()
    count = 1
    for extent in shape:
        count *= extent
    if not count:
        return torch.empty(shape, dtype=dtype)
    raw = torch.empty(count * itemsize + ALIGN, dtype=torch.uint8)
    first = -raw.data_ptr() % ALIGN
    ctypes.memset(raw.data_ptr(), 0xFF, raw.numel())
    made = raw[first : first + count * itemsize].view(dtype).view(shape)
    _remember(made)
    return made


def _remember(tensor: torch.Tensor) -> None:
    """Note that what `tensor` holds means nothing, until torch writes to it (which changes its version)."""
    for key in [k for k, (_, _, expired) in _poisoned.items() if expired()]:
        del _poisoned[key]
    if not tensor.is_inference():
        storage = tensor.untyped_storage()
        _poisoned[storage._cdata] = next(ALLOCATIONS), tensor._version, StorageWeakRef(storage).expired


def poison(tensor: torch.Tensor) -> int:
    """The number of the allocation by `aligned_empty` that `tensor` is (part of), 0 if it is none or if torch has
    written to it since. Writes past torch (NumPy, `.data`) aren't seen."""
    number, version, expired = _poisoned.get(tensor.untyped_storage()._cdata, (0, 0, bool))
    fresh = number and not expired() and not tensor.is_inference() and tensor._version == version
    return number if fresh else 0
