"""The real GPU: torch.cuda tensors without a copy, cuda-python for streams and events, CUPTI for counting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from backends.base import Compiled, Counters, NoDevice
from backends.cache import Cache
from backends.common import CommonBackend

# Compute capability to the architecture whose kernels run on it.
_ARCH_OF = {(9, 0): "sm_90a", (10, 0): "sm_100a"}
# CUDA runtime and driver calls that make the host wait.
_WAITS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
)
_REGION = "backend.count"


def gpu_arch(index: int = 0) -> str | None:
    """The architecture of this machine's GPU: sm_90a, sm_100a, `sm_<capability>` for others, None without a usable
    GPU."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(index)
    return _ARCH_OF.get((major, minor), f"sm_{major}{minor}")


class CudaBackend(CommonBackend):
    """Runs kernels on GPU `index`. Raises NoDevice unless there is one of architecture `arch`."""

    name = "cuda"

    def __init__(self, arch: str = "sm_100a", cache: Cache | None = None, *, index: int = 0) -> None:
        super().__init__(arch, cache)
        found = gpu_arch(index)
        if found is None:
            raise NoDevice(f"no CUDA device: {_why_none()}; use the emulated backend")
        if found != arch:
            name = torch.cuda.get_device_name(index)
            raise NoDevice(f"no CUDA device for {arch}: {name} is {found}; use arch={found!r} or the emulated backend")
        self._index = index
        self._known: set[str] = set()

    @property
    def evidence(self) -> str:
        """Capability and name, such as `sm_90 NVIDIA H200`."""
        major, minor = torch.cuda.get_device_capability(self._index)
        return f"sm_{major}{minor} {torch.cuda.get_device_name(self._index)}"

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", self._index)

    @property
    def multiprocessors(self) -> int:
        """The GPU's multiprocessors."""
        return torch.cuda.get_device_properties(self._index).multi_processor_count

    def stream(self) -> Any:
        """Torch's current stream."""
        from cuda.bindings.driver import CUstream

        return CUstream(torch.cuda.current_stream(self._index).cuda_stream)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> torch.Tensor:
        """Uninitialised memory for an output; torch aligns it to 512 bytes. Nothing is launched."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._index)

    def launch(self, compiled: Compiled, *args: Any, touches: dict[str, torch.Tensor] | None = None) -> None:
        """Run the host function of `compiled` with `args`, as given to `compile`; asynchronous. Device faults surface
        at the next wait.

        `touches` only matters to the emulator.
        """
        given = self._launchable(compiled, self._present(args))
        self._known.update(compiled.kernels)
        with torch.cuda.device(self._index):
            compiled.function(*given)

    def time(self, run: Callable[[], Any], repeats: int = 20, cold: bool = True) -> list[float]:
        """Seconds of device time of each of `repeats` calls of `run`, after one that isn't timed.

        cold: the L2 cache is overwritten before each call. Timed by events on torch's current stream, so launches that
        `run` puts on other streams are not seen.
        """
        from cuda.bindings import runtime

        stream = torch.cuda.current_stream(self._index).cuda_stream
        flush = torch.empty(
            2 * torch.cuda.get_device_properties(self._index).L2_cache_size, dtype=torch.uint8, device=self.device
        )
        begin, end = _ok(runtime.cudaEventCreate()), _ok(runtime.cudaEventCreate())
        seconds: list[float] = []
        try:
            run()
            for _ in range(repeats):
                if cold:
                    flush.zero_()
                _ok(runtime.cudaEventRecord(begin, stream))
                run()
                _ok(runtime.cudaEventRecord(end, stream))
                _ok(runtime.cudaEventSynchronize(end))
                seconds.append(_ok(runtime.cudaEventElapsedTime(begin, end)) * 1e-3)
        finally:
            runtime.cudaEventDestroy(begin)
            runtime.cudaEventDestroy(end)
        return seconds

    def capture(self, run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
        """`run` as a CUDA graph, captured after one call outside it; `.replay()` launches it. What `run` allocates
        lives in the graph's own pool."""
        side = torch.cuda.Stream(self._index)
        side.wait_stream(torch.cuda.current_stream(self._index))
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream(self._index).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph

    @contextmanager
    def _counting(self, counters: Counters) -> Iterator[None]:
        """CUPTI's records of the region: kernels and device-to-device copies are launches, runtime calls that block
        are waits."""
        from torch.profiler import ProfilerActivity, profile, record_function

        torch.cuda.synchronize(self._index)
        torch.cuda.reset_peak_memory_stats(self._index)
        before = torch.cuda.memory_allocated(self._index)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            with record_function(_REGION):
                yield
            peak = torch.cuda.max_memory_allocated(self._index)
            torch.cuda.synchronize(self._index)
        counters.peak_bytes = max(0, peak - before)
        tally(profiler.events(), self._known, counters)


def tally(events: Any, known: set[str], counters: Counters) -> None:
    """Sort CUPTI's records into `counters`: kernels named in `known` are ours, other device work is torch's.

    The host's records count only inside the region, which leaves out the profiler's own waits at both ends.
    """
    region = next(e.time_range for e in events if e.name == _REGION and not _on_device(e))
    for event in sorted(events, key=lambda e: e.time_range.start):
        if event.name == _REGION:
            continue
        if _on_device(event):
            if event.name in known:
                counters.kernels.append(event.name)
            elif not event.name.startswith(("Memcpy HtoD", "Memcpy DtoH")):
                counters.operations.append(event.name)
        elif event.name in _WAITS and region.start <= event.time_range.start <= region.end:
            counters.sync_calls.append(event.name)


def _on_device(event: Any) -> bool:
    return event.device_type == torch.autograd.DeviceType.CUDA


def _ok(answer: tuple[Any, ...]) -> Any:
    """The value of a cuda-python call; RuntimeError with the error's name if it failed."""
    if int(answer[0]):
        raise RuntimeError(f"CUDA call failed: {answer[0]!r}")
    return answer[1] if len(answer) > 1 else None


def _why_none() -> str:
    """Why torch sees no GPU."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    return "torch.cuda.is_available() is False"
