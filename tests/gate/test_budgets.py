"""What a run may cost: counts, memory, resources, and the roofline of a GPU."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gate import budgets, roofline
from gate.device import TensorMemoryWatch, live_bytes, storage_bytes
from gate.job import Job


def counters(**fields):
    base = {
        "kernels": ["fmha"],
        "operations": [],
        "sync_calls": [],
        "launches": 1,
        "syncs": 0,
        "compiles": 0,
        "peak_bytes": 100,
    }
    return SimpleNamespace(**(base | fields))


class Kernel:
    """Counts its calls; keeps `leak` bytes of each."""

    def __init__(self, second, leak=0):
        self.counters = [counters(launches=9, syncs=9, compiles=9), second]
        self.calls = 0
        self.leak = leak
        self.kept = []

    def call(self):
        self.calls += 1
        self.kept.append(torch.zeros(self.leak, dtype=torch.uint8))
        return {}


class Device:
    emulated = True
    evidence = "emulated sm_100a"

    def __init__(self, **measured):
        self.measured = measured
        self.compiled = {"key": "kernel"} if measured else {}
        self.backend = SimpleNamespace(device=torch.device("cpu"), listeners=[])

    def resources(self):
        return dict(self.measured)


def job(**fields):
    return Job("g", "g", "a", 0, "sm100", "emulated", fields.pop("fields", {}), {}, **fields)


def check(job_, second=None, device=None, leak=0):
    found = {"cost": {}}
    kernel = Kernel(second or counters(), leak)
    return budgets.check(job_, device or Device(), kernel, found), found, kernel


def test_counts_are_those_of_the_second_call():
    breach, found, _ = check(job(counts={"launches": 1, "syncs": 0, "compiles": 0}))
    assert breach is None
    assert found["counts"] == {"launches": 1, "syncs": 0, "compiles": 0} and found["cost"]["peak_bytes"] == 100


@pytest.mark.parametrize(
    ("counts", "measured", "status", "text"),
    [
        ({"launches": 1}, {"launches": 3, "operations": ["add", "fill_"]}, "wrong_launches", "launched 3 kernels (fmha, add, fill_), allowed 1"),
        ({"launches": 1}, {"launches": 0, "kernels": []}, "wrong_launches", "launched 0 kernels, allowed 1"),
        ({"launches": "<= 2"}, {"launches": 3}, "wrong_launches", "allowed <= 2"),
        ({"syncs": 0}, {"syncs": 1, "sync_calls": ["item"]}, "wrong_syncs", "made the host wait 1 time (item), allowed 0"),
        ({"compiles": 0}, {"compiles": 2}, "wrong_compiles", "compiled 2 kernels, allowed 0"),
        ({"launches": 99}, {"launches": 20, "kernels": [f"k{i}" for i in range(20)]}, "wrong_launches", "k7, …), allowed 99"),
    ],
)  # fmt: skip
def test_wrong_count(counts, measured, status, text):
    breach, _, _ = check(job(counts=counts), counters(**measured))
    assert breach[0] == status and text in breach[1]


def test_at_most_allows_less():
    assert check(job(counts={"launches": "<= 2"}), counters(launches=0))[0] is None


def test_peak_memory():
    assert check(job(memory={"peak_bytes": 100, "steps": 3}))[0] is None
    breach, _, kernel = check(job(memory={"peak_bytes": 99, "steps": 3}))
    assert breach == ("over_memory", "run() held 100 B at its peak, allowed 99 B") and kernel.calls == 0


def test_memory_that_grows_with_every_call():
    breach, found, kernel = check(job(memory={"growth_bytes": 2_999, "steps": 3}), leak=1000)
    assert breach == ("over_memory", "3 more calls of run() left 3,000 B behind, allowed 2,999 B")
    assert kernel.calls == 3 and found["cost"]["growth_bytes"] == 3000
    assert check(job(memory={"growth_bytes": 3_000, "steps": 3}), leak=1000)[0] is None
    assert check(job(memory={"growth_bytes": 0, "steps": 2}), leak=0)[0] is None


def test_resources_are_upper_bounds_and_unknown_ones_are_noted():
    device = Device(registers=128, spill_bytes=0, smem_bytes=1000)
    limits = {"registers": 128, "spill_bytes": 0, "smem_bytes": 1000}
    assert check(job(resources=limits), device=device)[0] is None
    breach = check(job(resources=limits | {"registers": 127}), device=device)[0]
    assert breach == ("over_resources", "a kernel takes registers 128, allowed 127")
    device.emulated = False
    breach, found, _ = check(job(resources=limits | {"tmem_columns": 512}), device=device)
    assert breach is None and found["notes"] == ["resources.tmem_columns: not measured on emulated sm_100a"]


def test_without_a_kernel_there_is_nothing_to_bound():
    breach, found, kernel = check(job(resources={"registers": 1, "tmem_columns": 0}), device=Device())
    assert breach is None and "notes" not in found and kernel.calls == 0


def test_tensor_memory_is_watched_in_a_run_of_its_own():
    device = Device(registers=1)
    kernel = Kernel(counters())

    def call():
        assert len(device.backend.listeners) == 1
        device.backend.listeners[0](allocation(256, release=False))
        return {}

    kernel.call = call
    found = {"cost": {}}
    breach = budgets.check(job(resources={"tmem_columns": 128}), device, kernel, found)
    assert breach == ("over_resources", "a kernel takes tmem_columns 256, allowed 128")
    assert found["cost"]["tmem_columns"] == 256 and device.backend.listeners == []


class TensorAllocation:
    """Named like the emulator's record."""

    def __init__(self, cta, columns, release):
        self.who = SimpleNamespace(cta=cta)
        self.rank = 0
        self.columns = columns
        self.release = release


