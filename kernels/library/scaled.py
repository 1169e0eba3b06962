"""Operators of the block-scaled linears: NVFP4 tokens times NVFP4 weights (sm_100a).

    dsv4::nvfp4_linear_w4a4     x [m, k] -> y BF16 [m, n]
    dsv4::multi_linear_w4a4     x [m, k] -> the outputs of all parts, one behind the other, [m sum(n)]
    dsv4::grouped_linear_w4a4   x [m, g k] -> y [m, g, n]

x comes as codes, swizzled scales and global scale, the weight as the tensors and numbers of its `PackedSm100`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import linear as kernel
from kernels.library.operator import operator
from kernels.library.places import backend_for, own
from kernels.linear import PackedSm100
from kernels.shared.quantised import Quantised

Tensor = torch.Tensor


@operator("nvfp4_linear_w4a4", lambda a: a.codes.new_empty((a.codes.shape[0], a.n), dtype=torch.bfloat16))
def nvfp4_linear_w4a4_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    n: int,
    k: int,
) -> Tensor:
    """One weight; see ``kernels.linear.linear``."""
    packed = PackedSm100(w_codes, w_scales, alpha, (n,), k)
    backend = backend_for("nvfp4_linear_w4a4", codes)
    return own(kernel.linear(Quantised(codes, scales, global_scale), packed, backend=backend))


@operator("multi_linear_w4a4", lambda a: a.codes.new_empty((a.codes.shape[0] * sum(a.parts),), dtype=torch.bfloat16))
def multi_linear_w4a4_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    parts: Sequence[int],
    k: int,
) -> Tensor:
    """Several weights of one x; see ``kernels.linear.multi_linear``."""
    packed, x = PackedSm100(w_codes, w_scales, alpha, tuple(parts), k), Quantised(codes, scales, global_scale)
    backend = backend_for("multi_linear_w4a4", codes)
    if len(parts) == 1:
        return own(kernel.linear(x, packed, backend=backend)).view(-1)
    out = backend.empty((codes.shape[0] * sum(parts),), torch.bfloat16, "out")
    kernel.multi_linear(x, packed, out=out, backend=backend)
    return own(out)


@operator("grouped_linear_w4a4", lambda a: a.codes.new_empty((a.codes.shape[0], a.groups, a.n), dtype=torch.bfloat16))
def grouped_linear_w4a4_op(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor,
    w_codes: Tensor,
    w_scales: Tensor,
    alpha: Tensor,
    groups: int,
    n: int,
    k: int,
) -> Tensor:
    """A block-diagonal weight; see ``kernels.linear.grouped_linear``."""
    packed = PackedSm100(w_codes, w_scales, alpha, (n,) * groups, k, grouped=True)
    backend = backend_for("grouped_linear_w4a4", codes)
    return own(kernel.grouped_linear(Quantised(codes, scales, global_scale), packed, backend=backend))


def nvfp4_linear_w4a4(x: Quantised, packed: PackedSm100) -> Tensor:
    """y = g alpha x w^T, BF16 [m, n], of one weight from ``pack_sm100``; x NVFP4 [m, k] with swizzled scales."""
    if len(packed.parts) != 1 or packed.grouped:
        raise ValueError(
            f"nvfp4_linear_w4a4: packed has parts={packed.parts}, grouped={packed.grouped}; allowed: one weight"
        )
    return nvfp4_linear_w4a4_op(*tensors_of("nvfp4_linear_w4a4", x, packed), packed.parts[0], packed.k)


def multi_linear_w4a4(x: Quantised, packed: PackedSm100) -> list[Tensor]:
    """Several linears of one x in one launch: BF16 [m, n_i] of each weight, views of one tensor."""
    if packed.grouped:
        raise ValueError("multi_linear_w4a4: packed.grouped=True; allowed: False")
    m, parts = x.codes.shape[0], packed.parts
    flat = multi_linear_w4a4_op(*tensors_of("multi_linear_w4a4", x, packed), list(parts), packed.k)
    return [y.view(m, n) for y, n in zip(flat.split([m * n for n in parts]), parts, strict=True)]


def grouped_linear_w4a4(x: Quantised, packed: PackedSm100) -> Tensor:
    """y[:, g] = x[:, g] w_g^T under their scales, BF16 [m, g, n]; x NVFP4 [m, g k]."""
    if not packed.grouped:
        raise ValueError("grouped_linear_w4a4: packed.grouped=False; allowed: True")
    groups, n = len(packed.parts), packed.parts[0]
    return grouped_linear_w4a4_op(*tensors_of("grouped_linear_w4a4", x, packed), groups, n, packed.k)


def tensors_of(op: str, x: Quantised, packed: PackedSm100) -> tuple[Tensor, ...]:
    """The tensors of x and of the weight, in the order of the operators' arguments."""
    if x.global_scale is None:
        raise ValueError(f"{op}: x.global_scale=None; allowed: one fp32 element on the device")
    return x.codes, x.scales, x.global_scale, packed.codes, packed.scales, packed.alpha
