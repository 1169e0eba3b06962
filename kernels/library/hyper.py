"""Operators of the hyper-connections.

dsv4::mhc_pre_rmsnorm_quantize        streams -> codes, scales, C, M
dsv4::mhc_post                        output, streams, C, M -> streams
dsv4::mhc_post_pre_rmsnorm_quantize   both -> codes, scales, C, M, streams
"""

from __future__ import annotations

from typing import Any

import torch

from kernels import mhc
from kernels.library.operator import operator
from kernels.library.places import backend_for, own
from kernels.library.quantisers import stored
from kernels.mhc import MhcInput
from kernels.mhc.config import STREAMS
from kernels.shared.quantised import Quantised

Tensor = torch.Tensor


def _fake_input(a: Any) -> tuple[Tensor, ...]:
    tokens, _, d = a.streams.shape
    c, m = ((tokens, STREAMS), (tokens, STREAMS, STREAMS))
    mixes = (a.streams.new_empty(shape, dtype=torch.float32) for shape in (c, m))
    return *stored(a, a.streams, tokens, d), *mixes


@operator("mhc_pre_rmsnorm_quantize", _fake_input)
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


@operator("mhc_post", lambda a: a.streams.new_empty(a.streams.shape))
def mhc_post_op(y: Tensor, streams: Tensor, c: Tensor, m: Tensor) -> Tensor:
    """See ``kernels.mhc``."""
    return own(mhc.mhc_post(y, streams, c, m, backend=backend_for("mhc_post", y)))


@operator("mhc_post_pre_rmsnorm_quantize", lambda a: (*_fake_input(a), a.streams.new_empty(a.streams.shape)))
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
