"""NVFP4 one number at a time in fp32, and what becomes of zeros, tiny and huge blocks, NaN and infinity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oracles.formats import e4m3, nvfp4
from tests.oracles.formats.hostile import E2M1, E4M3, rows, search

f = np.float32


def dumb(row: list[float], g: float) -> list[float]:
    out = []
    for start in range(0, len(row), 16):
        part = row[start : start + 16]
        s = f(search(float(f(max(abs(v) for v in part)) / (f(6) * f(g))), E4M3))
        step = s * f(g)
        out += [search(float(f(v) / step), E2M1) * float(s) * g if step else 0.0 for v in part]
    return out


def test_rows_equal_one_number_at_a_time() -> None:
    x = rows(48, count=20)
    for g in (nvfp4.global_scale(x), torch.tensor(0.37), torch.tensor(1e-3), torch.tensor(300.0)):
        packed, scales = nvfp4.quantize(x, g)
        assert packed.shape == (len(x), 24) and scales.shape == (len(x), 3)
        got = nvfp4.dequantize(packed, scales, g)
        assert got.tolist() == [dumb(row, g.item()) for row in x.tolist()]


def test_the_order_of_the_three_operations_of_a_block_scale() -> None:
    """amax / (6 g) beside the midpoints of E4M3, where (amax / 6) / g would round to the other side."""
    g = torch.rand(3000, 1, generator=torch.Generator().manual_seed(0)) + 0.5
    low = torch.arange(3000) % 60 + 40
    midpoint = (e4m3.decode(low.to(torch.uint8)) + e4m3.decode((low + 1).to(torch.uint8))) / 2
    x = torch.zeros(3000, 16)
    x[:, 3] = (midpoint * 6 * g[:, 0].double()).float()
    _, scales = nvfp4.quantize(x, g)
    amax, scale = x[:, 3].numpy(), g[:, 0].numpy()
    right, other = (e4m3.encode(torch.from_numpy(q)) for q in (amax / (f(6) * scale), (amax / f(6)) / scale))
    assert torch.equal(scales[:, 0], right) and (right != other).sum().item() > 100


def test_the_global_scale_uses_the_whole_range() -> None:
    x = rows(48)
    g = nvfp4.global_scale(x)
    assert g.dtype == torch.float32 and g.item() == f(x.abs().max().item()) / f(6 * 448)
    assert nvfp4.quantize(x, g)[1].max().item() == 0x7E
    assert nvfp4.global_scale(torch.zeros(4)).item() == 1.0 and nvfp4.global_scale(torch.empty(0)).item() == 1.0
    assert all(bool(nvfp4.global_scale(torch.tensor([1.0, bad])).isnan()) for bad in (torch.nan, torch.inf))


def test_the_error_on_gaussian_data_and_what_a_small_global_scale_does_to_it() -> None:
    x = torch.randn(200, 512, generator=torch.Generator().manual_seed(0))
    g = nvfp4.global_scale(x)
    error, clipped = (((nvfp4.rounded(x, scale) - x).norm() / x.norm()).item() for scale in (g, g / 4))
    assert abs(error - 0.095) < 0.004 and 0.25 < clipped < 0.5


def test_a_block_of_zeros_beside_a_small_maximum() -> None:
    x = torch.zeros(1, 32)
    x[0, 16:] = 1e-3
    packed, scales = nvfp4.quantize(x, nvfp4.global_scale(x))
    assert scales.tolist() == [[0, 0x7E]] and packed[0, :8].unique().tolist() == [0]
    packed, scales = nvfp4.quantize(torch.zeros(1, 32), torch.tensor(1.0))
    assert scales.tolist() == [[0, 0]] and packed.unique().tolist() == [0]


def test_a_scale_that_underflows_gives_signed_zeros_and_a_subnormal_one_does_not() -> None:
    g = torch.tensor(1.0)
    x = torch.zeros(2, 16)
    x[0, 0], x[0, 1] = -6 * 2.0**-10, 1e-9
    x[1, 0] = 6 * 2.0**-10 * 1.01
    packed, scales = nvfp4.quantize(x, g)
    assert scales.flatten().tolist() == [0, 1] and packed[0, 0].item() == 0x08
    assert nvfp4.dequantize(packed, scales, g)[1, 0].item() == 3 * 2.0**-9


def test_a_scale_beyond_448_saturates_and_its_block_clips() -> None:
    x = torch.full((1, 16), 1e6)
    x[0, 1] = 1.0
    packed, scales = nvfp4.quantize(x, torch.tensor(1.0))
    assert scales.item() == 0x7E and nvfp4.dequantize(packed, scales, torch.tensor(1.0))[0, :2].tolist() == [
        2688.0,
        0.0,
    ]


def test_nan_poisons_its_block_alone_and_infinity_saturates() -> None:
    x = torch.ones(1, 48)
    x[0, 2], x[0, 20] = torch.nan, -torch.inf
    got = nvfp4.rounded(x, torch.tensor(0.25))
    assert bool(got[0, :16].isnan().all()) and got[0, 20].item() == -6 * 448 * 0.25
    assert not bool(got[0, 16:].isnan().any()) and torch.equal(
        got[0, 32:], nvfp4.rounded(x[:, 32:], torch.tensor(0.25))[0]
    )


def test_one_scale_a_row() -> None:
    x = rows(32)
    g = (x.abs().amax(dim=-1, keepdim=True) / nvfp4.RANGE).clamp(min=1e-30)
    got = nvfp4.rounded(x, g)
    assert torch.equal(got, torch.cat([nvfp4.rounded(row[None], s) for row, s in zip(x, g, strict=True)]))


def test_the_block_scale_may_round_down_and_clip_at_six() -> None:
    """amax / 6 = 1.06 rounds to the scale 1.0: 6.36 then saturates at 6."""
    x = torch.full((1, 16), 6.36)
    packed, scales = nvfp4.quantize(x, torch.tensor(1.0))
    assert (
        e4m3.decode(scales).item() == 1.0 and nvfp4.dequantize(packed, scales, torch.tensor(1.0)).unique().item() == 6.0
    )


def test_a_block_that_does_not_fill_is_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.nvfp4: K=24; allowed: a multiple of 16"):
        nvfp4.quantize(torch.ones(1, 24), torch.tensor(1.0))
