"""The 128 x 4 scale layout against its formula, element by element."""

from __future__ import annotations

import pytest
import torch

from oracles.formats import swizzle

SHAPES = [(128, 4), (1, 1), (130, 5), (256, 12), (40, 8), (384, 3), (0, 4)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_every_element_lies_at_its_offset_and_the_rest_is_zero(rows: int, columns: int) -> None:
    scales = torch.arange(1, rows * columns + 1, dtype=torch.int32).view(rows, columns)
    flat = swizzle.swizzle(scales).tolist()
    padded = -(-columns // 4) * 4
    want = [0] * (-(-rows // 128) * 128 * padded)
    for m in range(rows):
        for k in range(columns):
            atom = (m // 128) * (padded // 4) + k // 4
            want[512 * atom + 16 * (m % 32) + 4 * (m % 128 // 32) + k % 4] = int(scales[m, k])
    assert flat == want
    offsets = swizzle.offsets(rows, columns)
    assert torch.equal(torch.tensor(flat)[offsets.flatten()], scales.flatten().long())


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_inverse_ignores_the_padding(rows: int, columns: int) -> None:
    scales = torch.randint(0, 255, (rows, columns), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    flat = swizzle.swizzle(scales)
    used = torch.zeros(flat.shape, dtype=torch.bool)
    used[swizzle.offsets(rows, columns).flatten()] = True
    assert torch.equal(swizzle.unswizzle(torch.where(used, flat, 255), rows, columns), scales)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scales\.shape=\(2, 3, 4\); allowed: \[M, Ks\]"):
        swizzle.swizzle(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"elements=512; allowed: 256 x 4 for 129 x 4"):
        swizzle.unswizzle(torch.zeros(512), 129, 4)
