"""Times of calls on a GPU: many calls in one CUDA graph, replayed. Imports torch: not for the command line's process.

A number is microseconds of one call, the gap between two graph nodes inside. Calls rotate over sets of tensors; where
the sets are 256 MB or more together, nothing of a set is left in L2 when its turn comes again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

SETS_BYTES = 256 << 20
"""Bytes over which the sets of a graph rotate: several times any L2 cache."""
CALLS = 24
"""Calls of a graph at least: what it costs to start one is spread over them."""
MOST_SETS = 256
"""Sets of a graph at most; so few small ones may fit L2, which `evict` has emptied before the replay."""
REPLAYS = 25
_WARM_UPS = 3


@dataclass(frozen=True)
class Sample:
    """Microseconds of a call: the median over replays, and the quartiles."""

    us: float
    low: float
    high: float


def sets_for(moved: int) -> int:
    """Sets for calls that read and write `moved` bytes each: 256 MB together, at least 2."""
    return max(2, min(MOST_SETS, -(-SETS_BYTES // max(1, moved))))


def calls_for(moved: int) -> int:
    """Calls of a graph: one for every set, at least 24 in turn over the sets."""
    return max(CALLS, sets_for(moved))


def sample(
    calls: Sequence[Callable[[], Any]], replays: int = REPLAYS, evict: Callable[[], Any] | None = None
) -> Sample:
    """All `calls` in one graph, replayed; what they return is kept until the end, so that outputs are memory of their
    own. `evict` is called before every replay and not timed. The first call is made once before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        calls[0]()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [call() for call in calls]
    times = []
    for _ in range(replays + _WARM_UPS):
        if evict is not None:
            evict()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / len(calls))
    del outputs
    return summary(times[_WARM_UPS:])


def summary(times: Sequence[float]) -> Sample:
    """Median and quartiles; of one time itself."""
    if len(times) < 2:
        return Sample(times[0], times[0], times[0])
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return Sample(middle, low, high)


def graph_us(calls: Sequence[Callable[[], Any]], replays: int = REPLAYS) -> float:
    """Median time of one of `calls` in microseconds, all of them in one CUDA graph."""
    return sample(calls, replays).us


def evictor(device: torch.device) -> Callable[[], Any]:
    """A call that leaves nothing of anybody's in L2: it reads 256 MB, so that no line has to be written back later."""
    data = torch.zeros(SETS_BYTES // 4, dtype=torch.float32, device=device)
    return lambda: data.sum()


def copies(moved: int) -> list[Callable[[], Any]]:
    """Calls of torch's copy of half as many bytes: `moved` in all, read and written."""
    half, count = max(16, moved // 2), sets_for(moved)
    pairs = [[torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(count)]
    return [partial(to.copy_, source) for to, source in (pairs[i % count] for i in range(calls_for(moved)))]


def copy_rate(moved: int = 4 << 30, repeats: int = 10) -> float:
    """Bytes a second, read and written, of a copy so large that nothing else shows."""
    a, b = (torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
    seconds = []
    for _ in range(repeats + _WARM_UPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        a.copy_(b)
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return moved / statistics.median(seconds[_WARM_UPS:])
