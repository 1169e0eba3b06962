"""The tensor that one launch fills, and the outputs in it."""

from __future__ import annotations

from typing import Protocol

import torch


class Parts(Protocol):
    """A packed weight of several parts."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Rows of each."""

    @property
    def grouped(self) -> bool:
        """Whether they are the groups of one linear."""


def output_shape(packed: Parts, m: int) -> tuple[int, ...]:
    """(m, groups, n) of groups, (m, n) of one weight, and of several flat: their outputs follow one another."""
    if packed.grouped:
        return m, len(packed.parts), packed.parts[0]
    return (m, packed.parts[0]) if len(packed.parts) == 1 else (m * sum(packed.parts),)


def outputs_in(out: torch.Tensor, packed: Parts, m: int) -> list[torch.Tensor]:
    """Views (m, n) of the outputs of several weights; else `out` alone."""
    if packed.grouped or len(packed.parts) == 1:
        return [out]
    pieces = out.view(-1).split([m * n for n in packed.parts])
    return [piece.view(m, n) for piece, n in zip(pieces, packed.parts, strict=True)]
