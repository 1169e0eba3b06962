"""The host side of the linears on sm_100a: checks, the choice of a configuration, the launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kernels.linear.epilogues import Epilogue
from kernels.linear.outputs import output_shape, outputs_in
from kernels.linear.sm100_config import (
    ATOM_ROWS,
    BLOCK,
    LANES,
    MOST_STAGES,
    SPLITS,
    STEP_K,
    SWAPPED_UP_TO,
    TOKENS,
    LinearSm100Config,
)
from kernels.linear.sm100_pack import TMA_BYTES, PackedSm100
from kernels.shared.quantised import Quantised, check_scalar, check_shape, check_start, check_tensor

MAX_TOKENS = 1 << 20
ARCH = "sm_100a"
"""The architecture, as backends spell it."""
SETTINGS = ("swapped", "tokens", "rows", "stages", "split", "pdl", "ctas")
Settings = dict[str, Any]


def linear(
    x: Any, packed: Any, out: Any, activation: str, epilogue: Any, backend: Any, kernel: type | None, settings: Settings
) -> Any:
    """``kernels.linear.linear`` on sm_100a."""
    if isinstance(packed, PackedSm100) and (len(packed.parts) != 1 or packed.grouped):
        raise ValueError(
            f"linear: packed has parts={packed.parts}; allowed: one (multi_linear and grouped_linear take more)"
        )
    if epilogue is not None:
        from kernels.linear.sm100_finish import finished

        return finished(x, packed, out, epilogue, backend, kernel, settings)
    return run("linear", x, packed, out, activation, backend, kernel, settings)[0]


def multi_linear(
    x: Any, packed: Any, out: Any, activation: str, backend: Any, kernel: type | None, settings: Settings
) -> list[torch.Tensor]:
    """``kernels.linear.multi_linear`` on sm_100a."""
    if isinstance(packed, PackedSm100) and packed.grouped:
        raise ValueError("multi_linear: packed.grouped=True; allowed: False (grouped_linear takes it)")
    return run("multi_linear", x, packed, out, activation, backend, kernel, settings)


def grouped_linear(
    x: Any, packed: Any, out: Any, activation: str, backend: Any, kernel: type | None, settings: Settings
) -> torch.Tensor:
    """``kernels.linear.grouped_linear`` on sm_100a."""
    if isinstance(packed, PackedSm100) and not packed.grouped:
        raise ValueError("grouped_linear: packed.grouped=False; allowed: True, from pack_sm100(..., grouped=True)")
    return run("grouped_linear", x, packed, out, activation, backend, kernel, settings)[0]


def run(
    op: str, x: Any, packed: Any, out: Any, activation: str, backend: Any, kernel: type | None, settings: Settings
) -> list[torch.Tensor]:
    """Outputs of each part; of a grouped linear one [m, groups, n]."""
    if activation != "f16":
        raise ValueError(f"{op}: activation={activation!r}; allowed on sm_100a: none, x says how it is quantised")
    m = check(op, x, packed, backend)
    if packed.interleaved:
        raise ValueError(f"{op}: packed.interleaved=True without an epilogue; allowed: linear with epilogue Swiglu")
    shape = output_shape(packed, m)
    if out is None:
        out = backend.empty(shape, torch.bfloat16, "out")
    else:
        check_tensor(op, "out", out, (torch.bfloat16,), backend)
        check_shape(op, "out", out, shape)
    if m:
        vector = out.data_ptr() % 16 == 0 and all(n % 8 == 0 for n in packed.parts)
        config = config_for(op, packed, m, vector=vector, ctas=backend.multiprocessors, settings=settings)
        launch(op, config, x, packed, out.view(-1), settings.get("ctas"), backend, kernel)
    return outputs_in(out, packed, m)


def check(op: str, x: Any, packed: Any, backend: Any) -> int:
    """The number of tokens. Raises ValueError unless x and weights fit together and the kernel can read them."""
    _check_packed(op, packed, backend)
    return _check_x(op, x, packed, backend)


def config_for(
    op: str,
    packed: PackedSm100,
    m: int,
    *,
    vector: bool = False,
    epilogue: Epilogue | None = None,
    ctas: int = 1,
    settings: Settings | None = None,
) -> LinearSm100Config:
    """The kernel for m tokens on `ctas` multiprocessors; `settings` replace fields. Raises ValueError if there is
    none."""
    given = {name: value for name, value in (settings or {}).items() if name != "ctas"}
    unknown = sorted(set(given) - set(SETTINGS))
    if unknown:
        raise ValueError(f"{op}: settings {', '.join(unknown)}; allowed on sm_100a: {', '.join(SETTINGS)}")
    swapped = given.get("swapped", m <= SWAPPED_UP_TO and epilogue is None)
    tokens = next((t for t in TOKENS if t >= m), LANES) if swapped else LANES
    rows = LANES if epilogue is None else epilogue.rows
    config = LinearSm100Config(packed.parts, packed.k, packed.grouped, swapped, tokens, rows, 1, vector, 1, epilogue)
    config = replace(config, **{name: given[name] for name in ("tokens", "rows", "pdl") if name in given})
    if "split" in given or "ctas" not in (settings or {}):
        config = replace(config, split=given.get("split") or _split(config, m, ctas))
    problems = config.problems()
    if config.swapped and config.tokens < min(m, LANES):
        problems.append(f"tokens={config.tokens} with m={m}; allowed below {LANES}: at least m")
    if not problems:
        config = replace(config, stages=given.get("stages", min(MOST_STAGES, config.most_stages)))
        problems = config.problems()
    if problems:
        raise ValueError(f"{op}: {'; '.join(problems)} (kernels/linear/sm100_config.py)")
    return config


def _split(config: LinearSm100Config, m: int, ctas: int) -> int:
    """The largest split that leaves every CTA a tile of its own."""
    items = -(-m // config.tokens) * config.weight_tiles
    splits = (replace(config, split=s) for s in reversed(SPLITS) if items * s <= ctas)
    return next((c.split for c in splits if not c.problems()), 1)


def launch(
    op: str,
    config: LinearSm100Config,
    x: Quantised,
    packed: PackedSm100,
    out: torch.Tensor,
    ctas: int | None,
    backend: Any,
    kernel: type | None,
    extras: tuple[Any, Any, Any, Any] = (None, None, None, None),
) -> None:
    """One launch. extras: block scales and global scale of quantised outputs, cos and sin, as the backend presents
    them."""
    from cutlass import Float4E2M1FN, Int32

    if kernel is None:
        from kernels.linear.sm100 import LinearSm100 as kernel
    m = x.codes.shape[0]
    items = -(-m // config.tokens) * config.weight_tiles
    codes = {"leading_dim": 1, "align": 16, "element_type": Float4E2M1FN, "writable": False}
    arguments = (
        backend.tensor(_rows(x.codes.detach()), "x.codes", **codes),
        backend.tensor(x.scales.detach(), "x.scales", align=16, writable=False),
        backend.tensor(packed.codes, "packed.codes", **codes),
        backend.tensor(packed.scales, "packed.scales", align=16, writable=False),
        backend.tensor(packed.alpha, "packed.alpha", align=4, writable=False),
        backend.tensor(x.global_scale.detach().reshape(1), "x.global_scale", align=4, writable=False),
        backend.tensor(out, "out", align=16 if config.vector else 2),
        *extras,
        Int32(m),
        Int32(min(max(1, (ctas or backend.multiprocessors) // config.split), items) * config.split),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=op), *arguments)


def _rows(codes: torch.Tensor) -> torch.Tensor:
    """The same rows; the stride of a single one, which is never stepped along, becomes one that TMA accepts."""
    if codes.shape[0] > 1 or codes.stride(0) % TMA_BYTES == 0:
        return codes
    return codes.as_strided(codes.shape, (-(-codes.shape[1] // TMA_BYTES) * TMA_BYTES, 1))


def _check_packed(op: str, packed: Any, backend: Any) -> None:
    if not isinstance(packed, PackedSm100):
        raise ValueError(
            f"{op}: packed is a {type(packed).__name__}; allowed on sm_100a: PackedSm100, from pack_sm100()"
        )
    check_tensor(op, "packed.codes", packed.codes, (torch.uint8,), backend)
    check_tensor(op, "packed.scales", packed.scales, (torch.uint8,), backend)
    check_tensor(op, "packed.alpha", packed.alpha, (torch.float32,), backend)
    wanted = (packed.rows, packed.k // 2)
    codes = packed.codes
    if tuple(codes.shape) != wanted or codes.stride(1) != 1 or codes.stride(0) % TMA_BYTES:
        raise ValueError(
            f"{op}: packed.codes has shape {tuple(codes.shape)}, strides {codes.stride()}; allowed: {wanted}, "
            f"rows a multiple of {TMA_BYTES} bytes apart"
        )
    high, wide, size = packed.scales_shape
    check_shape(op, "packed.scales", packed.scales, (high * wide * size,))
    for name in ("codes", "scales"):
        check_start(op, f"packed.{name}", getattr(packed, name))


def _check_x(op: str, x: Any, packed: PackedSm100, backend: Any) -> int:
    """The number of tokens."""
    if not isinstance(x, Quantised):
        raise ValueError(
            f"{op}: x is a {type(x).__name__}; allowed on sm_100a: kernels.shared.quantised.Quantised, NVFP4 with "
            "swizzled scales"
        )
    check_tensor(op, "x.codes", x.codes, (torch.uint8,), backend)
    check_tensor(op, "x.scales", x.scales, (torch.uint8,), backend)
    if x.global_scale is None:
        raise ValueError(f"{op}: x.global_scale=None; allowed: one fp32 element on the device")
    check_scalar(op, "x.global_scale", x.global_scale, backend)
    k = packed.k * (len(packed.parts) if packed.grouped else 1)
    if x.codes.dim() != 2 or x.codes.shape[1] != k // 2:
        raise ValueError(f"{op}: x.codes.shape={tuple(x.codes.shape)}; allowed: (m, {k // 2}), two codes a byte")
    m = x.codes.shape[0]
    if m > MAX_TOKENS:
        raise ValueError(f"{op}: x has m={m} tokens; allowed: 0 to {MAX_TOKENS}")
    if m and (x.codes.stride(1) != 1 or (m > 1 and x.codes.stride(0) % TMA_BYTES)):
        raise ValueError(
            f"{op}: x.codes has strides {x.codes.stride()}; allowed: last stride 1, rows a multiple of {TMA_BYTES} "
            "bytes apart (TMA): k a multiple of 32, or rows with room behind them"
        )
    size = -(-m // ATOM_ROWS) * -(-k // STEP_K) * ATOM_ROWS * STEP_K // BLOCK
    if tuple(x.scales.shape) != (size,):
        raise ValueError(
            f"{op}: x.scales.shape={tuple(x.scales.shape)}; allowed: ({size},), the 128 x 4 swizzle of ({m}, {k // 16})"
        )
    if not x.scales.is_contiguous():
        raise ValueError(f"{op}: x.scales has strides {x.scales.stride()}; allowed: contiguous")
    check_start(op, "x.codes", x.codes)
    check_start(op, "x.scales", x.scales)
    return m
