"""One call of each operator, and the same through the kernel's own function: inputs for all tests of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernels import linear, mhc, qk_norm_rope, quantize_fp8, quantize_nvfp4, rmsnorm_quantize, rope, swiglu_quantize
from tests.kernels.passes import values
from tests.kernels.test_linear import tokens, weight

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """An operator, its arguments, what the kernel gives for them, and the positions of arguments that are written."""

    op: str
    arguments: tuple[Any, ...]
    direct: Callable[[tuple[Any, ...], Any], Tensors]
    written: tuple[int, ...] = ()

    @property
    def overload(self) -> Any:
        """The operator of torch."""
        return getattr(torch.ops.dsv4, self.op).default

    def on(self, device: torch.device) -> tuple[Any, ...]:
        """The arguments, tensors new and on a device."""
        return tuple(_moved(a, device) if isinstance(a, torch.Tensor) else a for a in self.arguments)


def _moved(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    # A copy keeps strides only of dense tensors.
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)


def results(found: Any) -> Tensors:
    """What an operator gave, as a tuple."""
    return () if found is None else found if isinstance(found, tuple) else (found,)


def _codes(found: Any) -> Tensors:
    return found.codes, found.scales


def _mixed(found: Any) -> Tensors:
    rest = () if found.streams is None else (found.streams,)
    return found.x.codes, found.x.scales, found.c, found.m, *rest


def _linears() -> list[Case]:
    given = [weight(n, 256, seed=n)[0] for n in (48, 32)]
    one, several, grouped = linear.pack(given[0]), linear.pack(given), linear.pack([given[0]] * 2, grouped=True)

    def call(name: str, packed: linear.Packed) -> Callable[[tuple[Any, ...], Any], Tensors]:
        def run(a: tuple[Any, ...], backend: Any) -> Tensors:
            moved = linear.Packed(
                a[1], a[2], packed.format, packed.parts, packed.k, packed.rows, packed.grouped, packed.activation
            )
            found = getattr(linear, name)(a[0], moved, backend=backend)
            return (torch.cat([y.flatten() for y in found]),) if isinstance(found, list) else (found,)

        return run

    rest = ("nvfp4", 48, 256)
    return [
        Case("nvfp4_linear", (tokens(3, 256), one.data, one.alpha, *rest, one.rows, "f16"), call("linear", one)),
        Case(
            "multi_linear",
            (tokens(2, 256), several.data, several.alpha, "nvfp4", [48, 32], 256, several.rows, "f16"),
            call("multi_linear", several),
        ),
        Case(
            "grouped_linear",
            (tokens(2, 512).unflatten(1, (2, 256)), grouped.data, grouped.alpha, "nvfp4", 2, 48, 256, grouped.rows)
            + ("f16",),
            call("grouped_linear", grouped),
        ),
    ]


def _quantisers() -> list[Case]:
    g, norm = torch.tensor(0.002), values(256, seed=9)
    return [
        Case(
            "quantize_nvfp4",
            (values(5, 80), g, True),
            lambda a, b: _codes(quantize_nvfp4.quantize_nvfp4(a[0], a[1], swizzled=True, backend=b)),
        ),
        Case(
            "quantize_nvfp4_dynamic",
            (values(5, 80), False),
            lambda a, b: (lambda q: (*_codes(q), q.global_scale))(quantize_nvfp4.quantize_nvfp4(a[0], backend=b)),
        ),
        Case(
            "quantize_fp8",
            (values(3, 256), 64, "fp32"),
            lambda a, b: _codes(quantize_fp8.quantize_fp8(a[0], block=64, scale="fp32", backend=b)),
        ),
        Case(
            "rmsnorm_quantize",
            (values(3, 256), norm, g, "nvfp4", 1e-6, None, "ue8m0", True),
            lambda a, b: _codes(rmsnorm_quantize.rmsnorm_quantize(*a[:3], swizzled=True, backend=b)),
        ),
        Case(
            "swiglu_quantize",
            (values(3, 256), values(3, 256, seed=4), None, "fp8", 10.0, None, "ue8m0", False),
            lambda a, b: _codes(swiglu_quantize.swiglu_quantize(a[0], a[1], format="fp8", backend=b)),
        ),
    ]


def _rotations() -> list[Case]:
    angle = torch.arange(3.0)[:, None] * torch.linspace(0.1, 1.0, 16)
    cos, sin, norm = angle.cos(), angle.sin(), values(64, seed=9)
    return [
        Case(
            "rope",
            (values(3, 2, 64), cos, sin, True),
            lambda a, b: (rope.rope(*a[:3], inverse=True, backend=b),),
            (0,),
        ),
        Case(
            "qk_norm_rope",
            (values(3, 2, 64), values(3, 64, seed=5), norm, cos, sin, 1e-6),
            lambda a, b: qk_norm_rope.qk_norm_rope(*a[:5], eps=1e-6, backend=b),
            (0, 1),
        ),
    ]


def _hyper() -> list[Case]:
    rng, d = torch.Generator().manual_seed(2), 48
    pre = (torch.randn(24, 4 * d, generator=rng) / 14, 1 + torch.rand(3, generator=rng))
    pre += (torch.randn(24, generator=rng) / 2, values(d, seed=9), torch.tensor(0.002))
    post = (values(3, d, seed=7), values(3, 4, d, seed=8), torch.rand(3, 4, generator=rng))
    post += (torch.rand(3, 4, 4, generator=rng) / 4,)
    numbers = ("nvfp4", None, "ue8m0", False, 1e-6, 1e-6, 1e-6, 20)
    return [
        Case(
            "mhc_pre_rmsnorm_quantize",
            (post[1], *pre, *numbers),
            lambda a, b: _mixed(mhc.mhc_pre_rmsnorm_quantize(*a[:6], backend=b)),
        ),
        Case("mhc_post", post, lambda a, b: (mhc.mhc_post(*a, backend=b),)),
        Case(
            "mhc_post_pre_rmsnorm_quantize",
            (*post, *pre, *numbers),
            lambda a, b: _mixed(mhc.mhc_post_pre_rmsnorm_quantize(*a[:9], backend=b)),
        ),
    ]


def cases() -> list[Case]:
    """One of each operator."""
    return _linears() + _quantisers() + _rotations() + _hyper()
