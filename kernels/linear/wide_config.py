"""What the linear of many tokens may be on sm_90a: the block of a CTA, its shares of K, its ring.

A CTA has `across` x `along` warpgroups. Each multiplies 64 rows of the weight by a **column block** of tokens; `across`
of them have rows of their own, `along` share the rows and divide K, as do the `split` CTAs of a cluster. The rows of a
warp are 16, in as many tiles of the packed weight as there are segments of K in one. A **step** is what a warp unpacks
at a time: 16 rows over 128 k; with two segments in a tile over 128 k of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.linear.config import FORMATS, LANES, REGISTERS_PER_SM, ROWS, SHARED_BYTES, UNIT_K, Tiled

COLUMNS = (8, 16, 32, 64, 128, 256)
CLUSTERS = (1, 2, 4, 8)
GROUP = 4 * LANES
"""Threads of a warpgroup."""
GROUP_ROWS = 64
"""Rows of a warpgroup (PTX: wgmma m64)."""
BOX_K = 64
"""k of one copy of activations: 128 bytes, the span of the swizzle."""
WARP_COLUMNS = 16
"""Tokens up to which a warp may multiply alone, by mma.sync."""
FEW = 24
"""Registers that are enough for a producer thread, the least that may be asked for (PTX: setmaxnreg)."""


@dataclass(frozen=True)
class WideConfig(Tiled):
    """One compiled kernel. The number of tokens, addresses and strides are arguments, not settings.

    weights   "nvfp4", "mxfp4" or "fp8"
    parts     rows of each weight that shares the launch; all have the same k
    grouped   the parts read consecutive slices of k of x and write consecutive columns of one output
    k         columns of each weight, a multiple of 16
    rows      rows of a tile of the packed weight
    columns   tokens of a CTA
    across    warpgroups with rows of their own
    along     warpgroups that share rows and divide K
    split     CTAs of a cluster that share rows and divide K
    units     units of each tile in a ring stage
    stages    ring stages
    ahead     half units of a ring stage that a warp unpacks before their activations are there, while the products of
              the stage before are under way; if they are all of the stage, after these products where they read the
              same registers
    near      blocks of rows that take a column block after the other before the next rows' turn, so that L2 keeps both
    pdl       wait for the previous kernel only where its results are needed
    """

    weights: str
    parts: tuple[int, ...]
    k: int
    grouped: bool = False
    rows: int = 16
    columns: int = 16
    across: int = 1
    along: int = 1
    split: int = 1
    units: int = 1
    stages: int = 2
    ahead: int = 1
    near: int = 32
    pdl: bool = True

    # ------------------------------------------------------------------ K

    @property
    def share(self) -> int:
        """Units of a tile that one CTA multiplies."""
        return self.tile_units // self.split

    @property
    def turns(self) -> int:
        """Ring stages that a CTA fills."""
        return self.share // self.units

    @property
    def together(self) -> int:
        """Segments of a step: two lie in the halves of the same words, four in lanes of their own."""
        return 2 if self.segments == 2 else 1

    @property
    def stage_steps(self) -> int:
        """Steps of a ring stage."""
        return self.units * self.segments // self.together

    # ------------------------------------------------------------------ rows

    @property
    def block_rows(self) -> int:
        """Rows of a CTA."""
        return GROUP_ROWS * self.across

    @property
    def block_tiles(self) -> int:
        """Tiles of a CTA."""
        return self.block_rows // self.rows

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of rows of each part."""
        return tuple(-(-n // self.block_rows) for n in self.parts)

    # ------------------------------------------------------------------ the CTA

    @property
    def groups(self) -> int:
        """Consumer warpgroups."""
        return self.across * self.along

    @property
    def producer(self) -> int:
        """The warp that issues the copies."""
        return 4 * self.groups

    @property
    def rebalanced(self) -> bool:
        """Whether a warpgroup gives registers to the others: the producer warp and three that only do this."""
        return self.groups > 1 and self.columns >= 128

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return LANES * (self.producer + (4 if self.rebalanced else 1))

    @property
    def registers(self) -> int:
        """Registers of a consumer thread if the producers keep FEW: what is left of those at launch, in eights."""
        launched = REGISTERS_PER_SM // self.threads // 8 * 8 * self.threads
        return (launched - FEW * GROUP) // (LANES * self.producer) // 8 * 8

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.columns // 2

    @property
    def turn_halves(self) -> tuple[tuple[int, int, int], ...]:
        """What a warp unpacks in a ring stage, in order: number of its step, which of two segments, half of a unit."""
        numbers = range(self.stage_steps // self.along)
        return tuple((n, other, half) for n in numbers for other in range(self.together) for half in range(2))

    @property
    def overtakes(self) -> bool:
        """Whether the half units ahead are unpacked while products are under way. wgmma reads its A operands until it
        is waited for, so the last ones must not be among those that are replaced (PTX ISA, wgmma.mma_async: access to
        registers of A); mma.sync and the products of E4M3 weights are complete by then."""
        return self.by_warp or self.weights == "fp8" or self.ahead < len(self.turn_halves)

    @property
    def by_warp(self) -> bool:
        """Whether each warp multiplies alone, by mma.sync, instead of a warpgroup by wgmma: sooner done where a CTA has
        little to do, that is with weights of few rows; as fast or slower with others."""
        return self.columns <= WARP_COLUMNS and self.rows < 16

    @property
    def exchanged(self) -> bool:
        """Whether sums of several warpgroups or CTAs are added through shared memory."""
        return self.along * self.split > 1

    # ------------------------------------------------------------------ shared memory

    @property
    def run_bytes(self) -> int:
        """Bytes of a tile in a ring stage."""
        return self.units * self.unit_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes of one copy of activations."""
        return self.columns * BOX_K * 2

    @property
    def boxes(self) -> int:
        """Copies of activations in a ring stage."""
        return self.units * self.segments * UNIT_K // BOX_K

    @property
    def stage_bytes(self) -> int:
        """Bytes that a ring stage waits for."""
        return self.block_tiles * self.run_bytes + self.boxes * self.box_bytes

    @property
    def slots(self) -> int:
        """Sums of a thread that are added in one CTA: those of all its rows, dealt to the CTAs of a cluster."""
        return -(-self.across * self.sums // self.split)

    @property
    def exchange_bytes(self) -> int:
        """Sums that wait to be added, one of each share of K."""
        return self.slots * self.split * self.along * GROUP * 4 if self.exchanged else 0

    @property
    def ring_bytes(self) -> int:
        """The ring; sums of one CTA replace it, others may arrive while it is in use."""
        ring = self.stages * self.stage_bytes
        return ring if self.split > 1 else max(ring, self.exchange_bytes)

    @property
    def barriers(self) -> int:
        """mbarriers: weights, activations and empty of every ring stage, sums of other CTAs."""
        return 3 * self.stages + 1

    def shared_bytes(self) -> dict[str, int]:
        """Shared memory by what it holds."""
        exchange = self.exchange_bytes if self.split > 1 else 0
        return {"ring": self.ring_bytes, "sums": exchange, "barriers": 8 * self.barriers}

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel; empty if there is one."""
        found = [
            f"{name}={value!r} is not supported on sm90; supported: {', '.join(map(str, allowed))}"
            for name, value, allowed in (
                ("weights", self.weights, FORMATS),
                ("rows", self.rows, ROWS),
                ("columns", self.columns, COLUMNS),
                ("across", self.across, (1, 2, 4)),
                ("along", self.along, (1, 2, 4)),
                ("split", self.split, CLUSTERS),
            )
            if value not in allowed
        ]
        if found:
            return found
        if not self.parts or min(self.parts) < 1:
            found.append(f"parts={self.parts}; allowed: at least one weight of at least one row")
        if self.k < 16 or self.k % 16:
            found.append(f"k={self.k}; allowed: positive multiples of 16")
        if self.grouped and len(set(self.parts)) > 1:
            found.append(f"parts={self.parts}; allowed in a grouped linear: equal numbers of rows")
        if self.near < 1:
            found.append(f"near={self.near}; at least 1")
        if self.groups > 4:
            found.append(f"across={self.across} with along={self.along}; allowed: 4 warpgroups at most")
        if self.units < 1 or self.tile_units % (self.split * self.units) or self.stage_steps % self.along:
            found.append(
                f"split={self.split}, units={self.units}, along={self.along} with {self.tile_units} units a tile; "
                f"allowed: split x units divides the units, along the {self.stage_steps} steps of a stage"
            )
        elif not 0 <= self.ahead <= len(self.turn_halves):
            found.append(
                f"ahead={self.ahead}; allowed: 0 to the {len(self.turn_halves)} half units of a warp in a stage"
            )
        if self.stages < min(2, max(1, self.turns)):
            # A stage is given back after weights of the next one are unpacked.
            found.append(f"stages={self.stages}; allowed: at least 2 for {self.turns} turns")
        sizes = self.shared_bytes()
        if sum(sizes.values()) > SHARED_BYTES:
            listed = " + ".join(f"{name} {size}" for name, size in sizes.items())
            found.append(f"shared memory: {listed} = {sum(sizes.values())} bytes, {SHARED_BYTES} available")
        return found
