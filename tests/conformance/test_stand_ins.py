"""What host code gets in place of a GPU's torch."""

from __future__ import annotations

from types import SimpleNamespace

import cutlass.testing
import pytest
import torch

from conformance.stand_ins import block_scales, block_values, stand_in


def tiled(scales: torch.Tensor) -> torch.Tensor:
    """Scales [rows, blocks] in tiles of 128 by 4, each as [32, 4, 4], written from the description of that layout: the
    scale of row r and block b lies at 16 (r mod 32) + 4 (r / 32) + b in its tile."""
    rows, blocks = scales.shape
    out = torch.zeros((rows // 128) * (blocks // 4) * 512, dtype=scales.dtype)
    for r in range(rows):
        for b in range(blocks):
            tile = (r // 128) * (blocks // 4) + b // 4
            out[512 * tile + 16 * (r % 32) + 4 * (r % 128 // 32) + b % 4] = scales[r, b]
    return out


def test_scales_from_their_tiles():
    scales = torch.randint(0, 448, (256, 8)).float()
    assert torch.equal(block_scales(tiled(scales), 256, 8), scales.double())
    assert torch.equal(block_scales(tiled(scales), 130, 5), scales[:130, :5].double())


def test_values_of_four_bits():
    codes = torch.arange(16, dtype=torch.uint8)
    packed = (codes[::2] | codes[1::2] << 4).view(torch.float4_e2m1fn_x2)[None]
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert block_values(packed).tolist() == [positive + [-x for x in positive]]


@pytest.mark.parametrize("block, dtype", [(16, torch.float8_e4m3fn), (32, torch.float8_e8m0fnu)])
def test_a_scaled_product(block, dtype):
    torch.manual_seed(0)
    m, n, k = 128, 256, 128
    a, b = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2) for rows in (m, n))
    scales = [torch.randint(1, 4, (rows, k // block)).exp2().to(dtype) for rows in (m, n)]
    exact = [block_values(x) * s.double().repeat_interleave(block, 1) for x, s in zip((a, b), scales, strict=True)]
    with stand_in([]) as used:
        given = [tiled(s.float()).to(dtype) for s in scales]
        out = torch._scaled_mm(a, b.t(), *given, out_dtype=torch.float32)
    assert torch.equal(out, (exact[0] @ exact[1].t()).float()) and used == ["torch._scaled_mm"]


def test_a_benchmark_calls_its_function_once_unless_something_was_compared():
    calls: list[tuple[int, ...]] = []
    compared: list[int] = []
    arguments = SimpleNamespace(args=(1, 2), kwargs={})
    with stand_in(compared):
        assert cutlass.testing.benchmark(lambda *a: calls.append(a), kernel_arguments=arguments, iterations=9) == 1.0
        cutlass.testing.benchmark(lambda *a: calls.append(a), workspace_generator=lambda: arguments)
        compared.append(0)
        cutlass.testing.benchmark(lambda *a: calls.append(a), kernel_arguments=arguments)
    assert calls == [(1, 2), (1, 2)]


def test_a_profiler_that_sees_nothing():
    with stand_in([]), torch.profiler.profile(activities=[], record_shapes=True) as profile:
        pass
    assert profile.key_averages().table(sort_by="cuda_time_total", row_limit=20) == ""
