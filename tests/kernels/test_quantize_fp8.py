"""quantize_fp8: refusals, outputs, and scales at the bounds of powers of two."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.quantize_fp8 import Quantised, quantize_fp8
from oracles.formats import fp8
from tests.kernels.passes import backend_for, refused, values


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"x": values(2, 192)}, ("x has k=192", "multiples of 128")),
        ({"x": values(2, 48), "block": 32}, ("x has k=48", "multiples of 32")),
        ({"block": 16}, ("block=16", "32, 64, 128")),
        ({"scale": "e4m3"}, ("scale='e4m3'", "ue8m0, fp32")),
        ({"x": values(2, 128).int()}, ("x.dtype=torch.int32",)),
        (
            {"out": Quantised(torch.empty(2, 128, dtype=torch.uint8), torch.empty(2, 1))},
            ("out.scales.dtype=torch.float32", "torch.uint8"),
        ),
        (
            {"out": Quantised(torch.empty(2, 256, dtype=torch.uint8)[:, ::2], torch.empty(2, 1, dtype=torch.uint8))},
            ("out.codes has strides (256, 2)", "contiguous"),
        ),
    ],
)
def test_bad_input_is_named_before_a_launch(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = {"x": values(2, 128)} | changed
    with backend.count() as counters:
        refused(lambda: quantize_fp8(**given, backend=backend), "quantize_fp8: ", *parts)
    assert counters.launches == 0


@pytest.mark.parametrize("scale", ["ue8m0", "fp32"])
def test_scales_around_powers_of_two(backend: Any, scale: str) -> None:
    """amax at 448 x 2^n and the fp32 numbers beside it, from below the floor to the largest."""
    exact = 448.0 * torch.exp2(torch.arange(-24.0, 118.0, 3.0))
    sides = [exact, exact.nextafter(torch.tensor(torch.inf)), exact.nextafter(torch.tensor(0.0))]
    x = torch.zeros(3 * len(exact), 32)
    x[:, 5], x[:, 6] = torch.cat(sides), -torch.cat(sides) / 3
    codes, scales = fp8.quantize_1x128(x, block=32, scale=scale)
    found = quantize_fp8(x, block=32, scale=scale, backend=backend)
    assert torch.equal(found.codes, codes) and torch.equal(found.scales, scales)
    assert found.global_scale is None


def test_outputs_that_are_given_are_written(backend: Any) -> None:
    x = values(3, 128)
    out = Quantised(torch.zeros(3, 128, dtype=torch.uint8), torch.zeros(3, 1, dtype=torch.uint8))
    assert quantize_fp8(x, out=out, backend=backend).codes is out.codes
    assert torch.equal(out.codes, fp8.quantize_1x128(x)[0])
