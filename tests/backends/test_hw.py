"""The cuda backend on a real GPU: `pytest --hw tests/backends/test_hw.py`."""

from __future__ import annotations

import cutlass
import pytest
import torch

import backends
from tests.backends.sample_kernels import AddScaled, TmaAdd, Twice

pytestmark = pytest.mark.hw


@pytest.fixture
def gpu(tmp_path):
    """The backend of this machine's GPU."""
    from backends.cache import Cache
    from backends.cuda import CudaBackend, gpu_arch

    arch = gpu_arch()
    if arch is None:
        pytest.fail("--hw was given, but torch sees no GPU")
    return CudaBackend(arch, Cache(tmp_path))


def _vectors(gpu, n: int = 300) -> list[torch.Tensor]:
    # Small integers: ptxas may contract mul and add to one fma, which must not show.
    return [torch.randint(-50, 50, (n,), device=gpu.device).float() for _ in range(3)]


def test_auto_is_this_gpu(gpu):
    assert backends.get("auto", gpu.arch).name == "cuda"
    assert torch.cuda.get_device_name() in gpu.evidence


def test_a_kernel_runs_and_is_counted(gpu):
    a, b, c = _vectors(gpu)
    given = [gpu.tensor(t, n) for t, n in ((a, "a"), (b, "b"), (c, "c"))]
    compiled = gpu.compile(AddScaled(3), *given, gpu.stream())
    gpu.launch(compiled, *given, gpu.stream())
    gpu.synchronize()
    assert torch.equal(c, a + b * 3)
    with gpu.count() as counts:
        gpu.launch(compiled, *given, gpu.stream())
        d = c + 1
    assert (counts.launches, counts.syncs, counts.compiles) == (2, 0, 0)
    assert counts.kernels == list(compiled.kernels) and len(counts.operations) == 1
    with gpu.count() as counts:
        float(d.sum())
        torch.cuda.synchronize()
    assert counts.syncs >= 2


def test_a_tensor_copy_with_ragged_edges(gpu):
    a = torch.randn(70, 200, device=gpu.device)
    c = torch.full_like(a, -1.0)
    given = [gpu.tensor(a, "a"), gpu.tensor(c, "c")]
    gpu.launch(gpu.compile(TmaAdd(), *given, gpu.stream()), *given, gpu.stream())
    gpu.synchronize()
    assert torch.equal(c, a + 1)


def test_a_second_process_would_load_the_object(gpu, tmp_path):
    from backends.cache import Cache
    from backends.cuda import CudaBackend

    a, b, c = _vectors(gpu)
    given = [gpu.tensor(t, n) for t, n in ((a, "a"), (b, "b"), (c, "c"))]
    assert gpu.compile(AddScaled(2), *given, gpu.stream()).origin == "built"
    other = CudaBackend(gpu.arch, Cache(tmp_path))
    again = other.compile(AddScaled(2), *given, gpu.stream())
    assert again.origin == "disk"
    other.launch(again, *given, other.stream())
    torch.cuda.synchronize()
    assert torch.equal(c, a + b * 2)


def test_two_launches_in_a_graph_and_their_time(gpu):
    a, b, c = (torch.zeros(64, device=gpu.device) for _ in range(3))
    given = (gpu.tensor(a, "a"), gpu.tensor(b, "b"), 5, gpu.tensor(c, "c"), cutlass.Int32(64), gpu.stream())
    compiled = gpu.compile(Twice(), *given)

    def run() -> None:
        now = (*given[:-1], gpu.stream())
        gpu.launch(compiled, *now)

    graph = gpu.capture(run)
    a.fill_(2)
    graph.replay()
    gpu.synchronize()
    assert set(c.tolist()) == {8.0}
    seconds = gpu.time(run, repeats=10)
    assert len(seconds) == 10 and 1e-6 < sorted(seconds)[5] < 1e-3
