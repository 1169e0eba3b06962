"""RMSNorm of the heads of the queries and of the latent, and rope of both, where they lie, in one launch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.qk_norm_rope.config import QkConfig
from kernels.rope import check_angles, check_places
from kernels.shared.quantised import (
    DTYPES,
    check_arch,
    check_config,
    check_number,
    check_shape,
    check_start,
    check_tensor,
)

__all__ = ["qk_norm_rope"]

OP = "qk_norm_rope"


def qk_norm_rope(
    q: torch.Tensor,
    kv: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    eps: float = 1e-6,
    backend: Any,
    kernel: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q = rope(q / rms(q)) for each head, kv = rope(w kv / rms(kv)), in place; gives q and kv.

    q         BF16 [tokens, heads, c], kv BF16 [tokens, c]; c = 64, 128, 256 or 512; the last stride 1, the others
              positive, they and the addresses multiples of 16 bytes; no two elements in one place. Magnitudes below
              1.8e19
    weight    [c] BF16 or fp32
    cos, sin  fp32 [tokens, r / 2], contiguous; r a multiple of 16 up to c: the last r values are rotated, as by
              ``rope``
    eps       finite, at least 1e-30

    Nothing is rounded between norm and rotation; the results are, once (to BF16, by way of fp32). A head of zeros stays
    zeros; NaN in a head makes it NaN. One launch, no copy, no synchronisation. No tokens: no launch. Raises ValueError
    naming argument, value and what is allowed before anything is changed. `kernel` replaces the kernel's class.
    """
    check_arch(OP, backend)
    check_tensor(OP, "q", q, (torch.bfloat16,), backend)
    check_tensor(OP, "kv", kv, (torch.bfloat16,), backend)
    check_tensor(OP, "weight", weight, DTYPES, backend)
    if q.dim() != 3:
        raise ValueError(f"{OP}: q.shape={tuple(q.shape)}; allowed: (tokens, heads, c)")
    tokens, heads, c = q.shape
    if tuple(kv.shape) != (tokens, c):
        raise ValueError(f"{OP}: kv.shape={tuple(kv.shape)}; allowed: {(tokens, c)} with q")
    check_shape(OP, "weight", weight, (c,))
    check_start(OP, "weight", weight)
    width = check_angles(OP, cos, sin, tokens, backend)
    config = QkConfig(heads, c, width, DTYPES[weight.dtype], check_number(OP, "eps", eps))
    check_config(OP, config.problems())
    check_places(OP, "q", q, width)
    check_places(OP, "kv", kv, width)
    if tokens == 0:
        return q, kv

    from cutlass import Int32

    if kernel is None:
        from kernels.qk_norm_rope.simt import QkNormRope as kernel
    arguments = (
        backend.tensor(q.detach(), "q", leading_dim=2, align=16),
        backend.tensor(kv.detach(), "kv", leading_dim=1, align=16),
        backend.tensor(weight.detach(), "weight", align=16, writable=False),
        backend.tensor(cos.detach(), "cos", leading_dim=1, align=16, writable=False),
        backend.tensor(sin.detach(), "sin", leading_dim=1, align=16, writable=False),
        Int32(tokens),
        Int32(q.stride(0)),
        Int32(q.stride(1)),
        Int32(kv.stride(0)),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name=OP), *arguments)
    return q, kv
