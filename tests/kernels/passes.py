"""What the tests of the quantising and fused passes share."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

ARCHS = ("sm_90a", "sm_100a")


def backend_for(arch: str) -> Any:
    """An emulated backend; skips without the DSL."""
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch=arch)


def refused(call: Callable[[], Any], *parts: str) -> None:
    """The call raises a ValueError that holds all the parts."""
    with pytest.raises(ValueError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {caught.value}"


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    """BF16, the mean away from 0."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 0.3).bfloat16()


def unaligned(x: torch.Tensor) -> torch.Tensor:
    """The same one element further in memory."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype)
    room[1:] = x.flatten()
    return room[1:].view(x.shape)
