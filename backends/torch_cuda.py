"""Torch on a CPU, claiming to have the emulated GPU: for code that asks torch for one before it calls CuTe DSL.

"cuda" as a device means the CPU, and every tensor says `is_cuda`. Streams and events do nothing, since launches are
synchronous; events measure wall time. A CUDA graph can hold launches, but not operations of torch, which are not
delayed. Tensors made inside are aligned to 256 bytes, as torch's CUDA allocator does at least; torch's CPU allocator
gives 64, and kernels ask for 128.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from backends.dlpack import ALIGN
from backends.patches import Patches

if TYPE_CHECKING:
    from backends.emulation import EmulatedBackend

_CAPABILITY = {"sm_90a": (9, 0), "sm_100a": (10, 0)}
_MEMORY_BYTES = {"sm_90a": 80 << 30, "sm_100a": 192 << 30}


class Stream:
    """The only stream."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *args: Any, **settings: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is under way."""

    def wait_event(self, event: Any) -> None:
        """Nothing is under way."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event of now."""
        event = event or Event()
        event.record(self)
        return event


class Event:
    """A moment of wall time."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds from this event to `later`."""
        return (later.seconds - self.seconds) * 1e3

    def synchronize(self) -> None:
        """Nothing is under way."""

    def query(self) -> bool:
        """Whether everything before the event is done."""
        return True


class Graph:
    """The launches that were captured; their order is that of the one stream."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.launches: list[Callable[[], None]] = []

    def replay(self) -> None:
        """Run the launches."""
        for launch in self.launches:
            launch()


def pretend(patches: Patches, backend: EmulatedBackend) -> None:
    """Let torch claim to have a GPU of the backend's architecture until `patches` closes."""
    for name, answer in _answers(backend).items():
        patches.set(torch.cuda, name, answer)
    # A class attribute is also seen where function modes are off, as inside autograd's backward pass.
    patches.set(torch.Tensor, "is_cuda", property(lambda tensor: True))
    custom_op = torch.library.custom_op

    def anywhere(*args: Any, device_types: Any = None, **settings: Any) -> Any:
        return custom_op(*args, **settings)

    patches.set(torch.library, "custom_op", anywhere)
    patches.enter_context(_Devices())


def _answers(backend: EmulatedBackend) -> dict[str, Any]:
    """What torch.cuda says, by name."""
    capability = _CAPABILITY[backend.arch]
    memory = _MEMORY_BYTES[backend.arch]
    properties = SimpleNamespace(
        name=backend.evidence,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=backend.multiprocessors,
        total_memory=memory,
        L2_cache_size=backend.l2_bytes,
        warp_size=32,
    )
    stream = Stream()

    @contextmanager
    def graph(cuda_graph: Graph, *args: Any, **settings: Any) -> Iterator[None]:
        with backend.count() as counters, backend.recording() as launches:
            yield
        if counters.operations:
            raise NotImplementedError(
                f"a CUDA graph on the emulator can hold launches only, not torch's {', '.join(counters.operations)}"
            )
        cuda_graph.launches = launches

    def nothing(*args: Any, **settings: Any) -> None:
        return None

    silent = "_lazy_init init synchronize empty_cache set_device manual_seed manual_seed_all reset_peak_memory_stats"
    # torch's compiler wants every function of torch to be another object.
    return {name: FunctionType(nothing.__code__, {}, name) for name in silent.split()} | {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: backend.evidence,
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (memory, memory),
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "device": lambda device=None: nullcontext(),
        "stream": lambda chosen=None: nullcontext(chosen),
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": graph,
    }


class _Devices(TorchFunctionMode):
    """Takes "cuda" for the CPU and aligns the memory of new tensors."""

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = {name: _on_cpu(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        name = getattr(function, "__name__", "")
        if name == "cuda":
            return _aligned(args[0].clone(), ())
        if name == "to":
            args = tuple(_on_cpu(a) if isinstance(a, (str, torch.device)) else a for a in args)
        elif any(isinstance(a, torch.device) for a in args):
            args = tuple(_on_cpu(a) if isinstance(a, torch.device) else a for a in args)
        return _aligned(function(*args, **kwargs), args)


def _on_cpu(device: Any) -> Any:
    """`device`, or the CPU in place of a CUDA device."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    return "cpu" if isinstance(device, int) or (isinstance(device, str) and device.startswith("cuda")) else device


def _aligned(result: Any, args: tuple[Any, ...]) -> Any:
    """A new tensor gets aligned memory of its own: one that shares its storage with no argument, from its beginning."""
    if isinstance(result, (tuple, list)):
        for part in result:
            _aligned(part, args)
        return result
    if not isinstance(result, torch.Tensor) or result.device.type != "cpu" or result.layout is not torch.strided:
        return result
    storage = result.untyped_storage()
    if storage.data_ptr() % ALIGN == 0 or result.storage_offset() or not storage.nbytes():
        return result
    if any(isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == storage._cdata for a in args):
        return result
    raw = np.empty(storage.nbytes() + ALIGN, np.uint8)
    first = -raw.ctypes.data % ALIGN
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        fresh = torch.from_numpy(raw[first : first + storage.nbytes()])
        fresh.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
        result.data = torch.empty(0, dtype=result.dtype).set_(fresh.untyped_storage(), 0, result.shape, result.stride())
    return result
