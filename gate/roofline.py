"""How near to the speed of light: time on a GPU against what its measured bandwidth and rate allow. GPU only."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_WARM_UPS, _REPEATS = 5, 30
_READ_BYTES = 1 << 30
_MATRIX = 8192


@dataclass(frozen=True)
class Rates:
    """What this GPU was measured to do: bytes read a second, bf16 tensor-core operations a second."""

    bytes_per_s: float
    operations_per_s: float

    def floor_s(self, moved: float, operations: float) -> float:
        """The least time in seconds for `moved` bytes and `operations`: the slower of the two."""
        return max(moved / self.bytes_per_s, operations / self.operations_per_s)


def median_seconds(call: Callable[[], Any], device: torch.device, *, cold: bool = True) -> float:
    """Median device time of `call` by CUDA events; `cold` evicts the L2 cache before each one."""
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.empty(size, dtype=torch.uint8, device=device)
    for _ in range(_WARM_UPS):
        call()
    times = []
    for _ in range(_REPEATS):
        if cold:
            flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def measured_rates(device: torch.device) -> Rates:
    """Read bandwidth by a sum over 1 GiB, rate by a bf16 product of 8192 x 8192 matrices, both as medians."""
    data = torch.ones(_READ_BYTES // 4, dtype=torch.float32, device=device)
    read = median_seconds(data.sum, device, cold=False)
    a = torch.ones(_MATRIX, _MATRIX, dtype=torch.bfloat16, device=device)
    product = median_seconds(lambda: a @ a, device, cold=False)
    return Rates(_READ_BYTES / read, 2 * _MATRIX**3 / product)
