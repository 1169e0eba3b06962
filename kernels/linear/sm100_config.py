"""What the block-scaled linear may be on sm_100a: roles of the operands, tiles, ring, tensor memory, and every reason
why there is no such kernel. Pure Python.

One instruction multiplies 128 rows of A by N rows of B over 64 k. Either side may be the weight:

    swapped   A = 128 rows of the weight, B = a tile of 8 to 256 tokens: few tokens leave no lane of tensor memory idle
    else      A = 128 tokens, B = 128 or 256 rows of the weight: a thread holds neighbouring outputs of one token

A **stage** of the ring holds 256 k of a tile of each side: codes, 128 bytes a row in the 128-byte swizzle, and scales,
four atoms of 512 bytes for 128 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.linear.epilogues import Epilogue
from kernels.shared.pipelines import BARRIER_BYTES, WARP, Pipe, Side

LANES = 128
"""Lanes of tensor memory: rows of A, and threads of the epilogue warps."""
TILE_K = 256
"""k of a ring stage: 128 bytes of E2M1."""
STEP_K = 64
"""k of one instruction: four scales a row, one atom of the scale layout."""
ATOM_BYTES = 512
"""Scales of 128 rows over 64 k."""
ATOM_ROWS = 128
ATOM_COLUMNS = 4
"""Columns of tensor memory that an atom takes: its rows 32 j to 32 j + 31 are the lanes of column j, in every quarter
of the lanes."""
BLOCK = 16
"""k of a scale."""
TOKENS = (8, 16, 32, 64, 128, 256)
"""Tokens of a tile, swapped. Below 128 one tile must hold them all: their scales lie in one atom."""
ROWS = (128, 256)
COLUMNS = 512
"""Columns of tensor memory."""
SHARED_BYTES = 232_448
"""Dynamic shared memory that one CTA may opt in to on sm_100 (CUDA C programming guide: 227 KiB)."""
MOST_STAGES = 8
"""Stages beyond which a deeper ring is not worth its shared memory: about 100 KB are under way."""
SWAPPED_UP_TO = 64
"""Tokens up to which the weight is A."""
SPLITS = (1, 2, 4, 8)
SPLIT_TOKENS = 32
"""Most tokens of a tile whose K is shared: their sums go from CTA to CTA."""


@dataclass(frozen=True)
class Warps:
    """Which warps play which role. Warp w reaches lanes 32 (w % 4) to 32 (w % 4) + 31 of tensor memory."""

    epilogue: range = range(0, 4)
    mma: int = 4
    load: int = 5

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return WARP * 6


@dataclass(frozen=True)
class LinearSm100Config:
    """One compiled kernel. The number of tokens, strides, addresses and CTAs are arguments, not settings.

    parts     rows of each weight that shares the launch; all have the same k
    k         columns of each weight, a multiple of 16; grouped: of 64
    grouped   the parts read consecutive slices of k of x and write consecutive columns of one output
    swapped   the weight is A
    tokens    tokens of a tile: one of TOKENS if swapped, else 128
    rows      rows of the weight in a tile: 128 if swapped, else 128 or 256
    stages    ring stages
    vector    outputs can be stored 16 bytes at a time: parts and the address are multiples of 8 elements
    split     CTAs of a cluster that share K of their tiles; the first one adds the sums, in the order of the ranks
    epilogue  what happens to the outputs before they are stored; None: rounding to BF16
    pdl       begin before the previous kernel of the stream has ended, wait where its results are needed
    """

    parts: tuple[int, ...]
    k: int
    grouped: bool = False
    swapped: bool = True
    tokens: int = 128
    rows: int = 128
    stages: int = 4
    vector: bool = False
    split: int = 1
    epilogue: Epilogue | None = None
    pdl: bool = True

    warps = Warps()

    # ------------------------------------------------------------------ tiles

    @property
    def k_tiles(self) -> int:
        """Ring stages that a tile takes."""
        return -(-self.k // TILE_K)

    @property
    def atoms(self) -> int:
        """Atoms of scales along k."""
        return -(-self.k // STEP_K)

    @property
    def part_tiles(self) -> tuple[int, ...]:
        """Tiles of 128 rows that each part is stored as."""
        return tuple(-(-n // LANES) for n in self.parts)

    @property
    def weight_tiles(self) -> int:
        """Tiles of `rows` rows in all parts together."""
        return -(-sum(self.part_tiles) * LANES // self.rows)

    @property
    def columns(self) -> int:
        """N of the instruction."""
        return self.tokens if self.swapped else self.rows

    @property
    def b_atoms(self) -> int:
        """Atoms that the rows of B have."""
        return -(-self.columns // ATOM_ROWS)

    # ------------------------------------------------------------------ shared memory

    @property
    def a_bytes(self) -> int:
        """Codes of A in a stage."""
        return LANES * TILE_K // 2

    @property
    def b_bytes(self) -> int:
        """Codes of B in a stage."""
        return self.columns * TILE_K // 2

    @property
    def scale_bytes(self) -> tuple[int, int]:
        """Scales of A and of B in a stage."""
        atoms = TILE_K // STEP_K * ATOM_BYTES
        return atoms, self.b_atoms * atoms

    @property
    def stage_bytes(self) -> int:
        """What the copies of a stage bring; zeros beyond the ends of a tensor count."""
        return self.a_bytes + self.b_bytes + sum(self.scale_bytes)

    def shared_bytes(self) -> dict[str, int]:
        """Shared memory by what it holds; codes are aligned to 1024 bytes, the period of their swizzle."""
        return {
            "ring": self.stages * self.stage_bytes,
            "gathered sums": self.gathered_bytes,
            "barriers": BARRIER_BYTES * (2 + sum(pipe.barriers for pipe in self.pipes.values())),
            "tmem address": 8,
            "alignment": 1024,
        }

    @property
    def most_stages(self) -> int:
        """Ring stages that fit."""
        return (SHARED_BYTES - 2048 - self.gathered_bytes) // self.stage_bytes

    @property
    def gathered_bytes(self) -> int:
        """Sums of a tile that the other CTAs of a cluster send to the first one."""
        return (self.split - 1) * self.columns * LANES * 4

    # ------------------------------------------------------------------ tensor memory

    @property
    def accumulators(self) -> int:
        """Accumulators of `columns` columns: two let the tensor core go on while the epilogue reads."""
        return 2 if 2 * self.columns + self.scale_columns <= COLUMNS else 1

    @property
    def scale_columns(self) -> int:
        """Columns of the scales of both sides for a stage."""
        return TILE_K // STEP_K * ATOM_COLUMNS * (1 + self.b_atoms)

    @property
    def scales_a(self) -> int:
        """First column of A's scales, behind the accumulators."""
        return self.accumulators * self.columns

    @property
    def scales_b(self) -> int:
        """First column of B's scales."""
        return self.scales_a + TILE_K // STEP_K * ATOM_COLUMNS

    @property
    def allocated(self) -> int:
        """Columns to ask for: a power of two, at least 32 (PTX ISA, tcgen05.alloc)."""
        need = max(32, self.scales_a + self.scale_columns)
        return 1 << (need - 1).bit_length()

    # ------------------------------------------------------------------ pipelines

    @property
    def pipes(self) -> dict[str, Pipe]:
        """Who hands what to whom."""
        load, mma = Side("load", "tma", 1), Side("mma", "umma", 1)
        epilogue = Side("epilogue", "threads", len(self.warps.epilogue))
        pipes = (
            Pipe("ring", self.stages, load, mma, full=1, empty=1, tx_bytes=self.stage_bytes),
            Pipe("sums", self.accumulators, mma, epilogue, full=1, empty=LANES),
        )
        return {pipe.name: pipe for pipe in pipes}

    def budget(self) -> list[str]:
        """The arithmetic behind ``problems``, one line a resource."""
        parts = self.shared_bytes()
        return [
            f"shared memory: {' + '.join(f'{name} {size}' for name, size in parts.items())} "
            f"= {sum(parts.values())} bytes, {SHARED_BYTES} available",
            f"tensor memory: sums {self.accumulators} x {self.columns} + scales {self.scale_columns} "
            f"= {self.scales_a + self.scale_columns} columns, allocated as {self.allocated} of {COLUMNS}",
            *(pipe.arithmetic() for pipe in self.pipes.values()),
        ]

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel; empty if there is one."""
        found = []
        if not self.parts or min(self.parts) < 1:
            found.append(f"parts={self.parts}; allowed: at least one, all of at least 1 row")
        step = STEP_K if self.grouped else BLOCK
        if self.k < step or self.k % step:
            why = " with grouped=True (a group's scales begin with an atom)" if self.grouped else ""
            found.append(f"k={self.k}; allowed: a multiple of {step}, at least {step}{why}")
        if self.grouped and len(set(self.parts)) > 1:
            found.append(f"parts={self.parts} with grouped=True; allowed: equal ones")
        tokens, rows = (TOKENS, (LANES,)) if self.swapped else ((LANES,), ROWS)
        for name, value, allowed in (("tokens", self.tokens, tokens), ("rows", self.rows, rows)):
            if value not in allowed:
                found.append(f"{name}={value} with swapped={self.swapped}; allowed: {', '.join(map(str, allowed))}")
        if found:
            return found
        if self.grouped and self.part_tiles[0] * LANES % self.rows:
            found.append(f"rows={self.rows}: a tile would span two groups of {self.parts[0]} rows; allowed: 128")
        if self.split not in SPLITS or self.split > self.k_tiles:
            found.append(f"split={self.split} with k={self.k}; allowed: 1, 2, 4, 8, at most one a {TILE_K} of k")
        elif self.split > 1 and not (self.swapped and self.tokens <= SPLIT_TOKENS):
            found.append(
                f"split={self.split} with swapped={self.swapped}, tokens={self.tokens}; allowed beyond 1: True, up to "
                f"{SPLIT_TOKENS}"
            )
        if self.epilogue is not None:
            found += self.epilogue.problems(self.parts, self.grouped, self.swapped, self.rows)
        if not 1 <= self.stages <= self.most_stages:
            found.append(f"stages={self.stages}; allowed: 1 to {self.most_stages} of {self.stage_bytes} bytes")
        if self.allocated > COLUMNS:
            found.append(f"tensor memory: {self.allocated} columns; allowed: {COLUMNS}")
        for pipe in self.pipes.values():
            found += pipe.problems()
        return found
