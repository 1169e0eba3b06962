"""What a run may cost: launches, syncs, compiles, memory, resources, and on a GPU the distance to the roofline."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from gate import formula, roofline
from gate.device import Device, TensorMemoryWatch, live_bytes
from gate.job import Job
from gate.schema import count_allows

Breach = tuple[str, str]


class Runs(Protocol):
    """The kernel of the case: its runs so far, and another one on request."""

    counters: list[Any]

    def call(self) -> dict[str, Tensor]:
        """One more call of run()."""


def check(job: Job, device: Device, kernel: Runs, found: dict[str, Any]) -> Breach | None:
    """The first budget that is exceeded, as (status, message); what was measured goes to `found`.

    Counts are those of the second call of run(): the first one may compile.
    """
    second = kernel.counters[1]
    found["counts"] = {"launches": second.launches, "syncs": second.syncs, "compiles": second.compiles}
    found["cost"]["peak_bytes"] = second.peak_bytes
    breach = _counts(job, second) or _memory(job, device, kernel, found) or _resources(job, device, kernel, found)
    return breach or _roofline(job, device, kernel, found)


def _counts(job: Job, counters: Any) -> Breach | None:
    listed = {
        "launches": ("launched", "kernel", [*counters.kernels, *counters.operations]),
        "syncs": ("made the host wait", "time", counters.sync_calls),
        "compiles": ("compiled", "kernel", []),
    }
    for key, limit in job.counts.items():
        measured = getattr(counters, key)
        if not count_allows(limit, measured):
            verb, noun, names = listed[key]
            named = f" ({', '.join(names[:8])}{', …' if len(names) > 8 else ''})" if names else ""
            plural = noun if measured == 1 else f"{noun}s"
            return f"wrong_{key}", f"the second run() {verb} {measured} {plural}{named}, allowed {limit}"
    return None


def _memory(job: Job, device: Device, kernel: Runs, found: dict[str, Any]) -> Breach | None:
    if job.memory is None:
        return None
    peak, allowed = found["cost"]["peak_bytes"], job.memory.get("peak_bytes")
    if allowed is not None and peak > allowed:
        return "over_memory", f"run() held {peak:,} B at its peak, allowed {allowed:,} B"
    allowed, steps = job.memory.get("growth_bytes"), job.memory["steps"]
    if allowed is not None:
        before = live_bytes(device.backend.device)
        for _ in range(steps):
            kernel.call()
        growth = live_bytes(device.backend.device) - before
        found["cost"]["growth_bytes"] = growth
        if growth > allowed:
            return "over_memory", f"{steps} more calls of run() left {growth:,} B behind, allowed {allowed:,} B"
    return None


def _resources(job: Job, device: Device, kernel: Runs, found: dict[str, Any]) -> Breach | None:
    if job.resources is None or not device.compiled:
        # an empty problem launches nothing and takes nothing
        return None
    measured = device.resources()
    if "tmem_columns" in job.resources and device.emulated:
        measured["tmem_columns"] = _tensor_memory(device, kernel)
        found["cost"]["tmem_columns"] = measured["tmem_columns"]
    for key, allowed in job.resources.items():
        if key not in measured:
            found.setdefault("notes", []).append(f"resources.{key}: not measured on {device.evidence}")
        elif measured[key] > allowed:
            return "over_resources", f"a kernel takes {key} {measured[key]:,}, allowed {allowed:,}"
    return None


def _tensor_memory(device: Device, kernel: Runs) -> int:
    """Columns held at once, from one more run with a listener (which makes it slower)."""
    watch = TensorMemoryWatch()
    device.backend.listeners = [watch]
    try:
        kernel.call()
    finally:
        device.backend.listeners = []
    return watch.most


def _roofline(job: Job, device: Device, kernel: Runs, found: dict[str, Any]) -> Breach | None:
    if job.roofline is None:
        return None
    if device.emulated:
        found.setdefault("notes", []).append("roofline: not measured, the emulator has no time")
        return None
    rates = roofline.measured_rates(device.backend.device)
    floor = rates.floor_s(
        formula.evaluate(job.roofline["bytes"], job.fields), formula.evaluate(job.roofline["operations"], job.fields)
    )
    seconds = roofline.median_seconds(kernel.call, device.backend.device)
    found["cost"] |= {"us": seconds * 1e6, "floor_us": floor * 1e6}
    allowed = job.roofline["at_most"]
    if seconds > allowed * floor:
        text = f"run() takes {seconds * 1e6:.1f} us = {seconds / floor:.2f} x its floor of {floor * 1e6:.1f} us"
        return "too_slow", f"{text}, allowed {allowed:g} x"
    return None
