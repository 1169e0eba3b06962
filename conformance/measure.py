"""How far a kernel's output is from the reference, noted whenever the code under test compares the two itself.

Its own tolerances are often loose (an error of 5 % in every exponential passes an attention example), so that its
verdict alone says little.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from backends.patches import Patches


@dataclass(frozen=True)
class Comparison:
    """One comparison. cos: of the angle between both, None when one of them is all zero. rel_rms: the norm of the
    difference over the norm of the reference. max_error: the largest absolute difference. NaN and infinities at
    places where both have them are left out; elsewhere they make the errors infinite. constant: all elements of the
    reference are equal, so that a permutation of the output would not show."""

    count: int
    cos: float | None
    rel_rms: float
    max_error: float
    constant: bool


def compare(actual: Any, expected: Any) -> Comparison | None:
    """The comparison of two arrays, or None for what is not a pair of arrays of one size with at least one element."""
    a, b = _flat(actual), _flat(expected)
    if a is None or b is None or a.size != b.size or not a.size:
        return None
    same = ~(np.isfinite(a) & np.isfinite(b)) & ((a == b) | (np.isnan(a) & np.isnan(b)))
    constant = bool((b == b[0]).all())
    a, b = a[~same], b[~same]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Comparison(a.size, None, float("inf"), float("inf"), constant)
    norms = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    difference = a - b
    away = float(np.linalg.norm(difference))
    return Comparison(
        a.size,
        float(a @ b) / (norms[0] * norms[1]) if all(norms) else None,
        away / norms[1] if norms[1] else (0.0 if away == 0 else float("inf")),
        float(np.abs(difference).max(initial=0.0)),
        constant,
    )


def _flat(value: Any) -> np.ndarray | None:
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return value.detach().cpu().to(torch.float64).flatten().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return value.astype(np.float64).ravel()
    return None


_JUDGES = re.compile(r"assert\b|\w*(diff|err)\w* *=")


class _Asserted(TorchFunctionMode):
    """Notes `(actual - expected).abs()` in lines that assert something about it or name it a difference or an error:
    the first on each line."""

    def __init__(self, found: list[Comparison]) -> None:
        super().__init__()
        self._found = found
        self._lines: set[tuple[str, int]] = set()

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in ("sub", "__sub__") and len(args) == 2:
            place = _asserting(sys._getframe(1))
            if place and place not in self._lines:
                comparison = compare(*args)
                if comparison is not None:
                    self._lines.add(place)
                    self._found.append(comparison)
        return function(*args, **(kwargs or {}))


def _asserting(frame: FrameType) -> tuple[str, int] | None:
    """File and line of the code outside torch that is running, if that line judges an absolute difference."""
    while frame.f_back and "/torch/" in frame.f_code.co_filename:
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(*place).strip()
    return place if ".abs()" in text and _JUDGES.match(text) else None


@contextmanager
def noted() -> Iterator[list[Comparison]]:
    """Collect the comparisons that are made inside: through torch's and NumPy's functions for it, and in assertions
    about the absolute difference of two tensors."""
    found: list[Comparison] = []

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(actual: Any, expected: Any, *args: Any, **settings: Any) -> Any:
            comparison = compare(actual, expected)
            if comparison is not None:
                found.append(comparison)
            return function(actual, expected, *args, **settings)

        return noting

    with Patches() as patches:
        for owner, name in (
            (torch.testing, "assert_close"),
            (torch, "allclose"),
            (torch, "equal"),
            (np.testing, "assert_allclose"),
            (np.testing, "assert_array_equal"),
            (np, "allclose"),
            (np, "array_equal"),
        ):
            patches.set(owner, name, note(getattr(owner, name)))
        patches.enter_context(_Asserted(found))
        yield found


def worst(comparisons: list[Comparison]) -> dict[str, float | None]:
    """The worst figure of each kind: least cos, largest rel_rms and max_error; None without a comparison."""
    cosines = [c.cos for c in comparisons if c.cos is not None]
    return {
        "cos": min(cosines, default=None),
        "rel_rms": max((c.rel_rms for c in comparisons), default=None),
        "max_error": max((c.max_error for c in comparisons), default=None),
    }
