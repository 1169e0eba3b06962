"""What the attention kernel may be: settings, budgets, and every reason why a setting is refused. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.fmha.tmem import COLUMNS, Tmem
from kernels.shared.pipelines import BARRIER_BYTES, WARP, Pipe, Side

TILE_Q = 128
"""Query rows a CTA: one row a lane of tensor memory, one row a thread of the softmax warps."""
TILE_KV = 128
"""Keys a tile."""
ROW_STAGES = 2
"""Row factors that may wait for the correction warps."""

DTYPES = ("f16", "bf16")
HEAD_DIMS = (64, 128)
SOFTMAX = ("none", "identity", "online")
ARCHS = ("sm100",)

SHARED_BYTES = {"sm100": 232_448}
"""Dynamic shared memory that one CTA may opt in to (CUDA C programming guide, compute capability 10.0: 227 KiB)."""
REGISTERS_PER_SM = 65_536
SOFTMAX_REGISTERS = 208
"""A thread of the softmax warps: a row of 128 scores and what becomes of it (ptxas spills below about 170)."""
CORRECTION_REGISTERS = 104
"""A thread of the correction warps: 32 columns of O, their 16-bit form, addresses."""


@dataclass(frozen=True)
class Warps:
    """Which warps of the CTA play which role. Warp w reaches lanes 32 (w % 4) to 32 (w % 4) + 31 of tensor memory."""

    softmax: range = range(0, 4)
    correction: range = range(4, 8)
    mma: int = 8
    load: int = 9

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return WARP * 10

    @property
    def shares(self) -> int:
        """Warps that the register file is divided by: it has four parts, and a part serves a whole number of warps."""
        return -(-self.threads // WARP // 4) * 4

    @property
    def registers(self) -> int:
        """Registers of each thread at launch, which come in eights."""
        return REGISTERS_PER_SM // (self.shares * WARP) // 8 * 8

    @property
    def launched(self) -> int:
        """Registers of the CTA at launch; roles redistribute them (PTX: setmaxnreg) and can't exceed them."""
        return self.threads * self.registers

    @property
    def taken(self) -> int:
        """Registers of the CTA after the redistribution."""
        wide, narrow = WARP * len(self.softmax), WARP * len(self.correction)
        rest = self.threads - wide - narrow
        return wide * SOFTMAX_REGISTERS + narrow * CORRECTION_REGISTERS + rest * self.registers


