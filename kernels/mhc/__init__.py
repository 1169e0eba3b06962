"""Manifold-constrained hyper-connections: residual streams to a sublayer's input and back, in two launches a sublayer.

mhc_pre_rmsnorm_quantize         streams -> input, C, M               2 launches
mhc_post                         output, streams, C, M -> streams     1 launch
mhc_post_pre_rmsnorm_quantize    both, of neighbouring sublayers      2 launches
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.mhc.config import (
    MIXES,
    STREAMS,
    SUMS,
    TILE,
    CollapseConfig,
    ManyConfig,
    MixConfig,
    mix_config,
)
from kernels.rmsnorm_quantize.config import MANY_ROWS
from kernels.shared.formats import BlockFormat
from kernels.shared.quantised import (
    DTYPES,
    Quantised,
    check_arch,
    check_config,
    check_global_scale,
    check_number,
    check_shape,
    check_start,
    check_tensor,
    format_for,
    outputs,
)

__all__ = ["MhcInput", "mhc_post", "mhc_post_pre_rmsnorm_quantize", "mhc_pre_rmsnorm_quantize"]

MAX_TOKENS = 1 << 24
WARPS_PER_SM = 16
"""Of products of few tokens."""
Tensor = torch.Tensor


@dataclass(frozen=True)
class MhcInput:
    """A sublayer's input x, quantised, and what brings its output back: c fp32 [tokens, 4], m fp32 [tokens, 4, 4] (row
    the source stream, column the destination). `streams`: the mixed streams, of mhc_post_pre_rmsnorm_quantize alone.
    """

    x: Quantised
    c: Tensor
    m: Tensor
    streams: Tensor | None = None


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
    out: Quantised | None = None,
    backend: Any,
    kernels: tuple[Any, Any, Any] = (None, None, None),
) -> MhcInput:
    """x = quantise(w norm(sum_j A_j X_j)), C and M, from the residual streams X.

    streams       BF16 [tokens, 4, d], contiguous, 16-byte aligned; d a multiple of 16 (of the block of the format)
    fn, mix, base fp32 [24, 4 d] (magnitudes below 3e38), [3], [24]: z = fn v / sqrt(mean(v^2) + norm_eps), v all 4 d
                  values of a token; then
                  A = sigmoid(z mix_0 + base) + mix_eps, C = 2 sigmoid(z mix_1 + base),
                  M = sinkhorn(z mix_2 + base): softmax of rows + mix_eps, `iterations` times columns, rows between
    weight        [d] BF16 or fp32; eps is added to the mean square of the sum
    global_scale, format, block, scale, swizzled, out    as in rmsnorm_quantize

    z and A have the error of fp32 sums, about 2^-21: a value so near a midpoint may get the neighbouring code. NaN or
    infinity in a token's streams makes all that is the token's NaN. Two launches, no synchronisation, bitwise
    repeatable, inputs unchanged. No tokens: empty tensors, no launch. Raises ValueError naming argument, value and
    what is allowed before anything is launched. `kernels` replace the classes of the first
    pass, of the second, and of the first for many tokens.
    """
    form, numbers = (format, block, scale, swizzled), (eps, mix_eps, norm_eps, iterations)
    pre = (fn, mix, base, weight)
    op = "mhc_pre_rmsnorm_quantize"
    return _pre(op, None, streams, pre, global_scale, form, numbers, out, backend, kernels)


def mhc_post(
    y: Tensor,
    streams: Tensor,
    c: Tensor,
    m: Tensor,
    *,
    out: Tensor | None = None,
    backend: Any,
    kernel: Any = None,
) -> Tensor:
    """X'_k = C_k y + sum_j M_jk X_j: the output of a sublayer goes back into the residual streams.

    y        BF16 [tokens, d], streams BF16 [tokens, 4, d], contiguous, 16-byte aligned; d a multiple of 16
    c, m     fp32 [tokens, 4], [tokens, 4, 4]: the sum runs over the first index of m
    out      written and returned if given: BF16 [tokens, 4, d], contiguous; may be `streams` itself

    Rounded once (to BF16, by way of fp32). One launch, no synchronisation; no tokens: no launch. Raises ValueError
    naming argument, value and what is allowed before anything is launched. `kernel` replaces the kernel's class.
    """
    op = "mhc_post"
    check_arch(op, backend)
    _check_post(op, y, streams, c, m, backend)
    config = mix_config(streams.shape[2], streams.shape[0], post=True, mix=False)
    check_config(op, config.problems())
    if out is None:
        out = backend.empty(tuple(streams.shape), torch.bfloat16, "streams")
    else:
        check_tensor(op, "out", out, (torch.bfloat16,), backend)
        _check_dense(op, "out", out, tuple(streams.shape))
    if streams.shape[0]:
        _mix(config, streams, (y, c, m), out, None, None, backend, kernel)
    return out


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
    out: Quantised | None = None,
    backend: Any,
    kernels: tuple[Any, Any, Any] = (None, None, None),
) -> MhcInput:
    """mhc_post, and mhc_pre_rmsnorm_quantize of its result, in two launches; the mixed streams are in `streams` of the
    result.

    Arguments as of the two. Bit for bit what they give one after the other.
    """
    form, numbers = (format, block, scale, swizzled), (eps, mix_eps, norm_eps, iterations)
    pre = (fn, mix, base, weight)
    op = "mhc_post_pre_rmsnorm_quantize"
    return _pre(op, (y, c, m), streams, pre, global_scale, form, numbers, out, backend, kernels)


def _pre(
    op: str,
    post: tuple[Tensor, Tensor, Tensor] | None,
    streams: Tensor,
    pre: tuple[Tensor, Tensor, Tensor, Tensor],
    global_scale: Tensor | None,
    form: tuple[str, int | None, str, bool],
    numbers: tuple[float, float, float, int],
    out: Quantised | None,
    backend: Any,
    kernels: tuple[Any, Any, Any],
) -> MhcInput:
    """A pre-mix, of the streams or of what a post-mix makes of them."""
    check_arch(op, backend)
    second = _second(op, streams, pre, global_scale, format_for(op, backend, *form), numbers, backend)
    if post is not None:
        y, c, m = post
        _check_post(op, y, streams, c, m, backend)
        second = replace(second, fused=True)
    first = mix_config(second.k, streams.shape[0], post=post is not None, mix=True)
    check_config(op, first.problems())
    tokens = streams.shape[0]
    x = outputs(op, second.format, tokens, second.k, global_scale, out, backend)
    new = backend.empty(tuple(streams.shape), torch.bfloat16, "streams") if post else None
    c = backend.empty((tokens, STREAMS), torch.float32, "c")
    m = backend.empty((tokens, STREAMS, STREAMS), torch.float32, "m")
    if tokens:
        sums = backend.empty((tokens, first.slices, SUMS), torch.float32, "sums")
        _mix(first, streams, post, new, pre[0], sums, backend, kernels[2 if isinstance(first, ManyConfig) else 0])
        _collapse(second, streams if new is None else new, sums, pre[1:], x, c, m, backend, kernels[1])
    return MhcInput(x, c, m, new)


def _mix(
    config: MixConfig | ManyConfig,
    streams: Tensor,
    post: tuple[Tensor, Tensor, Tensor] | None,
    new: Tensor | None,
    fn: Tensor | None,
    sums: Tensor | None,
    backend: Any,
    kernel: Any,
) -> None:
    from cutlass import Int32

    if kernel is None and isinstance(config, ManyConfig):
        from kernels.mhc.mix_many import MixMany as kernel
    elif kernel is None:
        from kernels.mhc.mix import Mix as kernel
    tokens = streams.shape[0]

    def given(x: Tensor | None, name: str, writable: bool = False) -> Any:
        return None if x is None else backend.tensor(x.detach(), name, align=16, writable=writable)

    y, c, m = post or (None, None, None)
    if isinstance(config, ManyConfig):
        blocks = min(-(-tokens // TILE), max(1, backend.multiprocessors // config.slices))
    else:
        warps = backend.multiprocessors * WARPS_PER_SM
        most = max(1, warps // (config.slices * config.groups * config.warps))
        blocks = -(-tokens // config.warps)
        # Without products, nothing that a warp loads serves two tokens.
        blocks = min(blocks, most) if config.mix else blocks
    arguments = (
        given(streams, "streams", writable=new is streams),
        given(y, "y"),
        given(c, "c"),
        given(m, "m"),
        given(new, "new streams", writable=True),
        given(fn, "fn"),
        given(sums, "sums", writable=True),
        Int32(tokens),
        Int32(blocks),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name="mhc_mix"), *arguments)


def _collapse(
    config: CollapseConfig,
    streams: Tensor,
    sums: Tensor,
    pre: tuple[Tensor, ...],
    x: Quantised,
    c: Tensor,
    m: Tensor,
    backend: Any,
    kernel: Any,
) -> None:
    from cutlass import Int32

    if kernel is None:
        from kernels.mhc.collapse import Collapse as kernel
    mix, base, weight = pre
    g = x.global_scale
    arguments = (
        backend.tensor(streams.detach(), "streams", align=16, writable=False),
        backend.tensor(sums, "sums", align=16, writable=False),
        backend.tensor(mix.detach(), "mix", align=4, writable=False),
        backend.tensor(base.detach(), "base", align=4, writable=False),
        backend.tensor(weight.detach(), "weight", align=16, writable=False),
        None if g is None else backend.tensor(g.detach().reshape(1), "global_scale", align=4, writable=False),
        backend.tensor(x.codes, "codes", leading_dim=1, align=16),
        backend.tensor(x.scales, "scales", align=16),
        backend.tensor(c, "c", align=16),
        backend.tensor(m, "m", align=16),
        Int32(streams.shape[0]),
        Int32(config.format.padded(streams.shape[0], config.chunks)[0]),
        Int32(-(-streams.shape[0] // config.threads) if config.many else 0),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name="mhc_collapse"), *arguments)


def _second(
    op: str,
    streams: Any,
    pre: tuple[Any, Any, Any, Any],
    global_scale: Any,
    form: BlockFormat,
    settings: tuple[float, float, float, int],
    backend: Any,
) -> CollapseConfig:
    """The configuration of the second pass, all arguments of a pre-mix checked."""
    fn, mix, base, weight = pre
    d = _check_streams(op, streams, backend)
    for name, x, shape in (("fn", fn, (MIXES, STREAMS * d)), ("mix", mix, (3,)), ("base", base, (MIXES,))):
        check_tensor(op, name, x, (torch.float32,), backend)
        _check_dense(op, name, x, shape)
    check_tensor(op, "weight", weight, DTYPES, backend)
    _check_dense(op, "weight", weight, (d,))
    check_global_scale(op, form, global_scale, backend)
    eps, mix_eps, norm_eps, iterations = settings
    if isinstance(iterations, bool) or not isinstance(iterations, int):
        raise ValueError(f"{op}: iterations={iterations!r}; allowed: 1 to 1000")
    config = CollapseConfig(
        d,
        form,
        DTYPES[weight.dtype],
        check_number(op, "eps", eps),
        streams.shape[0] >= MANY_ROWS,
        mix_eps=check_number(op, "mix_eps", mix_eps),
        norm_eps=check_number(op, "norm_eps", norm_eps),
        iterations=iterations,
    )
    check_config(op, config.problems())
    return config


def _check_streams(op: str, streams: Any, backend: Any) -> int:
    check_tensor(op, "streams", streams, (torch.bfloat16,), backend)
    if streams.dim() != 3 or streams.shape[1] != STREAMS or streams.shape[0] > MAX_TOKENS:
        raise ValueError(
            f"{op}: streams.shape={tuple(streams.shape)}; "
            f"allowed: (tokens, {STREAMS}, d) with at most {MAX_TOKENS} tokens"
        )
    _check_dense(op, "streams", streams, tuple(streams.shape))
    return int(streams.shape[2])


def _check_post(op: str, y: Any, streams: Any, c: Any, m: Any, backend: Any) -> None:
    d = _check_streams(op, streams, backend)
    tokens = streams.shape[0]
    for name, x, dtype, shape in (
        ("y", y, torch.bfloat16, (tokens, d)),
        ("c", c, torch.float32, (tokens, STREAMS)),
        ("m", m, torch.float32, (tokens, STREAMS, STREAMS)),
    ):
        check_tensor(op, name, x, (dtype,), backend)
        _check_dense(op, name, x, shape)


def _check_dense(op: str, name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless x has this shape, is contiguous and starts at a multiple of 16 bytes."""
    check_shape(op, name, x, shape)
    check_start(op, name, x)
