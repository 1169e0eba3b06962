"""Quantising and fused passes under CUDA graph capture: every replay gives the bits of the eager call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import backends
from kernels.mhc import mhc_post, mhc_post_pre_rmsnorm_quantize, mhc_pre_rmsnorm_quantize
from kernels.qk_norm_rope import qk_norm_rope
from kernels.quantize_fp8 import quantize_fp8
from kernels.quantize_nvfp4 import quantize_nvfp4
from kernels.rmsnorm_quantize import rmsnorm_quantize
from kernels.rope import rope
from kernels.swiglu_quantize import swiglu_quantize
from tests.kernels.passes import values

pytestmark = pytest.mark.hw
D = 512
Tensors = dict[str, torch.Tensor]
POST, PRE = ("y", "streams", "c", "m"), ("fn", "mix", "base", "weight", "g")


def inputs(tokens: int) -> Tensors:
    """Arguments of all passes, on the device."""
    rng = torch.Generator().manual_seed(5)
    shapes = {"c": (tokens, 4), "m": (tokens, 4, 4), "fn": (24, 4 * D), "mix": (3,), "base": (24,)}
    shapes |= {"cos": (tokens, 32), "sin": (tokens, 32)}
    found = {name: torch.rand(shape, generator=rng) for name, shape in shapes.items()}
    found |= {"x": values(tokens, D), "y": values(tokens, D, seed=4), "streams": values(tokens, 4, D, seed=6)}
    found |= {"q": values(tokens, 8, 128, seed=7), "kv": values(tokens, 128, seed=8), "weight": values(D, seed=9)}
    return {name: x.cuda() for name, x in found.items()} | {"g": torch.tensor(0.002, device="cuda")}


def given(x: Tensors, names: tuple[str, ...]) -> list[torch.Tensor]:
    return [x[name] for name in names]


CALLS: dict[str, Callable[[Tensors, Any], Any]] = {
    "quantize_nvfp4": lambda x, b: quantize_nvfp4(x["x"], x["g"], backend=b),
    "quantize_nvfp4_own_scale": lambda x, b: quantize_nvfp4(x["x"], swizzled=True, backend=b),
    "quantize_fp8": lambda x, b: quantize_fp8(x["x"], backend=b),
    "rmsnorm_nvfp4": lambda x, b: rmsnorm_quantize(x["x"], x["weight"], x["g"], backend=b),
    "rmsnorm_fp8": lambda x, b: rmsnorm_quantize(x["x"], x["weight"], format="fp8", backend=b),
    "swiglu": lambda x, b: swiglu_quantize(x["x"], x["y"], x["g"], backend=b),
    "rope": lambda x, b: rope(x["q"], x["cos"], x["sin"], backend=b),
    "qk_norm_rope": lambda x, b: qk_norm_rope(x["q"], x["kv"], x["weight"][:128], x["cos"], x["sin"], backend=b),
    "mhc_post": lambda x, b: mhc_post(*given(x, POST), backend=b),
    "mhc_pre": lambda x, b: mhc_pre_rmsnorm_quantize(x["streams"], *given(x, PRE), backend=b),
    "mhc_post_pre": lambda x, b: mhc_post_pre_rmsnorm_quantize(*given(x, POST), *given(x, PRE), backend=b),
}


def parts(result: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    if isinstance(result, torch.Tensor):
        return [result]
    members = result if isinstance(result, tuple) else vars(result).values()
    return [t for member in members if member is not None for t in parts(member)]


@pytest.mark.parametrize("tokens", [1, 700])
@pytest.mark.parametrize("name", CALLS)
def test_a_replay_gives_the_bits_of_the_eager_call(name: str, tokens: int) -> None:
    backend, call = backends.get("cuda", arch="sm_90a"), CALLS[name]
    x = inputs(tokens)
    kept = {key: t.clone() for key, t in x.items()}
    want = [t.clone() for t in parts(call({key: t.clone() for key, t in x.items()}, backend))]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = parts(call(x, backend))
    made = [t for t in found if t.data_ptr() not in {t.data_ptr() for t in x.values()}]
    for _ in range(3):
        for key, t in kept.items():
            x[key].copy_(t)
        for t in made:
            t.reshape(-1).view(torch.uint8).fill_(0xA5)
        graph.replay()
        torch.cuda.synchronize()
        for own, expected in zip(found, want, strict=True):
            assert torch.equal(own.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))
