"""What the mHC passes may be: four residual streams, 24 mixing rows. Pure Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernels.rmsnorm_quantize.config import RowConfig
from kernels.shared.formats import BlockFormat

STREAMS = 4
MIXES = 24
"""Rows of fn: 4 of A, 4 of C, 16 of M."""
SUMS = 32
"""Numbers that a slice leaves for a token: 24 products, the sum of squares, 7 that nobody reads."""
SQUARES = 24
"""The place of the sum of squares."""
VALUES = 8
"""Values of each stream that a thread holds."""
SLICE = 32 * VALUES
"""Values of each stream that a warp holds."""
FEW_TOKENS = 32
"""Up to here the rows of fn are dealt to eight warps, and a warp has one token; beyond, tensor cores have tiles."""
TILE = 16
"""Tokens of a tile."""
STEP = 32
"""Values of a stream between which a row of fn is loaded once for a tile."""
FRAGMENT_BYTES = 512
"""Of a warp: eight rows of fn, 32 values, BF16."""


@dataclass(frozen=True)
class MixConfig:
    """One compiled kernel of the first pass; the number of tokens is an argument.

    d       values of a stream
    post    the streams are first mixed with a sublayer's output, and stored
    mix     products of fn and the streams
    groups  warps that the rows of fn are dealt to: 1 or 8
    warps   of a CTA, each with tokens of its own
    """

    d: int
    post: bool
    mix: bool
    groups: int = 1
    warps: int = 4

    @property
    def slices(self) -> int:
        """Parts of d, a warp each."""
        return -(-self.d // SLICE)

    @property
    def rows(self) -> int:
        """Rows of fn of a warp."""
        return MIXES // self.groups

    @property
    def resident(self) -> int:
        """CTAs that fit a multiprocessor by registers: without products none has a second token, so they are all the
        loads that are under way."""
        return 0 if self.mix else 5

    @property
    def places(self) -> int:
        """Sums of a warp, a power of two: its rows, the sum of squares, padding."""
        return 1 << self.rows.bit_length()

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = []
        if self.d < 16 or self.d % 16 or self.d > 1 << 16:
            found.append(f"d={self.d}; allowed: multiples of 16 from 16 to {1 << 16}")
        if self.groups not in (1, 8):
            found.append(f"groups={self.groups}; allowed: 1, 8")
        if self.warps not in (1, 4):
            found.append(f"warps={self.warps}; allowed: 1, 4")
        if not (self.post or self.mix):
            found.append("post=False, mix=False; allowed: at least one")
        return found


@dataclass(frozen=True)
class ManyConfig:
    """One compiled kernel of the first pass for many tokens, whose products are the tensor cores'.

    d       values of a stream
    post    the streams are first mixed with a sublayer's output, and stored
    """

    d: int
    post: bool

    @property
    def warps(self) -> int:
        """Warps of a CTA, each with tiles of its own: what registers allow for."""
        return 8 if self.post else 12

    @property
    def slices(self) -> int:
        """Parts of d, a CTA each."""
        return -(-self.d // SLICE)

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        return MixConfig(self.d, self.post, True).problems()


def mix_config(d: int, tokens: int, post: bool, mix: bool) -> MixConfig | ManyConfig:
    """The first pass for a number of tokens."""
    if not mix:
        return MixConfig(d, post, mix)
    if tokens <= FEW_TOKENS:
        return MixConfig(d, post, mix, groups=8, warps=1)
    return ManyConfig(d, post)


@dataclass(frozen=True)
class CollapseConfig(RowConfig):
    """One compiled kernel of the second pass: a row is a token's.

    mix_eps     added to A, and inside Sinkhorn
    norm_eps    added to the mean square of all streams; eps to that of their sum
    iterations  of Sinkhorn
    fused       the streams are made by the first pass
    """

    format: BlockFormat = field(default_factory=BlockFormat)
    mix_eps: float = 1e-6
    norm_eps: float = 1e-6
    iterations: int = 20
    fused: bool = False

    @property
    def slices(self) -> int:
        """Parts of the sums of a token."""
        return -(-self.k // SLICE)

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = super().problems()
        for name, value in (("mix_eps", self.mix_eps), ("norm_eps", self.norm_eps)):
            if not (math.isfinite(value) and value >= 1e-30):
                found.append(f"{name}={value!r}; allowed: a finite number of at least 1e-30")
        if not 1 <= self.iterations <= 1000:
            found.append(f"iterations={self.iterations}; allowed: 1 to 1000")
        return found
