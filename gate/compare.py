"""Numbers about one output against its oracle, in fp64: no limit and no verdict here (`gate.limits` has those).

All functions take tensors of equal shape on the CPU. `got` has the dtype of the output, `want` is the oracle (fp64, or
exact integers). Measures are over the elements that are finite in both; positions of NaN and infinities are
compared first and apart (`nonfinite`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Measures:
    """How far an output is from its oracle.

    diff: 1 - 2xy/(x^2+y^2), computed as |x-y|^2/(|x|^2+|y|^2), the same but loses no digits; 0 if both are zero.
    cos: cosine; None if either is all zero. rel_rms: rms(x-y)/rms(y); inf if only the oracle is zero.
    max_abs: largest |x-y|. unequal: elements that differ from the oracle rounded to the output's dtype.
    """

    diff: float
    cos: float | None
    rel_rms: float
    max_abs: float
    unequal: int


def rounded(want: Tensor, dtype: torch.dtype) -> Tensor:
    """The oracle in the dtype of the output: what a perfect kernel would write."""
    return want if want.dtype == dtype else want.to(dtype)


def wide(tensor: Tensor) -> Tensor:
    """fp64 of anything (float8 and bool too)."""
    return tensor.to(torch.float64)


def measure(got: Tensor, want: Tensor) -> Measures:
    """All measures of `got` against `want`; empty tensors agree perfectly."""
    exact = wide(rounded(want, got.dtype))
    x, y = wide(got), wide(want)
    both = torch.isfinite(x) & torch.isfinite(y)
    if got.dtype.is_floating_point:
        unequal = int(((x != exact) & ~(torch.isnan(x) & torch.isnan(exact))).sum())
    else:
        unequal = int((got != rounded(want, got.dtype)).sum())
    x, y = x[both], y[both]
    error, xx, yy = float(((x - y) ** 2).sum()), float((x * x).sum()), float((y * y).sum())
    return Measures(
        diff=error / (xx + yy) if error else 0.0,
        cos=float((x * y).sum()) / math.sqrt(xx * yy) if xx and yy else None,
        rel_rms=math.sqrt(error / yy) if yy else (math.inf if error else 0.0),
        max_abs=float((x - y).abs().max()) if x.numel() else 0.0,
        unequal=unequal,
    )


def all_zero(tensor: Tensor) -> bool:
    """Whether there are elements, and all are zero."""
    return tensor.numel() > 0 and not bool(torch.any(wide(tensor) != 0))


def nonfinite(got: Tensor, want: Tensor) -> Tensor:
    """Mask of elements whose kind (NaN, +inf, -inf, finite) differs from the oracle rounded to the output's dtype."""
    x, y = wide(got), wide(rounded(want, got.dtype))
    return (
        (torch.isnan(x) != torch.isnan(y))
        | (torch.isposinf(x) != torch.isposinf(y))
        | (torch.isneginf(x) != torch.isneginf(y))
    )


def kinds(tensor: Tensor) -> str:
    """`128 NaN, 2 +inf`; `0` if all is finite."""
    x = wide(tensor)
    counted = {"NaN": torch.isnan(x), "+inf": torch.isposinf(x), "-inf": torch.isneginf(x)}
    found = [f"{int(mask.sum())} {name}" for name, mask in counted.items() if bool(mask.any())]
    return ", ".join(found) or "0"


def errors(got: Tensor, want: Tensor) -> Tensor:
    """|x - y|, with infinity where the kinds differ, and 0 where both are the same infinity or NaN."""
    x, y = wide(got), wide(want)
    both = torch.isfinite(x) & torch.isfinite(y)
    error = torch.where(both, (x - y).abs(), torch.zeros((), dtype=torch.float64))
    return torch.where(nonfinite(got, want), torch.full((), math.inf, dtype=torch.float64), error)


def rms(want: Tensor) -> float:
    """Root mean square of the finite elements; 0 if there are none."""
    y = wide(want)
    y = y[torch.isfinite(y)]
    return math.sqrt(float((y * y).mean())) if y.numel() else 0.0


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in shape, dtype and every bit (NaNs too)."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(as_bytes(a), as_bytes(b)))


def as_bytes(tensor: Tensor) -> Tensor:
    """The elements as a flat uint8 tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    """The index of an element by its position in row-major order."""
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return index[::-1]
