"""The one map of tensor memory that every warp of the attention kernel uses.

Tensor memory is 128 lanes x 512 columns of 32 bits. With a 128-row query tile, lane = row of the tile. Columns:

    0 ........ 127 | 128 ...... 255 | 256 ...... 256 + head_dim - 1
    S, stage 0     | S, stage 1     | O
    P, stage 0 (*) | P, stage 1 (*) |

(*) P holds two 16-bit values a column, so it covers the first half of the S stage that it replaces. Two stages let the
tensor core compute the scores of tile i + 1 while the softmax warps work on tile i.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = 512
"""Columns of 32 bits in the tensor memory of one SM."""


@dataclass(frozen=True)
class Columns:
    """``stages`` adjacent blocks of ``width`` columns, the first at column ``first``."""

    first: int
    width: int
    stages: int = 1
    stride: int = 0

    @property
    def end(self) -> int:
        """One past the last column."""
        return self.first + self.stride * (self.stages - 1) + self.width


@dataclass(frozen=True)
class Tmem:
    """Column map for a key/value tile of ``tile_kv`` keys and a head of ``head_dim`` values."""

    tile_kv: int
    head_dim: int

    SCORE_STAGES = 2

    @property
    def S(self) -> Columns:  # noqa: N802 - the matrix is called S
        """Scores, f32: one column a key."""
        return Columns(0, self.tile_kv, self.SCORE_STAGES, self.tile_kv)

    @property
    def P(self) -> Columns:  # noqa: N802
        """Probabilities, 16-bit: two keys a column, in place of the scores that they came from."""
        return Columns(self.S.first, self.tile_kv // 2, self.S.stages, self.S.stride)

    @property
    def O(self) -> Columns:  # noqa: N802, E743
        """Output accumulator, f32: one column a value."""
        return Columns(self.S.end, self.head_dim)

    @property
    def allocated(self) -> int:
        """Columns to ask for: a power of two, at least 32 (PTX ISA, tcgen05.alloc)."""
        need = max(32, self.S.end, self.O.end)
        return 1 << (need - 1).bit_length()

    def problems(self) -> list[str]:
        """Why this map does not fit the 512 columns; empty if it does."""
        if self.allocated <= COLUMNS:
            return []
        return [
            f"tensor memory: S {self.S.stages} x {self.S.width} + O {self.O.width} = {self.O.end} columns, "
            f"allocated as {self.allocated} (a power of two); an SM has {COLUMNS}"
        ]
