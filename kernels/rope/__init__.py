"""Partial rotary embedding of the last values of each head, and its inverse, where they lie."""

from __future__ import annotations

from typing import Any

import torch

from kernels.rope.config import rope_config
from kernels.shared.quantised import MAX_ROWS, check_aligned, check_arch, check_config, check_tensor

__all__ = ["check_angles", "check_places", "rope"]

OP = "rope"


def rope(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    inverse: bool = False,
    backend: Any,
    kernel: Any = None,
) -> torch.Tensor:
    """Rotate the last r values of each head by the angles of its token, in place; gives x.

    x         BF16 [tokens, heads, c] or [tokens, c], c >= r; the last stride 1, the others positive, they and the
              address multiples of 16 bytes; no two elements in one place
    cos, sin  fp32 [tokens, r / 2], contiguous; r = 16, 32, 64 or 128
    inverse   by minus the angles

    Pairs are neighbours: (e, o) -> (e cos - o sin, e sin + o cos), rounded once (to BF16, by way of fp32). The other
    c - r values are not touched. One launch, no copy, no synchronisation. No tokens: no launch. Raises ValueError
    naming argument, value and what is allowed before anything is changed. `kernel` replaces the kernel's class.
    """
    check_arch(OP, backend)
    check_tensor(OP, "x", x, (torch.bfloat16,), backend)
    if x.dim() not in (2, 3):
        raise ValueError(f"{OP}: x.shape={tuple(x.shape)}; allowed: (tokens, heads, c) or (tokens, c)")
    heads = x[:, None] if x.dim() == 2 else x
    width = check_angles(OP, cos, sin, heads.shape[0], backend)
    config = rope_config(heads.shape[1], heads.shape[0], width, inverse)
    check_config(OP, config.problems())
    check_places(OP, "x", x, width)
    if x.shape[0] == 0:
        return x

    from cutlass import Int32

    if kernel is None:
        from kernels.rope.simt import Rope as kernel
    arguments = (
        backend.tensor(heads.detach(), "x", leading_dim=2, align=16),
        backend.tensor(cos.detach(), "cos", leading_dim=1, align=16, writable=False),
        backend.tensor(sin.detach(), "sin", leading_dim=1, align=16, writable=False),
        Int32(heads.shape[0]),
        Int32(heads.shape[2] - width),
        Int32(heads.stride(0)),
        Int32(heads.stride(1)),
        Int32(cos.stride(0)),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=OP), *arguments)
    return x


def check_angles(op: str, cos: Any, sin: Any, tokens: int, backend: Any) -> int:
    """Width of the rotated part. Raises ValueError unless cos and sin are fp32 [tokens, r / 2], contiguous."""
    for name, angles in (("cos", cos), ("sin", sin)):
        check_tensor(op, name, angles, (torch.float32,), backend)
        if angles.dim() != 2 or angles.shape[0] != tokens or angles.shape != cos.shape:
            raise ValueError(f"{op}: {name}.shape={tuple(angles.shape)}; allowed: (tokens, r / 2) with {tokens} tokens")
        if not angles.is_contiguous():
            raise ValueError(f"{op}: {name} has strides {angles.stride()}; allowed: contiguous")
        check_aligned(op, name, angles)
    return 2 * cos.shape[1]


def check_places(op: str, name: str, x: torch.Tensor, width: int) -> None:
    """Raise ValueError unless x can be changed in place: no two elements in one place, heads of at least `width`."""
    if x.shape[-1] < width:
        raise ValueError(f"{op}: {name} has heads of c={x.shape[-1]}; allowed: at least r={width}")
    if x.numel() // x.shape[-1] > MAX_ROWS // 16:
        raise ValueError(f"{op}: {name} has {x.numel() // x.shape[-1]} heads in all; allowed: at most {MAX_ROWS // 16}")
    check_aligned(op, name, x)
    reach = x.shape[-1]
    for mode in sorted(range(x.dim() - 1), key=x.stride):
        if x.shape[mode] > 1 and x.stride(mode) < reach:
            raise ValueError(f"{op}: {name}.stride({mode})={x.stride(mode)}; allowed: at least {reach}, no overlap")
        reach = max(reach, x.stride(mode) * (x.shape[mode] - 1) + reach)