@dataclass(frozen=True)
class FmhaConfig:
    """One compiled kernel. Shapes, strides, scale and the causal bound are arguments of the kernel, not settings.

    dtype       of q, k, v and out: "f16" or "bf16"; scores, sums and the output accumulator are f32
    head_dim    64 or 128
    softmax     "none": stop after S = scale Q K^T; "identity": O = P V with P = S rounded to dtype; "online": attention
    kv_stages   stages of the K pipeline and of the V pipeline, at least 2
    """

    dtype: str
    head_dim: int
    softmax: str = "online"
    kv_stages: int = 2

    warps = Warps()

    @property
    def has_pv(self) -> bool:
        """Whether there is a second product, and with it V, O and the correction warps' work."""
        return self.softmax != "none"

    @property
    def has_row_factors(self) -> bool:
        """Whether rows are rescaled and normalised."""
        return self.softmax == "online"

    @property
    def tmem(self) -> Tmem:
        """The column map."""
        return Tmem(TILE_KV, self.head_dim)

    @property
    def q_tile_bytes(self) -> int:
        """Shared memory of one query tile, and of one output tile."""
        return TILE_Q * self.head_dim * 2

    @property
    def kv_tile_bytes(self) -> int:
        """Shared memory of one key tile, and of one value tile."""
        return TILE_KV * self.head_dim * 2

    @property
    def pipes(self) -> dict[str, Pipe]:
        """Every pipeline of the kernel by name: who hands what to whom."""
        load, mma = Side("load", "tma", 1), Side("mma", "umma", 1)
        softmax = Side("softmax", "threads", len(self.warps.softmax))
        correction = Side("correction", "threads", len(self.warps.correction))
        pipes = [
            Pipe("q", 1, load, mma, full=1, empty=1, tx_bytes=self.q_tile_bytes),
            Pipe("k", self.kv_stages, load, mma, full=1, empty=1, tx_bytes=self.kv_tile_bytes),
            Pipe("s", self.tmem.S.stages, mma, softmax, full=1, empty=128),
        ]
        if self.has_pv:
            pipes += [
                Pipe("v", self.kv_stages, load, mma, full=1, empty=1, tx_bytes=self.kv_tile_bytes),
                Pipe("o", 1, mma, correction, full=1, empty=128),
            ]
        if self.has_row_factors:
            pipes.append(Pipe("row", ROW_STAGES, softmax, correction, full=128, empty=128))
        return {pipe.name: pipe for pipe in pipes}

    def shared_bytes(self) -> dict[str, int]:
        """Shared memory by what it holds; tiles are aligned to 1024 bytes, the period of the 128-byte swizzle."""
        parts = {"q": self.q_tile_bytes, "k": self.kv_stages * self.kv_tile_bytes}
        if self.has_pv:
            parts |= {"v": self.kv_stages * self.kv_tile_bytes, "o": self.q_tile_bytes}
        if self.has_row_factors:
            parts["row factors"] = ROW_STAGES * 2 * TILE_Q * 4
        parts["barriers"] = BARRIER_BYTES * sum(pipe.barriers for pipe in self.pipes.values())
        parts["tmem address"] = 8
        return parts

    def budget(self, arch: str = "sm100") -> list[str]:
        """The arithmetic behind ``problems``, one line a resource."""
        parts, tmem = self.shared_bytes(), self.tmem
        return [
            f"shared memory: {' + '.join(f'{name} {size}' for name, size in parts.items())} "
            f"= {sum(parts.values())} bytes, {SHARED_BYTES[arch]} available",
            f"tensor memory: S {tmem.S.stages} x {tmem.S.width} (P in its place) + O {tmem.O.width} "
            f"= {tmem.O.end} columns, allocated as {tmem.allocated} of {COLUMNS}",
            f"registers: launched with {REGISTERS_PER_SM} / ({self.warps.shares} warps x {WARP}) = "
            f"{self.warps.registers} a thread, {self.warps.launched} in all; softmax 128 x {SOFTMAX_REGISTERS} + "
            f"correction 128 x {CORRECTION_REGISTERS} + mma, load 64 x {self.warps.registers} = {self.warps.taken}",
            *(pipe.arithmetic() for pipe in self.pipes.values()),
        ]

    def problems(self, arch: str = "sm100") -> list[str]:
        """Every reason why there is no such kernel on ``arch``; empty if there is one."""
        found = [
            f"{name}={value!r} is not supported on {arch}; supported: {', '.join(map(str, allowed))}"
            for name, value, allowed in (
                ("arch", arch, ARCHS),
                ("dtype", self.dtype, DTYPES),
                ("head_dim", self.head_dim, HEAD_DIMS),
                ("softmax", self.softmax, SOFTMAX),
            )
            if value not in allowed
        ]
        if self.kv_stages < 2:
            found.append(f"kv_stages={self.kv_stages}: at least 2, or loads and products take turns")
        if found:
            return found
        needed = sum(self.shared_bytes().values())
        if needed > SHARED_BYTES[arch]:
            found.append(
                f"{self.softmax} {self.dtype} head_dim={self.head_dim} with kv_stages={self.kv_stages} needs "
                f"{needed:,} bytes of shared memory, {SHARED_BYTES[arch]:,} available"
            )
        if self.warps.taken > self.warps.launched:
            found.append(f"the roles take {self.warps.taken} registers, the launch gives {self.warps.launched}")
        found += self.tmem.problems()
        for pipe in self.pipes.values():
            found += pipe.problems()
        return found
