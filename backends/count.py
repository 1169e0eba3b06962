"""Counting, on a CPU, what torch would do on a GPU: launches, waits and bytes. A GPU counts by CUPTI instead
(`backends.cuda`).

Two modes watch torch: one below autograd sees each `aten` operation, one at the Python API sees what never becomes an
operation on a CPU (`.cpu()`, `.tolist()`, `.numpy()`). Every tensor counts as a device tensor: keep host data in
Python numbers. Rules: a view or an allocation is no launch; an operation whose results are all empty is none; any
other is one, although a GPU may need several kernels for it (a sort). Copying a Python list to the device
(`torch.tensor([...])`) is neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from backends.base import Counters

# Operations that need no kernel, besides views. A 0-dimensional constant stays on the host.
_FREE = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "scalar_tensor",
    "set_",
    "_unsafe_view",
}
# Operations whose result reaches the host, or whose output size is decided on the device.
_READ_BACK = {"_local_scalar_dense"}
_WAITS = {"allclose", "bincount", "equal", "masked_select", "nonzero", "unique_consecutive", "unique_dim", "_unique2"}
_MASKABLE = {"index", "index_put", "index_put_"}
# Python-level calls that read a tensor back and that a CPU tensor answers without an operation.
_API_WAITS = {
    "TensorBase.cpu": "cpu",
    "TensorBase.numpy": "numpy",
    "TensorBase.tolist": "tolist",
    "Tensor.__array__": "numpy",
    "Tensor.__repr__": "repr",
    "Tensor.__format__": "format",
    "Tensor.__reduce_ex__": "pickle",
}


class _Operations(TorchDispatchMode):
    """Counts `aten` operations."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import its compiler at the first operation, for 1.2 s, to keep it out of this mode."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = {t.untyped_storage()._cdata for t in _tensors(args)} | {
            t.untyped_storage()._cdata for t in _tensors(kwargs)
        }
        result = operation(*args, **kwargs)
        name = operation.overloadpacket.__name__
        waits = name in _WAITS or name in _READ_BACK or _waits_by_arguments(name, args, kwargs)
        if waits:
            self._counters.sync_calls.append("item" if name in _READ_BACK else name)
        outputs = list(_tensors(result))
        if _launches(operation, name, outputs):
            self._counters.operations.append(name)
        if not operation.is_view:
            self._allocated([t for t in outputs if t.untyped_storage()._cdata not in known])
        return result

    def _allocated(self, tensors: list[torch.Tensor]) -> None:
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        for t in tensors:
            storage = t.untyped_storage()
            self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        now = sum(nbytes for _, nbytes in self._alive.values())
        self._counters.peak_bytes = max(self._counters.peak_bytes, now)


class _Api(TorchFunctionMode):
    """Counts reads of a tensor that don't become an operation."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__qualname__", "")
        if name in _API_WAITS:
            # What the call does inside (`repr` reads items) belongs to this one wait.
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                result = function(*args, **kwargs)
            self._counters.sync_calls.append(_API_WAITS[name])
            return result
        if name == "TensorBase.to" and any(_is_cpu(a) for a in (*args[1:], kwargs.get("device"))):
            self._counters.sync_calls.append("to")
        return function(*args, **kwargs)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _is_cpu(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).split(":")[0] == "cpu"


def _launches(operation: Any, name: str, outputs: list[torch.Tensor]) -> bool:
    if operation.is_view or name in _FREE or name in _READ_BACK:
        return False
    return not outputs or any(t.numel() for t in outputs)


def _waits_by_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """A boolean mask as an index is turned into positions on the host's demand; so are repeats without an output
    size."""
    if name in _MASKABLE:
        return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return name == "repeat_interleave" and kwargs.get("output_size") is None


@contextmanager
def counting(counters: Counters) -> Iterator[None]:
    """Let torch operations of this thread count into `counters`."""
    with _Api(counters), _Operations(counters):
        yield
