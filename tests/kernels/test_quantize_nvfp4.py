"""quantize_nvfp4: refusals, outputs, and quotients of every size, against the format's definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.quantize_nvfp4 import Quantised, quantize_nvfp4
from oracles.formats import nvfp4
from tests.kernels.passes import ARCHS, backend_for, refused, unaligned, values


@pytest.fixture(scope="module", params=ARCHS)
def backend(request: Any) -> Any:
    return backend_for(request.param)


G = torch.tensor(0.01)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"x": values(2, 24)}, ("x has k=24", "multiples of 16")),
        ({"x": values(2, 0)}, ("x has k=0",)),
        ({"x": values(32)}, ("x.shape=(32,)", "2 dimensions")),
        ({"x": values(2, 32).half()}, ("x.dtype=torch.float16", "torch.bfloat16, torch.float32")),
        ({"x": [1.0]}, ("x is a list", "a torch.Tensor")),
        ({"x": values(32, 2).T}, ("x.stride(-1)=2", "allowed: 1")),
        ({"x": values(4, 36)[:, :32]}, ("x.stride(0)=36", "multiples of 16 bytes")),
        ({"x": unaligned(values(2, 32))}, ("x.data_ptr() is 2 past",)),
        ({"x": values(2, 32).to("meta")}, ("x.device=meta", "allowed: cpu")),
        ({"global_scale": torch.ones(2)}, ("global_scale.shape=(2,)", "one element")),
        ({"global_scale": torch.ones((), dtype=torch.float64)}, ("global_scale.dtype=torch.float64",)),
        ({"global_scale": 1.0}, ("global_scale is a float",)),
        ({"swizzled": 1}, ("swizzled=1", "True, False")),
        ({"out": (1, 2)}, ("out is a tuple", "a Quantised")),
        (
            {"out": Quantised(torch.empty(2, 32, dtype=torch.uint8), torch.empty(2, 2, dtype=torch.uint8))},
            ("out.codes.shape=(2, 32)", "(2, 16)"),
        ),
        (
            {"out": Quantised(torch.empty(2, 16, dtype=torch.uint8), torch.empty(2, 2))},
            ("out.scales.dtype=torch.float32", "torch.uint8"),
        ),
    ],
)
def test_bad_input_is_named_before_a_launch(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = {"x": values(2, 32), "global_scale": G} | changed
    with backend.count() as counters:
        refused(lambda: quantize_nvfp4(**given, backend=backend), "quantize_nvfp4: ", *parts)
    assert counters.launches == 0


def test_other_architectures_are_refused(backend: Any) -> None:
    other = type("Other", (), {"arch": "sm_80"})()
    refused(lambda: quantize_nvfp4(values(2, 32), G, backend=other), "arch=sm_80", "sm_90a, sm_100a")


def test_outputs_that_are_given_are_written_and_returned(backend: Any) -> None:
    x = values(3, 48)
    out = Quantised(torch.zeros(3, 24, dtype=torch.uint8), torch.zeros(512, dtype=torch.uint8))
    found = quantize_nvfp4(x, G, swizzled=True, out=out, backend=backend)
    fresh = quantize_nvfp4(x, G, swizzled=True, backend=backend)
    assert found.codes is out.codes and found.scales is out.scales and found.global_scale is G
    assert torch.equal(out.codes, fresh.codes) and torch.equal(out.scales, fresh.scales)
    assert int(out.codes.count_nonzero()) > 30


def test_quotients_of_every_size_are_those_of_a_division(backend: Any) -> None:
    """Steps from 2^-140 to 2^100, values around every midpoint of a code: both ways to divide are met."""
    rng = torch.Generator().manual_seed(1)
    shape = (48, 256)
    mantissas = torch.randint(0, 1 << 23, shape, generator=rng, dtype=torch.int32)
    exponents = (torch.arange(48, dtype=torch.int32) * 5 + 6)[:, None] + torch.randint(0, 4, shape, generator=rng).int()
    x = (mantissas | exponents << 23).view(torch.float32) * torch.sign(torch.randn(shape, generator=rng))
    x = torch.where(x == 0, 1.0, x)
    for row in range(0, 48, 8):
        g = nvfp4.global_scale(x[row : row + 8])
        rows = x[row : row + 8].contiguous()
        codes, scales = nvfp4.quantize(rows, g)
        found = quantize_nvfp4(rows, g, backend=backend)
        assert torch.equal(found.codes, codes) and torch.equal(found.scales, scales), f"rows {row} to {row + 7}"


def test_midpoints_and_their_neighbours(backend: Any) -> None:
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    near = torch.stack([midpoints, midpoints.nextafter(torch.tensor(9.0)), midpoints.nextafter(torch.tensor(0.0))], 1)
    row = torch.cat([torch.tensor([6.0]), near.flatten()[:15]]), torch.cat([torch.tensor([6.0]), near.flatten()[6:21]])
    x = torch.cat([*row, -row[0], -row[1]]).view(1, 64)
    g = torch.ones(())
    found = quantize_nvfp4(x, g, backend=backend)
    assert torch.equal(found.codes, nvfp4.quantize(x, g)[0])
    assert found.scales.tolist() == [[0x38] * 4]


def test_an_empty_tensor_gives_empty_outputs(backend: Any) -> None:
    found = quantize_nvfp4(values(0, 64), swizzled=True, backend=backend)
    assert found.codes.shape == (0, 32) and found.scales.shape == (0,) and float(found.global_scale) == 1.0
