"""swiglu_quantize: refusals, and how far fp32 is from exact arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.swiglu_quantize import swiglu_quantize
from oracles.experts import swiglu
from tests.kernels.passes import backend_for, refused, values

G = torch.tensor(0.002)


@pytest.fixture(scope="module")
def backend() -> Any:
    return backend_for("sm_90a")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"gate": values(2, 40)}, ("gate has k=40", "multiples of 16")),
        ({"up": values(3, 32)}, ("up.shape=(3, 32)", "(2, 32)")),
        ({"up": values(2, 32).float()}, ("up.dtype=torch.float32",)),
        ({"up": values(2, 36)[:, 4:]}, ("up.stride(0)=36",)),
        ({"limit": 0.0}, ("limit=0.0", "above 0")),
        ({"limit": "10"}, ("limit='10'",)),
        ({"limit": float("nan")}, ("limit=nan",)),
        ({"global_scale": None}, ("global_scale is a NoneType",)),
        ({"format": "fp8", "block": 32}, ("global_scale is given",)),
    ],
)
def test_bad_input_is_named_before_a_launch(backend: Any, changed: dict[str, Any], parts: tuple[str, ...]) -> None:
    given = {"gate": values(2, 32), "up": values(2, 32), "global_scale": G} | changed
    with backend.count() as counters:
        refused(lambda: swiglu_quantize(**given, backend=backend), "swiglu_quantize: ", *parts)
    assert counters.launches == 0


def test_the_error_of_fp32_is_below_2_to_the_minus_21(backend: Any) -> None:
    """One large value a block shows in its fp32 scale."""
    gate, up = torch.zeros(80, 32, dtype=torch.bfloat16), torch.zeros(80, 32, dtype=torch.bfloat16)
    gate[:, 9] = torch.linspace(-30.0, 12.0, 80).bfloat16()
    up[:, 9] = 7.0
    found = swiglu_quantize(gate, up, format="fp8", block=32, scale="fp32", backend=backend)
    h = swiglu(gate, up)[:, 9].abs().clamp(min=1e-4) / 448
    assert float((found.scales[:, 0].double() / h - 1).abs().max()) < 2.0**-21
    assert float(found.scales.max()) == pytest.approx(10 * 7 / 448, rel=1e-3)