def allocation(columns, release, cta=(0, 0, 0)):
    return TensorAllocation(cta, columns, release)


def test_most_columns_held_at_once_by_any_cta():
    watch = TensorMemoryWatch()
    for record in (
        allocation(128, False), allocation(64, False), allocation(128, True), allocation(32, False),
        allocation(128, False, cta=(1, 0, 0)), object(),
    ):  # fmt: skip
        watch(record)
    assert watch.most == 192


def test_roofline_is_skipped_with_a_reason_on_the_emulator():
    limits = {"at_most": 1.0, "bytes": "m * 2", "operations": "m"}
    breach, found, _ = check(job(roofline=limits, fields={"m": 8}))
    assert breach is None and found["notes"] == ["roofline: not measured, the emulator has no time"]


@pytest.mark.parametrize(
    ("seconds", "breach"),
    [(2e-3, None), (2.1e-3, ("too_slow", "run() takes 2100.0 us = 2.10 x its floor of 1000.0 us, allowed 2 x"))],
)
def test_roofline_on_a_gpu(monkeypatch, seconds, breach):
    monkeypatch.setattr(roofline, "measured_rates", lambda device: roofline.Rates(1e12, 1e15))
    monkeypatch.setattr(roofline, "median_seconds", lambda call, device: seconds)
    device = Device()
    device.emulated = False
    limits = {"at_most": 2, "bytes": "m * 1e6", "operations": "m * 1e6"}
    found_breach, found, _ = check(job(roofline=limits, fields={"m": 1000}), device=device)
    assert found_breach == breach
    assert found["cost"]["floor_us"] == pytest.approx(1000.0) and found["cost"]["us"] == pytest.approx(seconds * 1e6)


def test_floor_is_the_slower_of_bytes_and_operations():
    rates = roofline.Rates(bytes_per_s=2.0, operations_per_s=10.0)
    assert rates.floor_s(4, 10) == 2.0 and rates.floor_s(4, 100) == 10.0 and rates.floor_s(0, 0) == 0.0


def test_live_bytes_counts_every_storage_once():
    before = live_bytes(torch.device("cpu"))
    x = torch.zeros(1000, dtype=torch.uint8)
    views = [x[10:], x.view(10, 100), torch.zeros(24, dtype=torch.uint8)]
    assert live_bytes(torch.device("cpu")) - before == 1024 and len(views) == 3


def test_storage_bytes_reach_what_lies_between_the_elements():
    room = torch.zeros(4, 8, dtype=torch.float32)
    view = room[:, :5]
    assert storage_bytes(view).numel() == 4 * 8 * 4
    storage_bytes(view).fill_(0xFF)
    assert bool(torch.isnan(room).all())
