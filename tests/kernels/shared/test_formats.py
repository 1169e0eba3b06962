"""Formats of the passes: their refusals, their sizes, their least scales."""

from __future__ import annotations

import pytest
import torch

from kernels.shared.chunk_config import ChunkConfig, threads_for
from kernels.shared.formats import BlockFormat
from oracles.formats import swizzle, ue8m0


@pytest.mark.parametrize("floor", [1e-4, 1e-30, 448.0, 447.9, 448.1, 3e38, 6e-40])
def test_the_least_scale_is_that_of_the_floor(floor: float) -> None:
    want = ue8m0.scale_byte(torch.tensor(0.0), 448.0, floor=floor)
    assert BlockFormat("fp8", 128, "ue8m0", floor=floor).floor_byte == int(want)


@pytest.mark.parametrize(("rows", "k"), [(1, 16), (128, 64), (129, 80), (200, 7168)])
def test_swizzled_scales_take_the_room_of_the_oracle(rows: int, k: int) -> None:
    form = BlockFormat(swizzled=True)
    assert form.scales_shape(rows, k) == tuple(swizzle.swizzle(torch.zeros(rows, k // 16)).shape)
    assert BlockFormat().scales_shape(rows, k) == (rows, k // 16)


@pytest.mark.parametrize(
    ("form", "part"),
    [
        (BlockFormat("int4"), "format='int4'"),
        (BlockFormat("nvfp4", 32), "block=32"),
        (BlockFormat("fp8", 16, "fp32"), "block=16"),
        (BlockFormat("fp8", 128, "e4m3"), "scale='e4m3'"),
        (BlockFormat("fp8", 128, "fp32", swizzled=True), "swizzled=True"),
        (BlockFormat(floor=0.0), "floor=0.0"),
    ],
)
def test_formats_that_do_not_exist(form: BlockFormat, part: str) -> None:
    assert any(part in problem for problem in form.problems())
    assert any(part in problem for problem in ChunkConfig(form).problems())


def test_threads_leave_few_idle() -> None:
    assert [threads_for(n) for n in (1, 32, 33, 64, 128, 256, 448)] == [32, 32, 64, 64, 128, 128, 64]
    assert any("threads=48" in p for p in ChunkConfig(threads=48).problems())
