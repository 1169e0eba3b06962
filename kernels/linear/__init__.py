"""Linears with quantised weights: y = alpha x w^T. One weight, several of one x, or groups."""

from __future__ import annotations

from typing import Any

import torch

from kernels.linear import sm90_host, sm100_host
from kernels.linear.epilogues import Quantise, Rotate, Swiglu
from kernels.linear.pack import Packed, Weight, pack, rows_for, unpack
from kernels.linear.sm90_host import config_for
from kernels.linear.sm100_pack import PackedSm100, pack_sm100, unpack_sm100
from kernels.shared.quantised import Quantised

__all__ = [
    "Packed",
    "PackedSm100",
    "Quantise",
    "Quantised",
    "Rotate",
    "Swiglu",
    "Weight",
    "config_for",
    "grouped_linear",
    "linear",
    "multi_linear",
    "pack",
    "pack_sm100",
    "rows_for",
    "unpack",
    "unpack_sm100",
]


def linear(
    x: torch.Tensor | Quantised,
    packed: Packed | PackedSm100,
    *,
    out: torch.Tensor | None = None,
    activation: str = "f16",
    epilogue: Quantise | Swiglu | Rotate | None = None,
    backend: Any,
    kernel: type | None = None,
    **settings: Any,
) -> Any:
    """y = alpha x w^T, BF16 [m, n]: x BF16 [m, k] of 0 to 2^20 tokens, the last stride 1.

    packed      one weight from ``pack``
    out         written and returned if given: BF16 [m, n], contiguous
    activation  "f16": products of the given BF16 values, exact; sums in f32. "e4m3", up to 16 tokens: each token's
                activations are rounded to E4M3 under the smallest power of two that holds them; products by wgmma,
                whose sums keep 13 bits behind the leading one

    x's other stride is a multiple of 4 and its address of 8 bytes; of 8 and of 16 bytes for more than 16 tokens, which
    are copied by TMA (fewer are too where that is faster and they allow it). One launch, no synchronisation, bitwise
    repeatable, inputs unchanged. NaN in x is NaN in that token's y. m = 0 gives an empty y without a launch. By
    programmatic dependent launch the kernel reads `packed` while the one before it on the stream still runs, so that
    one must not write it; x and out are only touched after it. `kernel` replaces the kernel's class, `settings` fields
    of ``LinearConfig`` or of ``WideConfig``. Raises ValueError naming argument, value and what is allowed, before
    anything is launched.

    On sm_100a x is a ``Quantised``, NVFP4 with swizzled scales, of 0 to 2^20 tokens, `packed` is from ``pack_sm100``,
    `settings` are fields of ``LinearSm100Config`` and `ctas`, and `epilogue` (kernels/linear/epilogues.py) may store
    the outputs in another form: y = alpha g x w^T, both global scales read on the device. There k is a multiple of 32,
    or the rows of x.codes are a multiple of 16 bytes apart, and what pads x.scales is 0. A NaN scale is NaN in y.
    """
    if backend.arch == sm100_host.ARCH:
        return sm100_host.linear(x, packed, out, activation, epilogue, backend, kernel, settings)
    if epilogue is not None:
        raise ValueError(f"linear: epilogue is a {type(epilogue).__name__}; allowed on {backend.arch}: None")
    if isinstance(packed, Packed) and (len(packed.parts) != 1 or packed.grouped):
        raise ValueError(
            f"linear: packed has parts={packed.parts}; allowed: one (multi_linear and grouped_linear take more)"
        )
    return sm90_host.run("linear", x, packed, out, activation, backend, kernel, settings)[0]


def multi_linear(
    x: torch.Tensor | Quantised,
    packed: Packed | PackedSm100,
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
    if backend.arch == sm100_host.ARCH:
        return sm100_host.multi_linear(x, packed, out, activation, backend, kernel, settings)
    if isinstance(packed, Packed) and packed.grouped:
        raise ValueError("multi_linear: packed.grouped=True; allowed: False (grouped_linear takes it)")
    return sm90_host.run("multi_linear", x, packed, out, activation, backend, kernel, settings)


def grouped_linear(
    x: torch.Tensor | Quantised,
    packed: Packed | PackedSm100,
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
    if backend.arch == sm100_host.ARCH:
        return sm100_host.grouped_linear(x, packed, out, activation, backend, kernel, settings)
    if isinstance(packed, Packed) and not packed.grouped:
        raise ValueError("grouped_linear: packed.grouped=False; allowed: True, from pack(..., grouped=True)")
    return sm90_host.run("grouped_linear", x, packed, out, activation, backend, kernel, settings)[0]
