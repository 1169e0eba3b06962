"""--bench on a real GPU: `pytest --hw tests/gate/test_bench_hw.py`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.hw


@pytest.fixture(scope="module")
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.fail("--hw was given, but torch sees no GPU")
    return torch.device("cuda", 0)


@pytest.fixture(scope="module")
def clock(device):
    from gate.bench.clock import GpuClock

    return GpuClock(device)


def test_cold_read_copy_and_rate_agree(clock):
    read, copy, rate = clock.read_us(64 << 20), clock.copy_us(128 << 20), clock.copy_rate()
    assert 0.5e12 < rate < 20e12
    # a cold read of 64 MiB is no faster than twice the rate of a copy, and no slower than a fifth of it
    assert 0.5 < read / ((64 << 20) / rate * 1e6) < 5
    assert 0.5 < copy / ((128 << 20) / rate * 1e6) < 3
    assert clock.read_us(64 << 20) == read


def test_products_of_torch_are_timed(clock):
    found = clock.products_us("linear", 1, 512, 4096, 1)
    assert set(found) == {"cuBLAS bf16", "scaled_mm fp8"} and all(1 < us < 1000 for us in found.values())
    assert set(clock.products_us("grouped", 2, 256, 512, 3)) == {"cuBLAS bf16"}


def test_what_a_call_allocates_is_memory_of_its_own(device):
    from gate.bench import timing

    source, places = torch.zeros(1 << 20, device=device), []

    def call() -> torch.Tensor:
        made = source + 1
        places.append(made.data_ptr())
        return made

    sample = timing.sample([call] * 4, replays=5)
    # one call before the graph, whose memory may be used again
    assert len(set(places[1:])) == 4 and 0 < sample.low <= sample.us <= sample.high


def test_a_pass_is_timed_saved_and_compared(root, tmp_path):
    arch = "sm{}{}".format(*torch.cuda.get_device_capability())
    name = f"test-{tmp_path.name}"
    command = [sys.executable, "run_gate.py", "quantize_fp8", "--bench", "-k", "t1_k4096", "--arch", arch]
    kept = root / "build" / "bench" / f"{name}.json"
    try:
        files = [tmp_path / "a.json", tmp_path / "b.json"]
        first = subprocess.run([*command, "--save", name, "--json", files[0]], cwd=root, capture_output=True, text=True)
        assert first.returncode in (0, 1), first.stdout + first.stderr
        (one,) = json.loads(files[0].read_text())["bench"]["results"]
        assert one["status"] in ("pass", "too_slow") and one["evidence"].startswith("sm_"), one
        assert 0.3 < one["us"] < 100 and one["low_us"] <= one["us"] <= one["high_us"] and one["floor_us"] > 0.3
        kept.write_text(kept.read_text().replace(f"{one['us']}", f"{one['us'] / 3}"))
        again = subprocess.run(
            [*command, "--compare", name, "--json", files[1]], cwd=root, capture_output=True, text=True
        )
        (two,) = json.loads(files[1].read_text())["bench"]["results"]
        assert again.returncode == 1 and two["status"] == "too_slow" and "% slower than the" in two["message"]
    finally:
        kept.unlink(missing_ok=True)
