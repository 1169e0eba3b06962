"""One call of each operator, and the same through the kernel's own function: inputs for all tests of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels import linear, mhc, qk_norm_rope, quantize_fp8, quantize_nvfp4, rmsnorm_quantize, rope, swiglu_quantize
from kernels.shared.quantised import Quantised
from oracles.formats import nvfp4, swizzle
from tests.kernels.passes import values
from tests.kernels.test_linear import tokens, weight

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """An operator, its arguments, what the kernel gives for them, the positions of arguments that are written, and
    where it runs."""

    op: str
    arguments: tuple[Any, ...]
    direct: Callable[[tuple[Any, ...], Any], Tensors]
    written: tuple[int, ...] = ()
    arches: tuple[str, ...] = ("sm_90a", "sm_100a")

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
        Case(
            "nvfp4_linear",
            (tokens(3, 256), one.data, one.alpha, *rest, one.rows, "f16"),
            call("linear", one),
            arches=("sm_90a",),
        ),
        Case(
            "multi_linear",
            (tokens(2, 256), several.data, several.alpha, "nvfp4", [48, 32], 256, several.rows, "f16"),
            call("multi_linear", several),
            arches=("sm_90a",),
        ),
        Case(
            "grouped_linear",
            (tokens(2, 512).unflatten(1, (2, 256)), grouped.data, grouped.alpha, "nvfp4", 2, 48, 256, grouped.rows)
            + ("f16",),
            call("grouped_linear", grouped),
            arches=("sm_90a",),
        ),
    ]


def _quantised(m: int, k: int) -> tuple[torch.Tensor, ...]:
    """Tokens as codes, swizzled scales and global scale."""
    g = torch.tensor(0.01)
    codes, scales = nvfp4.quantize(tokens(m, k), g)
    return codes, swizzle.swizzle(scales), g


def _on_blackwell(
    op: str, name: str, x: tuple[torch.Tensor, ...], like: linear.PackedSm100, rest: tuple[Any, ...], ending: Any = None
) -> Case:
    """A linear of NVFP4 tokens. ending: the epilogue, from the arguments."""

    def run(a: tuple[Any, ...], backend: Any) -> Tensors:
        packed = replace(like, codes=a[3], scales=a[4], alpha=a[5])
        given = {} if ending is None else {"epilogue": ending(a)}
        found = getattr(linear, name)(Quantised(*a[:3]), packed, **given, backend=backend)
        if isinstance(found, Quantised):
            return _codes(found)
        return (torch.cat([y.flatten() for y in found]),) if isinstance(found, list) else (found,)

    tensors = (*x, like.codes, like.scales, like.alpha)
    return Case(op, (*tensors, *rest), run, arches=("sm_100a",))


def _scaled() -> list[Case]:
    given = [weight(n, 128, seed=n)[0] for n in (40, 24)]
    one, several = linear.pack_sm100(given[0]), linear.pack_sm100(given)
    grouped = linear.pack_sm100([given[0]] * 2, grouped=True)
    return [
        _on_blackwell("nvfp4_linear_w4a4", "linear", _quantised(3, 128), one, (40, 128)),
        _on_blackwell("multi_linear_w4a4", "multi_linear", _quantised(2, 128), several, ([40, 24], 128)),
        _on_blackwell("grouped_linear_w4a4", "grouped_linear", _quantised(2, 256), grouped, (2, 40, 128)),
    ]


def _endings() -> list[Case]:
    x, g = _quantised(3, 128), torch.tensor(0.02)
    given = [weight(n, 128, seed=n)[0] for n in (128, 48)]
    one, pair = linear.pack_sm100(given[0]), linear.pack_sm100([given[1], weight(48, 128, seed=7)[0]], interleaved=True)
    angle = torch.arange(3.0)[:, None] * torch.linspace(0.1, 1.0, 16)
    atoms, fp8 = (g, "nvfp4", None, "ue8m0", True), (None, "fp8", 64, "fp32", False)

    def store(a: tuple[Any, ...]) -> linear.Quantise:
        scale, name, block, kind, swizzled = a[-5:]
        return linear.Quantise(name, scale, swizzled, block, kind)

    return [
        _on_blackwell("nvfp4_linear_quantize", "linear", x, one, (128, 128, *fp8), store),
        _on_blackwell(
            "nvfp4_linear_swiglu",
            "linear",
            x,
            pair,
            (48, 128, 1.5, *atoms),
            lambda a: linear.Swiglu(1.5, store(a)),
        ),
        _on_blackwell("nvfp4_linear_swiglu_bf16", "linear", x, pair, (48, 128, None), lambda a: linear.Swiglu(None)),
        _on_blackwell(
            "nvfp4_linear_rope",
            "linear",
            x,
            one,
            (128, 128, angle.cos(), angle.sin(), 128, True),
            lambda a: linear.Rotate(a[8], a[9], 128, True),
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


def cases(arch: str = "") -> list[Case]:
    """One of each operator, or of each that runs on an architecture."""
    found = _linears() + _scaled() + _endings() + _quantisers() + _rotations() + _hyper()
    return [case for case in found if not arch or arch in case.arches]
