"""Operators of the quantised linears of BF16 activations. A weight comes as the tensors and numbers of its `Packed`.

    dsv4::nvfp4_linear     x [m, k] -> y [m, n]
    dsv4::multi_linear     x [m, k] -> the outputs of all parts, one behind the other, [m sum(n)]
    dsv4::grouped_linear   x [m, g, k] -> y [m, g, n]

An operator's outputs must not share memory, and one launch fills one tensor: so `multi_linear` gives it flat, and the
function of the same name gives its parts, which are views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import linear as kernel
from kernels.library.operator import operator
from kernels.library.places import backend_for, own
from kernels.linear import Packed

Tensor = torch.Tensor


@operator("nvfp4_linear", lambda a: a.x.new_empty((a.x.shape[0], a.n), dtype=torch.bfloat16))
def nvfp4_linear_op(
    x: Tensor, data: Tensor, alpha: Tensor, format: str, n: int, k: int, rows: int, activation: str
) -> Tensor:
    """One weight; see ``kernels.linear.linear``."""
    packed = Packed(data, alpha, format, (n,), k, rows, False, activation)
    return own(kernel.linear(x, packed, activation=activation, backend=backend_for("nvfp4_linear", x)))


@operator("multi_linear", lambda a: a.x.new_empty((a.x.shape[0] * sum(a.parts),), dtype=torch.bfloat16))
def multi_linear_op(
    x: Tensor, data: Tensor, alpha: Tensor, format: str, parts: Sequence[int], k: int, rows: int, activation: str
) -> Tensor:
    """Several weights of one x; see ``kernels.linear.multi_linear``."""
    packed = Packed(data, alpha, format, tuple(parts), k, rows, False, activation)
    backend = backend_for("multi_linear", x)
    if len(parts) == 1:
        return own(kernel.linear(x, packed, activation=activation, backend=backend)).view(-1)
    out = backend.empty((x.shape[0] * sum(parts),), torch.bfloat16, "out")
    kernel.multi_linear(x, packed, out=out, activation=activation, backend=backend)
    return own(out)


@operator("grouped_linear", lambda a: a.x.new_empty((a.x.shape[0], a.groups, a.n), dtype=torch.bfloat16))
def grouped_linear_op(
    x: Tensor,
    data: Tensor,
    alpha: Tensor,
    format: str,
    groups: int,
    n: int,
    k: int,
    rows: int,
    activation: str,
) -> Tensor:
    """A block-diagonal weight; see ``kernels.linear.grouped_linear``."""
    packed = Packed(data, alpha, format, (n,) * groups, k, rows, True, activation)
    return own(kernel.grouped_linear(x, packed, activation=activation, backend=backend_for("grouped_linear", x)))


def nvfp4_linear(x: Tensor, packed: Packed) -> Tensor:
    """y = alpha x w^T, BF16 [m, n], of one weight in any format of ``kernels.linear.pack``; x BF16 [m, k]."""
    if len(packed.parts) != 1 or packed.grouped:
        raise ValueError(
            f"nvfp4_linear: packed has parts={packed.parts}, grouped={packed.grouped}; allowed: one weight"
        )
    p = packed
    return nvfp4_linear_op(x, p.data, p.alpha, p.format, p.parts[0], p.k, p.rows, p.activation)


def multi_linear(x: Tensor, packed: Packed) -> list[Tensor]:
    """Several linears of one x in one launch: BF16 [m, n_i] of each weight, views of one tensor."""
    if packed.grouped:
        raise ValueError("multi_linear: packed.grouped=True; allowed: False")
    p, m = packed, x.shape[0]
    flat = multi_linear_op(x, p.data, p.alpha, p.format, list(p.parts), p.k, p.rows, p.activation)
    return [y.view(m, n) for y, n in zip(flat.split([m * n for n in p.parts]), p.parts, strict=True)]


def grouped_linear(x: Tensor, packed: Packed) -> Tensor:
    """y[:, g] = alpha_g x[:, g] w_g^T, BF16 [m, g, n]; x BF16 [m, g, k]."""
    if not packed.grouped:
        raise ValueError("grouped_linear: packed.grouped=False; allowed: True")
    p, groups = packed, len(packed.parts)
    return grouped_linear_op(x, p.data, p.alpha, p.format, groups, p.parts[0], p.k, p.rows, p.activation)
