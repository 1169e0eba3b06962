"""What the linear on sm_100a may do with its outputs before they leave: SwiGLU, quantisation, rotary embedding.

Each takes the place of a pass of its own over the outputs, and gives what that pass gives for outputs that were not
rounded to BF16 in between. Pure Python: the kernels are in kernels/linear/sm100_epilogues.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.shared.formats import CHUNK, BlockFormat

if TYPE_CHECKING:
    import torch

WIDTHS = (16, 32, 64, 128)
TILE = 128
"""Outputs of a token that a thread holds at a time."""


@dataclass(frozen=True, eq=False)
class Quantise:
    """Outputs stored as quantize_nvfp4 and quantize_fp8 store a matrix, in fp32 until then; gives a ``Quantised``.

    format        "nvfp4", n a multiple of 16; "fp8", n a multiple of `block`
    global_scale  fp32, one element on the device, > 0: of nvfp4, which needs it
    swizzled      of nvfp4: scales in atoms of 128 rows x 4, padding 0
    block, scale  of fp8: 32, 64 or 128 values; "ue8m0" or "fp32"
    """

    format: str = "nvfp4"
    global_scale: torch.Tensor | None = None
    swizzled: bool = False
    block: int | None = None
    scale: str = "ue8m0"


@dataclass(frozen=True, eq=False)
class Swiglu:
    """h = silu(min(gate, limit)) clamp(up, -limit, limit), of a weight packed with `interleaved`: [m, n], n rows of
    each. BF16, or what `store` makes of it. limit: a finite number above 0, or None for no limits.
    """

    limit: float | None = 10.0
    store: Quantise | None = None


@dataclass(frozen=True, eq=False)
class Rotate:
    """The last r outputs of every head of `head` outputs, rotated by the angles of the token, as ``kernels.rope``.

    cos, sin  fp32 [m, r / 2], contiguous; r = 16, 32, 64 or 128
    head      outputs of a head, a multiple of 128, n a multiple of it
    inverse   by minus the angles
    """

    cos: torch.Tensor
    sin: torch.Tensor
    head: int = 512
    inverse: bool = False


@dataclass(frozen=True)
class Epilogue:
    """The part of an epilogue that a kernel is compiled for.

    kind     "quantise", "swiglu" or "rotate"
    format   what is stored; None: BF16
    limit    of swiglu
    head     outputs of a head, of rotate
    width    outputs of a head that are rotated
    inverse  by minus the angles
    """

    kind: str
    format: BlockFormat | None = None
    limit: float | None = None
    head: int = 512
    width: int = 64
    inverse: bool = False

    @property
    def block(self) -> int:
        """Outputs that n must be a multiple of, where they are quantised."""
        return CHUNK if self.format is None else self.format.block

    @property
    def accumulators(self) -> int:
        """Columns of sums that make an output."""
        return 2 if self.kind == "swiglu" else 1

    @property
    def rows(self) -> int:
        """Rows of the weight in a tile: whole blocks of outputs."""
        return max(TILE, self.block * self.accumulators)

    def problems(self, parts: tuple[int, ...], grouped: bool, swapped: bool, rows: int) -> list[str]:
        """Every reason why no kernel ends like this."""
        found = []
        if len(parts) != 1 or grouped:
            found.append(f"epilogue {self.kind}: parts={parts}, grouped={grouped}; allowed: one part, False")
        if swapped:
            found.append(f"epilogue {self.kind}: swapped=True; allowed: False (a thread holds outputs of one token)")
        if found:
            return found
        outputs = parts[0] // self.accumulators
        if self.format is not None:
            found += self.format.problems()
            if not found and outputs % self.block:
                found.append(f"epilogue {self.kind}: n={outputs}; allowed: multiples of {self.block}")
            if not found and self.block * self.accumulators > rows:
                found.append(f"epilogue {self.kind}: rows={rows}; allowed: at least {self.block * self.accumulators}")
        if self.limit is not None and not (math.isfinite(self.limit) and self.limit > 0):
            found.append(f"epilogue swiglu: limit={self.limit!r}; allowed: a finite number above 0, or None")
        if self.kind == "rotate":
            found += self._rotation(outputs)
        return found

    def _rotation(self, outputs: int) -> list[str]:
        found = []
        if self.width not in WIDTHS:
            found.append(f"epilogue rotate: 2 x the columns of cos = {self.width}; allowed: 16, 32, 64, 128")
        if self.head < TILE or self.head % TILE:
            found.append(f"epilogue rotate: head={self.head}; allowed: a multiple of {TILE}")
        elif outputs % self.head:
            found.append(f"epilogue rotate: n={outputs}; allowed: multiples of head={self.head}")
        return found
