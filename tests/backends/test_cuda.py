"""The CUDA backend where there is no GPU, and the sorting of CUPTI's records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import backends
from backends.base import Counters
from backends.cuda import tally


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_cuda_device_is_named(cache):
    with pytest.raises(backends.NoDevice, match="no CUDA device: .*use the emulated backend"):
        backends.get("cuda", cache=cache)


def test_a_gpu_of_another_architecture_is_named(cache, monkeypatch):
    monkeypatch.setattr("backends.cuda.gpu_arch", lambda index=0: "sm_90a")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index=0: "NVIDIA H200")
    with pytest.raises(backends.NoDevice, match="no CUDA device for sm_100a: NVIDIA H200 is sm_90a"):
        backends.get("cuda", "sm_100a", cache=cache)


def event(name: str, device: str, start: float, end: float = 0.0) -> SimpleNamespace:
    kind = torch.autograd.DeviceType.CUDA if device == "cuda" else torch.autograd.DeviceType.CPU
    return SimpleNamespace(name=name, device_type=kind, time_range=SimpleNamespace(start=start, end=end or start))


def test_tally_sorts_kernels_operations_and_waits():
    events = [
        event("cudaDeviceSynchronize", "cpu", 1),  # before the region: the profiler's own
        event("backend.count", "cpu", 10, 50),
        event("ours", "cuda", 22),
        event("vectorized_add", "cuda", 30),
        event("Memcpy DtoD (Device -> Device)", "cuda", 31),
        event("Memset (Device)", "cuda", 32),
        event("Memcpy DtoH (Device -> Pageable)", "cuda", 33),
        event("Memcpy HtoD (Pageable -> Device)", "cuda", 34),
        event("ours", "cuda", 60),  # runs late, was launched inside
        event("cudaLaunchKernel", "cpu", 20),
        event("cudaStreamSynchronize", "cpu", 35),
        event("cudaDeviceSynchronize", "cpu", 55),  # the profiler's own, at the end
        event("backend.count", "cuda", 20, 60),
    ]
    counters = Counters()
    tally(events, {"ours"}, counters)
    assert counters.kernels == ["ours", "ours"]
    assert counters.operations == ["vectorized_add", "Memcpy DtoD (Device -> Device)", "Memset (Device)"]
    assert counters.sync_calls == ["cudaStreamSynchronize"]
    assert (counters.launches, counters.syncs) == (5, 1)
