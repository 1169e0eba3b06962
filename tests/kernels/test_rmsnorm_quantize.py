"""rmsnorm_quantize: refusals, and the bits of the norm behind an fp32 scale."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.rmsnorm_quantize import rmsnorm_quantize
from oracles.norm import rms_norm
from tests.kernels.passes import backend_for, refused, unaligned, values

G = torch.tensor(0.002)


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"x": values(2, 40)}, ("x has k=40", "multiples of 16")),
        ({"x": values(2, 32).float()}, ("x.dtype=torch.float32", "torch.bfloat16")),
        ({"x": values(1, 40_000), "weight": values(40_000)}, ("k=40000", "to 32768")),
        ({"weight": values(16)}, ("weight.shape=(16,)", "(32,)")),
        ({"weight": values(64)[::2]}, ("weight has strides (2,)", "contiguous")),
        ({"weight": unaligned(values(32))}, ("weight.data_ptr() is 2 past",)),
        ({"weight": values(32).half()}, ("weight.dtype=torch.float16",)),
        ({"global_scale": None}, ("global_scale is a NoneType",)),
        ({"format": "fp8", "block": 32}, ("global_scale is given", "None")),
        ({"format": "int8"}, ("format='int8'", "nvfp4, fp8")),
        ({"block": 32}, ("block=32", "16")),
        ({"eps": 0.0}, ("eps=0.0", "above 0")),
        ({"eps": 1e-40}, ("eps=1e-40", "1e-30")),
        ({"eps": True}, ("eps=True",)),
        ({"swizzled": True, "format": "fp8", "block": 32, "global_scale": None}, ("swizzled=True", "False")),
    ],
)
def test_bad_input_is_named_before_a_launch(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = {"x": values(2, 32), "weight": values(32), "global_scale": G} | changed
    with backend.count() as counters:
        refused(lambda: rmsnorm_quantize(**given, backend=backend), "rmsnorm_quantize: ", *parts)
    assert counters.launches == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_norm_is_right_to_the_last_bit(backend: Any, dtype: torch.dtype) -> None:
    x = values(40, 160, seed=8) * torch.exp2(torch.arange(40.0) - 20)[:, None].bfloat16()
    weight = (1 + 0.2 * torch.randn(160, generator=torch.Generator().manual_seed(2))).to(dtype)
    found = rmsnorm_quantize(x, weight, format="fp8", block=32, scale="fp32", backend=backend)
    norm = rms_norm(x, weight).float()
    assert torch.equal(found.scales, norm.unflatten(-1, (5, 32)).abs().amax(-1).clamp(min=1e-4) / 448)


def test_nan_and_infinity_are_seen_in_their_rows_alone(backend: Any) -> None:
    x = values(4, 64)
    x[1, 3], x[2, 20] = float("nan"), float("inf")
    found = rmsnorm_quantize(x, values(64), G, backend=backend)
    is_nan = (found.scales & 0x7F) == 0x7F
    assert is_nan.tolist() == [[False] * 4, [True] * 4, [False, True, False, False], [False] * 4]
    assert found.scales[2].tolist() == [0, 0x7F, 0, 0]
