"""Linears of few tokens with quantised weights, read once: y = alpha x w^T. One weight, several of one x, or groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kernels.linear.config import ACTIVATIONS, SHARED_BYTES, SPLITS, TOKENS, LinearConfig
from kernels.linear.pack import Packed, Weight, pack, rows_for, unpack

__all__ = ["Packed", "Weight", "grouped_linear", "linear", "multi_linear", "pack", "rows_for", "unpack"]

ARCHS = {"sm_90a": "sm90"}
"""Architectures with a kernel, as backends spell them."""
MAX_TOKENS = TOKENS[-1]
RING = 147_456
"""Bytes of ring that a long stream wants, although a third of it in flight is enough for full bandwidth."""
SHARED_RING = 92_160
"""Bytes of ring of a kernel that shares its multiprocessor with the next one."""
LEAST_RING = 36_864
"""Bytes of ring that must be left beside the activations; else a cluster shares K."""
LONG = 32
"""Ring stages a CTA from which a stream is long: the gain at its end is small, the deeper ring counts."""
IN_FLIGHT = 55_296
"""Bytes of copies under way at once: more only lengthens the queue in front of memory."""


def linear(
    x: torch.Tensor,
    packed: Packed,
    *,
    out: torch.Tensor | None = None,
    activation: str = "f16",
    backend: Any,
    kernel: type | None = None,
    **settings: Any,
) -> torch.Tensor:
    """y = alpha x w^T, BF16 [m, n]: x BF16 [m, k] of 1 to 16 tokens, the last stride 1, the other any multiple of 4.

    packed      one weight from ``pack``
    out         written and returned if given: BF16 [m, n], contiguous
    activation  "f16": products of the given BF16 values, exact; sums in f32. "e4m3": each token's activations are
                rounded to E4M3 under the smallest power of two that holds them; products by wgmma, whose sums
                keep 13 bits behind the leading one

    One launch, no synchronisation, bitwise repeatable, inputs unchanged. NaN in x is NaN in that token's y. m = 0 gives
    an empty y without a launch. By programmatic dependent launch the kernel reads `packed` while the one before it on
    the stream still runs, so that one must not write it; x and out are only touched after it. `kernel` replaces the
    kernel's class, `settings` fields of ``LinearConfig``. Raises ValueError naming argument, value and what is allowed,
    before anything is launched.
    """
    if isinstance(packed, Packed) and (len(packed.parts) != 1 or packed.grouped):
        raise ValueError(
            f"linear: packed has parts={packed.parts}; allowed: one (multi_linear and grouped_linear take more)"
        )
    return _run("linear", x, packed, out, activation, backend, kernel, settings)[0]


def multi_linear(
    x: torch.Tensor,
    packed: Packed,
    *,
    out: torch.Tensor | None = None,
    activation: str = "f16",
    backend: Any,
    kernel: type | None = None,
    **settings: Any,
) -> list[torch.Tensor]:
    """Several linears of one x in one launch: BF16 [m, n_i] for each weight of `packed`, contiguous views of `out`.

    out: BF16, contiguous, m times the sum of n_i elements. All else as ``linear``.
    """
    if isinstance(packed, Packed) and packed.grouped:
        raise ValueError("multi_linear: packed.grouped=True; allowed: False (grouped_linear takes it)")
    return _run("multi_linear", x, packed, out, activation, backend, kernel, settings)


def grouped_linear(
    x: torch.Tensor,
    packed: Packed,
    *,
    out: torch.Tensor | None = None,
    activation: str = "f16",
    backend: Any,
    kernel: type | None = None,
    **settings: Any,
) -> torch.Tensor:
    """y[:, g] = alpha_g x[:, g] w_g^T for groups g, in one launch: x BF16 [m, g, k] -> BF16 [m, g, n].

    x: the last stride 1, a group's stride k. packed: from ``pack(..., grouped=True)``. All else as ``linear``.
    """
    if isinstance(packed, Packed) and not packed.grouped:
        raise ValueError("grouped_linear: packed.grouped=False; allowed: True, from pack(..., grouped=True)")
    return _run("grouped_linear", x, packed, out, activation, backend, kernel, settings)[0]


def _run(
    op: str,
    x: torch.Tensor,
    packed: Packed,
    out: torch.Tensor | None,
    activation: str,
    backend: Any,
    kernel: type | None,
    settings: dict[str, Any],
) -> list[torch.Tensor]:
    _check(op, x, packed, out, activation, backend)
    m, total = x.shape[0], sum(packed.parts)
    shape = (m, len(packed.parts), packed.parts[0]) if packed.grouped else (m * total,)
    if not packed.grouped and len(packed.parts) == 1:
        shape = (m, total)
    out = backend.empty(shape, torch.bfloat16, "out") if out is None else out
    if m:
        config = config_for(packed, m, activation, settings)
        _launch(op, config, x, packed, out, backend, kernel)
    if packed.grouped or len(packed.parts) == 1:
        return [out]
    flat, begins = out.view(-1), [m * sum(packed.parts[:i]) for i in range(len(packed.parts))]
    return [flat[b : b + m * n].view(m, n) for b, n in zip(begins, packed.parts, strict=True)]


def config_for(packed: Packed, m: int, activation: str = "f16", settings: dict[str, Any] | None = None) -> LinearConfig:
    """The kernel for m tokens; `settings` replace fields. Raises ValueError if there is none."""
    segments, given = 16 // packed.rows, settings or {}
    least = max(1, 8 // segments) if packed.format == "fp8" else 1
    tokens = next((t for t in TOKENS if t >= max(m, least)), MAX_TOKENS)
    config = replace(packed.config, **({"activation": activation, "tokens": tokens, "warps": 16} | given))
    # Accumulators for many columns want more registers than 18 warps leave each.
    many = config.column_tiles >= 4
    if "warps" not in given and (many or not config.rounded and config.units * config.tiles_per_set <= 8):
        config = replace(config, warps=8)
    chosen: dict[str, int] = {}
    if config.longest > 2 * config.turns and config.partials <= 2:
        chosen["buffers"] = 4
    if config.turns == 2 and tokens <= 2:
        chosen["resident"] = 2
    config = replace(config, **(chosen | given))
    # A ring that leaves room for another CTA lets the next kernel of the stream fill its own while this one ends.
    wanted = SHARED_RING if config.turns <= 2 and tokens <= 4 and config.longest <= LONG else RING
    if "split" not in given and not config.rounded:
        fitting = (s for s in SPLITS if config.units % s == 0 and _room(replace(config, split=s)) >= LEAST_RING)
        config = replace(config, split=next(fitting, 1))
    room = _room(config)
    stages = given.get("stages", max(1, min(min(room, wanted) // config.stage_bytes, config.longest)))
    in_flight = given.get("in_flight", max(1, min(stages, IN_FLIGHT // config.stage_bytes)))
    config = replace(config, stages=stages, in_flight=in_flight)
    problems = config.problems()
    if problems:
        raise ValueError(f"linear: {'; '.join(problems)} (kernels/linear/config.py)")
    return config


def _room(config: LinearConfig) -> int:
    """Shared memory for the ring."""
    return SHARED_BYTES - sum(size for name, size in config.shared_bytes().items() if name != "ring")


def _launch(
    op: str, config: LinearConfig, x: torch.Tensor, packed: Packed, out: torch.Tensor, backend: Any, kernel: type | None
) -> None:
    from cutlass import Int32

    if kernel is None and config.rounded:
        from kernels.linear.sm90_e4m3 import RoundedLinearSm90 as kernel
    elif kernel is None:
        from kernels.linear.sm90 import LinearSm90 as kernel
    rows = x.detach().flatten(1) if packed.grouped else x.detach()
    arguments = (
        backend.tensor(rows, "x", leading_dim=1, align=8, writable=False),
        backend.tensor(packed.data, "packed.data", align=16, writable=False),
        backend.tensor(packed.alpha, "packed.alpha", align=4, writable=False),
        backend.tensor(out.view(-1), "out", align=2),
        Int32(x.shape[0]),
        Int32(rows.stride(0)),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=op), *arguments)


def _check(op: str, x: Any, packed: Any, out: Any, activation: str, backend: Any) -> None:
    if backend.arch not in ARCHS:
        raise ValueError(f"{op}: arch={backend.arch} is not supported; supported: {', '.join(ARCHS)}")
    if not isinstance(packed, Packed):
        raise ValueError(f"{op}: packed is a {type(packed).__name__}; allowed: kernels.linear.Packed, from pack()")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{op}: activation={activation!r}; allowed: {', '.join(ACTIVATIONS)}")
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{op}: x is a {type(x).__name__}; allowed: a torch.Tensor")
    groups, k = (len(packed.parts),) if packed.grouped else (), packed.k
    wanted = ", ".join(["m", *map(str, groups), str(k)])
    if x.dtype != torch.bfloat16 or x.dim() != 2 + len(groups) or tuple(x.shape[1:]) != (*groups, k):
        raise ValueError(f"{op}: x is {x.dtype} {tuple(x.shape)}; allowed: torch.bfloat16 ({wanted})")
    if x.shape[0] > MAX_TOKENS:
        raise ValueError(f"{op}: x has m={x.shape[0]} tokens; allowed: 0 to {MAX_TOKENS}")
    if x.numel() and (x.stride(-1) != 1 or (groups and x.stride(1) != k) or x.stride(0) % 4 or x.data_ptr() % 8):
        raise ValueError(
            f"{op}: x has strides {x.stride()} and starts {x.data_ptr() % 8} past a multiple of 8 bytes; "
            f"allowed: last stride 1{', group stride k' if groups else ''}, token stride a multiple of 4, address a "
            "multiple of 8"
        )
    if packed.activation != activation:
        raise ValueError(f"{op}: activation={activation!r}; allowed: {packed.activation!r}, for which packed was made")
    size = packed.config.sets * packed.config.tiles_per_set * packed.config.tile_bytes
    if packed.data.dtype != torch.uint8 or not packed.data.is_contiguous() or packed.data.numel() != size:
        raise ValueError(
            f"{op}: packed.data is {packed.data.dtype} {tuple(packed.data.shape)}; "
            f"allowed: contiguous torch.uint8 ({size},)"
        )
    tensors = {"x": x, "packed.data": packed.data, "packed.alpha": packed.alpha} | ({} if out is None else {"out": out})
    for name, tensor in tensors.items():
        if tensor.device != backend.device:
            raise ValueError(f"{op}: {name}.device={tensor.device}; allowed: {backend.device}, where the backend runs")
    if out is not None:
        _check_out(op, x, packed, out)


def _check_out(op: str, x: torch.Tensor, packed: Packed, out: Any) -> None:
    m, total = x.shape[0], sum(packed.parts)
    wanted = (
        (m, len(packed.parts), packed.parts[0])
        if packed.grouped
        else (m, total)
        if len(packed.parts) == 1
        else (m * total,)
    )
    if out.dtype != torch.bfloat16 or tuple(out.shape) != wanted or not out.is_contiguous():
        raise ValueError(
            f"{op}: out is {out.dtype} {tuple(out.shape)} with strides {out.stride()}; "
            f"allowed: contiguous torch.bfloat16 {wanted}"
        )
