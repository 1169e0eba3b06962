"""Operators that change heads where they lie: they give nothing, and say which arguments they write.

dsv4::rope           x
dsv4::qk_norm_rope   q and kv
"""

from __future__ import annotations

import torch

from kernels import qk_norm_rope as norm
from kernels import rope as plain
from kernels.library.operator import operator
from kernels.library.places import backend_for

Tensor = torch.Tensor


@operator("rope", lambda a: None, writes=("x",))
def rope_op(x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> None:
    """See ``kernels.rope``."""
    plain.rope(x, cos, sin, inverse=inverse, backend=backend_for("rope", x))


@operator("qk_norm_rope", lambda a: None, writes=("q", "kv"))
def qk_norm_rope_op(q: Tensor, kv: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> None:
    """See ``kernels.qk_norm_rope``."""
    norm.qk_norm_rope(q, kv, weight, cos, sin, eps=eps, backend=backend_for("qk_norm_rope", q))


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool = False) -> Tensor:
    """Rotate the last values of each head of x [tokens, heads, c] or [tokens, c], in place; gives x."""
    rope_op(x, cos, sin, inverse)
    return x


def qk_norm_rope(
    q: Tensor, kv: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Norm and rotation of q [tokens, heads, c] and kv [tokens, c], in place; gives both."""
    qk_norm_rope_op(q, kv, weight, cos, sin, eps)
    return q, kv
