"""What every oracle shares: the two kinds, and the rounding between kernels that sets them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

Kind = Literal["ideal", "simulated"]
"""``ideal``: nothing is rounded. ``simulated``: what a kernel stores is rounded to its storage dtype, all else is
exact.
"""

Quantiser = Callable[[torch.Tensor], torch.Tensor]
"""Values to the values that a format can hold, of the same shape: the input of an FP8 or FP4 linear."""


def rounded(x: torch.Tensor, storage: torch.dtype, kind: Kind) -> torch.Tensor:
    """x as it reads back from a tensor of dtype ``storage`` (simulated), or x itself (ideal); dtype of x either way."""
    if kind not in ("ideal", "simulated"):
        raise ValueError(f"oracles: kind={kind!r}; allowed: ideal, simulated")
    return x if kind == "ideal" or storage == x.dtype else x.to(storage).to(x.dtype)


def expect(op: str, ok: bool, argument: str, value: object, allowed: str) -> None:
    """Raise the error of a bad argument: which operation, which argument, its value, what is allowed."""
    if not ok:
        raise ValueError(f"oracles.{op}: {argument}={value}; allowed: {allowed}")
