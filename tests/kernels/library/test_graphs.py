"""Operators in CUDA graphs: `pytest --hw tests/kernels/library/test_graphs.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import backends
import kernels.library  # noqa: F401  the operators
from tests.kernels.library.cases import Case, cases, results

pytestmark = pytest.mark.hw


@pytest.fixture(scope="module")
def gpu() -> Any:
    from backends.cuda import gpu_arch

    arch = gpu_arch()
    if arch is None:
        pytest.fail("--hw was given, but torch sees no GPU")
    return backends.get("cuda", arch=arch)


def _runs_here(case: Case, gpu: Any) -> None:
    if gpu.arch not in case.arches:
        pytest.skip(f"{case.op} is for {', '.join(case.arches)}")


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.op)
def test_a_replay_gives_the_bits_of_a_call(case: Case, gpu: Any) -> None:
    _runs_here(case, gpu)
    eager, captured = case.on(gpu.device), case.on(gpu.device)
    want = results(case.overload(*eager)) or tuple(eager[i] for i in case.written)
    direct = case.direct(case.on(gpu.device), gpu)
    restore = {i: captured[i].clone() for i in case.written}
    found: list[Any] = []

    def run() -> None:
        for position, value in restore.items():
            captured[position].copy_(value)
        found[:] = results(case.overload(*captured)) or [captured[i] for i in case.written]

    graph = gpu.capture(run)
    for tensor in found:
        if not case.written:
            tensor.view(-1).view(torch.uint8).fill_(255)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    with gpu.count() as counters:
        graph.replay()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert counters.syncs == 0 and counters.compiles == 0 and counters.kernels
    torch.cuda.synchronize()
    for got, right, plain in zip(found, want, direct, strict=True):
        assert torch.equal(got.view(-1).view(torch.uint8), right.view(-1).view(torch.uint8))
        assert torch.equal(right, plain)


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.op)
def test_a_call_waits_for_nothing(case: Case, gpu: Any) -> None:
    _runs_here(case, gpu)
    given = case.on(gpu.device)
    case.overload(*given)
    with gpu.count() as counters:
        case.overload(*given)
    assert counters.syncs == 0 and counters.compiles == 0 and 1 <= counters.launches <= 2


def test_torch_finds_nothing_wrong_on_the_gpu(gpu: Any) -> None:
    for case in cases(gpu.arch):
        torch.library.opcheck(case.overload, case.on(gpu.device))
