"""The host side of the linears on sm_90a: checks, the choice of kernel and configuration, the launch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from kernels.linear import wide_choice
from kernels.linear.config import ACTIVATIONS, SHARED_BYTES, SPLITS, TOKENS, LinearConfig
from kernels.linear.outputs import output_shape, outputs_in
from kernels.linear.pack import MULTIPROCESSORS, Packed
from kernels.linear.wide_config import WideConfig
from kernels.shared.quantised import check_arch

NARROW = {16: 4, 8: 2, 4: 1}
"""Tokens up to which the kernel that keeps its activations is the faster one, by the rows of a tile: where these are
few, a CTA has little weight, but needs all activations."""
LONG_TILES = 32 * MULTIPROCESSORS
"""Tiles from which it is the faster one for all tokens that it takes: it reads the activations once for them."""
MOST_TOKENS = 1 << 20
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


def run(
    op: str,
    x: Any,
    packed: Any,
    out: torch.Tensor | None,
    activation: str,
    backend: Any,
    kernel: type | None,
    settings: dict[str, Any],
) -> list[torch.Tensor]:
    """Outputs of each part; of a grouped linear one [m, groups, n]."""
    check(op, x, packed, out, activation, backend)
    m = x.shape[0]
    config = choose(op, x, packed, activation, settings) if m else None
    out = backend.empty(output_shape(packed, m), torch.bfloat16, "out") if out is None else out
    if config is not None:
        launch(op, config, x, packed, out, backend, kernel)
    return outputs_in(out, packed, m)


def choose(
    op: str, x: torch.Tensor, packed: Packed, activation: str, settings: dict[str, Any]
) -> LinearConfig | WideConfig:
    """The kernel for these activations: if TMA can't read them and there is another, the other."""
    config = config_for(packed, x.shape[0], activation, settings)
    if isinstance(config, WideConfig) and (x.stride(0) % 8 or x.data_ptr() % 16):
        if x.shape[0] <= TOKENS[-1] and not settings:
            return narrow_config(packed, x.shape[0], activation)
        raise ValueError(
            f"{op}: x has strides {x.stride()} and starts {x.data_ptr() % 16} past a multiple of 16 bytes; allowed for "
            f"m={x.shape[0]} tokens: token stride a multiple of 8, address a multiple of 16"
        )
    return config


def config_for(
    packed: Packed, m: int, activation: str = "f16", settings: dict[str, Any] | None = None
) -> LinearConfig | WideConfig:
    """The kernel for m tokens; `settings` replace fields, and decide where only one kernel has such a field. Raises
    ValueError if there is none."""
    given = settings or {}
    narrow, wide = (
        [name for name in given if name not in {field.name for field in fields(other)}]
        for other in (WideConfig, LinearConfig)
    )
    if narrow and wide:
        raise ValueError(f"linear: settings {', '.join(narrow)} and {', '.join(wide)}; allowed: those of one kernel")
    long = packed.rows == 16 and packed.config.tile_count >= LONG_TILES
    few = m <= (TOKENS[-1] if long else NARROW[packed.rows])
    if activation == "e4m3" or narrow or (few and not wide):
        return narrow_config(packed, m, activation, given)
    return wide_choice.config_for(packed, m, given)


def narrow_config(
    packed: Packed, m: int, activation: str = "f16", settings: dict[str, Any] | None = None
) -> LinearConfig:
    """The kernel that keeps its activations, for m tokens."""
    if m > TOKENS[-1]:
        raise ValueError(f"linear: m={m} tokens; allowed with settings of LinearConfig: up to {TOKENS[-1]}")
    segments, given = 16 // packed.rows, settings or {}
    least = max(1, 8 // segments) if packed.format == "fp8" else 1
    tokens = next((t for t in TOKENS if t >= max(m, least)), TOKENS[-1])
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


def launch(
    op: str,
    config: LinearConfig | WideConfig,
    x: torch.Tensor,
    packed: Packed,
    out: torch.Tensor,
    backend: Any,
    kernel: type | None,
) -> None:
    """One launch."""
    from cutlass import Int32

    if kernel is None:
        kernel = kernel_of(config)
    rows = x.detach().flatten(1) if packed.grouped else x.detach()
    arguments = (
        backend.tensor(rows, "x", leading_dim=1, align=16 if isinstance(config, WideConfig) else 8, writable=False),
        backend.tensor(packed.data, "packed.data", align=16, writable=False),
        backend.tensor(packed.alpha, "packed.alpha", align=4, writable=False),
        backend.tensor(out.view(-1), "out", align=2),
        Int32(x.shape[0]),
        Int32(rows.stride(0)),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=op), *arguments)


def kernel_of(config: LinearConfig | WideConfig) -> type:
    """The kernel's class."""
    if isinstance(config, WideConfig):
        from kernels.linear.sm90_wide import WideLinearSm90

        return WideLinearSm90
    if config.rounded:
        from kernels.linear.sm90_e4m3 import RoundedLinearSm90

        return RoundedLinearSm90
    from kernels.linear.sm90 import LinearSm90

    return LinearSm90


def check(op: str, x: Any, packed: Any, out: Any, activation: str, backend: Any) -> None:
    """Raise ValueError unless x, weights and output fit together and the kernels can read and write them."""
    check_arch(op, backend)
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
    most = MOST_TOKENS if activation == "f16" else TOKENS[-1]
    if x.shape[0] > most:
        raise ValueError(f"{op}: x has m={x.shape[0]} tokens; allowed: 0 to {most}")
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
    wanted = output_shape(packed, x.shape[0])
    if out.dtype != torch.bfloat16 or tuple(out.shape) != wanted or not out.is_contiguous():
        raise ValueError(
            f"{op}: out is {out.dtype} {tuple(out.shape)} with strides {out.stride()}; "
            f"allowed: contiguous torch.bfloat16 {wanted}"
        )
