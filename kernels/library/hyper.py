"""Operators of the hyper-connections.

dsv4::mhc_pre_rmsnorm_quantize        streams -> codes, scales, C, M
dsv4::mhc_post                        output, streams, C, M -> streams
dsv4::mhc_post_pre_rmsnorm_quantize   both -> codes, scales, C, M, streams
"""

from __future__ import annotations

import torch

from kernels import mhc
from kernels.library.places import backend_for, own
from kernels.library.quantisers import fake_outputs, form_of
from kernels.mhc import MhcInput
from kernels.mhc.config import STREAMS
from kernels.shared.quantised import Quantised

Tensor = torch.Tensor


def _fake_input(streams: Tensor, format: str, block: int | None, scale: str, swizzled: bool) -> tuple[Tensor, ...]:
    tokens, _, d = streams.shape
    codes, scales = fake_outputs(streams, form_of(format, block, scale, swizzled), tokens, d)
    c, m = ((tokens, STREAMS), (tokens, STREAMS, STREAMS))
    return codes, scales, *(streams.new_empty(shape, dtype=torch.float32) for shape in (c, m))


@torch.library.custom_op("dsv4::mhc_pre_rmsnorm_quantize", mutates_args=())
def mhc_pre_op(
    streams: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
    eps: float,
    mix_eps: float,
    norm_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See ``kernels.mhc``."""
    found = mhc.mhc_pre_rmsnorm_quantize(
        streams,
        fn,
        mix,
        base,
        weight,
        global_scale,
        format=format,
        block=block,
        scale=scale,
        swizzled=swizzled,
        eps=eps,
        mix_eps=mix_eps,
        norm_eps=norm_eps,
        iterations=iterations,
        backend=backend_for("mhc_pre_rmsnorm_quantize", streams),
    )
    return own(found.x.codes), own(found.x.scales), own(found.c), own(found.m)


@mhc_pre_op.register_fake
def _(
    streams: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
    eps: float,
    mix_eps: float,
    norm_eps: float,
    iterations: int,
) -> tuple[Tensor, ...]:
    return _fake_input(streams, format, block, scale, swizzled)


@torch.library.custom_op("dsv4::mhc_post", mutates_args=())
def mhc_post_op(y: Tensor, streams: Tensor, c: Tensor, m: Tensor) -> Tensor:
    """See ``kernels.mhc``."""
    return own(mhc.mhc_post(y, streams, c, m, backend=backend_for("mhc_post", y)))


@mhc_post_op.register_fake
def _(y: Tensor, streams: Tensor, c: Tensor, m: Tensor) -> Tensor:
    return streams.new_empty(streams.shape)


@torch.library.custom_op("dsv4::mhc_post_pre_rmsnorm_quantize", mutates_args=())
def mhc_post_pre_op(
    y: Tensor,
    streams: Tensor,
    c: Tensor,
    m: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
    eps: float,
    mix_eps: float,
    norm_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See ``kernels.mhc``."""
    found = mhc.mhc_post_pre_rmsnorm_quantize(
        y,
        streams,
        c,
        m,
        fn,
        mix,
        base,
        weight,
        global_scale,
        format=format,
        block=block,
        scale=scale,
        swizzled=swizzled,
        eps=eps,
        mix_eps=mix_eps,
        norm_eps=norm_eps,
        iterations=iterations,
        backend=backend_for("mhc_post_pre_rmsnorm_quantize", y),
    )
    assert found.streams is not None
    return own(found.x.codes), own(found.x.scales), own(found.c), own(found.m), own(found.streams)


@mhc_post_pre_op.register_fake
def _(
    y: Tensor,
    streams: Tensor,
    c: Tensor,
    m: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None,
    format: str,
    block: int | None,
    scale: str,
    swizzled: bool,
    eps: float,
    mix_eps: float,
    norm_eps: float,
    iterations: int,
) -> tuple[Tensor, ...]:
    return *_fake_input(streams, format, block, scale, swizzled), streams.new_empty(streams.shape)


def mhc_pre_rmsnorm_quantize(
    streams: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None = None,
    *,
    format: str = "nvfp4",
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
    eps: float = 1e-6,
    mix_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    iterations: int = 20,
) -> MhcInput:
    """A sublayer's input, normed and quantised, and the C and M that bring its output back."""
    form, numbers = (format, block, scale, swizzled), (eps, mix_eps, norm_eps, iterations)
    codes, scales, c, m = mhc_pre_op(streams, fn, mix, base, weight, global_scale, *form, *numbers)
    return MhcInput(Quantised(codes, scales, global_scale), c, m)


def mhc_post(y: Tensor, streams: Tensor, c: Tensor, m: Tensor) -> Tensor:
    """The streams behind a sublayer that gave y: a new tensor."""
    return mhc_post_op(y, streams, c, m)


def mhc_post_pre_rmsnorm_quantize(
    y: Tensor,
    streams: Tensor,
    c: Tensor,
    m: Tensor,
    fn: Tensor,
    mix: Tensor,
    base: Tensor,
    weight: Tensor,
    global_scale: Tensor | None = None,
    *,
    format: str = "nvfp4",
    block: int | None = None,
    scale: str = "ue8m0",
    swizzled: bool = False,
    eps: float = 1e-6,
    mix_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    iterations: int = 20,
) -> MhcInput:
    """The two, of neighbouring sublayers."""
    form, numbers = (format, block, scale, swizzled), (eps, mix_eps, norm_eps, iterations)
    pre = (fn, mix, base, weight, global_scale)
    codes, scales, c, m, mixed = mhc_post_pre_op(y, streams, c, m, *pre, *form, *numbers)
    return MhcInput(Quantised(codes, scales, global_scale), c, m, mixed)
