"""What the small-M linear may be on sm_90a: tiles, columns, ring, and every reason why there is no such kernel.

A **tile** is 16 rows of the tensor core's A operand. With `rows` 16 these are 16 rows of the weight over all of K. With
8 or 4 they are 2 or 4 **segments** of K of each of 8 or 4 rows: a weight of few rows still gives every multiprocessor a
tile, and no partial sum leaves the CTA. A **unit** is one tile over 128 k of its segments: what one warp takes from the
ring at a time, and the smallest piece of the packed weight.

The eight columns of the B operand are (token, segment, block), the block fastest. For one token and one segment column
j holds the 16 activations of block j and zeros elsewhere, so one accumulator keeps eight block sums apart and the block
scales cost four FMA for 64 weights a lane.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMATS = ("nvfp4", "mxfp4", "fp8")
"""Weights: E2M1 in blocks of 16 with E4M3 scales, in blocks of 32 with UE8M0 scales, E4M3 in blocks of 128 x 128."""
SCALE_BYTES = {"nvfp4": 128, "mxfp4": 64, "fp8": 16}
"""Bytes of a unit that are block scales, of FP8 one fp32 a segment and padding."""
ACTIVATIONS = ("f16", "e4m3")
ROWS = (16, 8, 4)
TOKENS = (1, 2, 4, 8, 16)
WARPS = (4, 8, 12, 16)
SPLITS = (1, 2, 4)

LANES = 32
UNIT_K = 128
"""k of a unit: eight blocks of 16, one product of 16 x 8 x 16 each."""
STEPS = 8
"""Products of k = 16 in a unit."""
SHARED_BYTES = 232_448
"""Dynamic shared memory that one CTA may opt in to on sm_90 (CUDA C programming guide: 227 KiB)."""
REGISTERS_PER_SM = 65_536
B_REGISTERS = {True: 64, False: 24}
"""Registers a lane that activations may take with up to 8 consumer warps, and with more; else they lie in shared
memory."""
GROUP = 4
"""Warps of a warpgroup."""
AMAX_BYTES = 16 * 16 * 4
"""The largest magnitude of each token in each warp, as the warps tell each other."""


class Tiled:
    """What follows from how a weight is packed (kernels/linear/layout.py): its tiles, their units, and their bytes."""

    weights: str
    parts: tuple[int, ...]
    k: int
    rows: int

    @property
    def segments(self) -> int:
        """Pieces of K that lie in different rows of a tile."""
        return 16 // self.rows

    @property
    def tile_units(self) -> int:
        """Units of a tile; k beyond K is packed as zeros."""
        return -(-self.k // (UNIT_K * self.segments))

    @property
    def segment_k(self) -> int:
        """k of one segment, whole units."""
        return self.tile_units * UNIT_K

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles of each part."""
        return tuple(-(-n // self.rows) for n in self.parts)

    @property
    def weight_bytes(self) -> int:
        """Bytes of a unit that are weights."""
        return 16 * UNIT_K if self.weights == "fp8" else 8 * UNIT_K

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit: its weights and its block scales."""
        return self.weight_bytes + SCALE_BYTES[self.weights]

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile."""
        return self.tile_units * self.unit_bytes


@dataclass(frozen=True)
class LinearConfig(Tiled):
    """One compiled kernel. The number of tokens up to `tokens`, addresses and strides are arguments, not settings.

    weights     "nvfp4", "mxfp4" or "fp8"
    activation  "f16": BF16 activations, exactly; "e4m3": rounded to E4M3 under one power of two a token
    parts       rows of each weight that shares the launch; all have the same k
    grouped     the parts read consecutive slices of k of x and write consecutive columns of one output
    k           columns of each weight, a multiple of 16
    rows        rows of a tile
    tokens      columns that the kernel has for tokens
    warps       consumer warps; a ring stage holds one unit for each
    stages      ring stages
    in_flight   ring stages whose copies may be under way at once
    buffers     sets of partial sums between the consumer warps and the epilogue warp
    split       CTAs of a cluster that share K of their tiles: each reads that part of the activations alone
    spread      CTAs that the tiles are dealt to
    resident    CTAs that fit one multiprocessor by registers: 2 lets the next kernel of a chain begin
    pdl         wait for the previous kernel only where its results are needed
    """

    weights: str
    activation: str
    parts: tuple[int, ...]
    k: int
    grouped: bool = False
    rows: int = 16
    tokens: int = 1
    warps: int = 16
    stages: int = 8
    in_flight: int = 3
    buffers: int = 2
    split: int = 1
    spread: int = 132
    resident: int = 1
    pdl: bool = True

    @property
    def rounded(self) -> bool:
        """Whether activations become E4M3, and wgmma multiplies: the warps of a warpgroup then share the k of a unit
        and
        have neighbouring tiles."""
        return self.activation == "e4m3"

    # ------------------------------------------------------------------ K

    @property
    def units(self) -> int:
        """Units of a tile."""
        return self.tile_units

    @property
    def share(self) -> int:
        """Units of a tile that one CTA multiplies."""
        return self.units // self.split

    # ------------------------------------------------------------------ columns of B

    @property
    def blocks(self) -> int:
        """Blocks of 16 k that have columns of their own."""
        return max(1, 8 // (self.tokens * self.segments))

    @property
    def column_tiles(self) -> int:
        """B operands of eight columns that one A operand meets."""
        return max(1, self.tokens * self.segments // 8)

    @property
    def summed_columns(self) -> int:
        """Neighbouring columns that belong to one token."""
        return self.blocks * self.segments

    @property
    def span(self) -> int:
        """Products that one accumulator collects before a block scale is applied."""
        return STEPS if self.weights == "fp8" else self.blocks

    @property
    def passes(self) -> int:
        """Accumulators of a unit."""
        return STEPS // self.span

    @property
    def kept_columns(self) -> int:
        """Sums a row that a lane keeps for its two columns: one if they are blocks of one segment."""
        return 2 if self.blocks == 1 else 1

    @property
    def alternating(self) -> bool:
        """Whether even columns belong to the segment of rows g and odd ones to that of rows g + 8: two of a lane's four
        accumulators count."""
        return self.segments == 2 and self.blocks == 1

    @property
    def scaled_weights(self) -> bool:
        """Whether block scales multiply the weights instead of the sums: where no two blocks share an accumulator that
        costs a multiplication for two weights, and their products may be summed at once. E2M1 times E4M3 is an f16;
        UE8M0 has the range of an f32."""
        return self.weights == "nvfp4" and not self.rounded and self.blocks == 1

    @property
    def sums(self) -> int:
        """Sums that a lane keeps for a column tile."""
        return 2 if self.alternating and not self.scaled_weights else 2 * self.kept_columns

    @property
    def merged(self) -> bool:
        """Whether a lane's two columns belong to one token."""
        return self.summed_columns > 1

    @property
    def b_words(self) -> int:
        """32-bit words of activations a lane keeps for each unit."""
        return 2 * STEPS // self.blocks * self.column_tiles

    @property
    def b_in_shared(self) -> bool:
        """Whether the activations lie in shared memory rather than in registers."""
        return self.rounded or self.b_words * self.turns > B_REGISTERS[self.warps <= 8]

    # ------------------------------------------------------------------ tiles and the ring

    @property
    def tile_count(self) -> int:
        """All tiles."""
        return sum(self.tiles)

    @property
    def tiles_per_set(self) -> int:
        """Tiles that the consumer warps share at a time: more than one if a tile has fewer units than there are warps
        and there are enough tiles for all CTAs. Grouped parts share none, because their activations differ. wgmma
        always takes the tiles of a warpgroup."""
        if self.rounded:
            return GROUP
        if self.grouped or self.split > 1:
            return 1
        return max(1, min(self.warps // self.units, self.tile_count // self.spread))

    @property
    def sets(self) -> int:
        """Sets of tiles: what is dealt to the clusters, of `split` CTAs each."""
        return -(-self.tile_count // self.tiles_per_set)

    @property
    def turns(self) -> int:
        """Ring stages of a set, which is also how many units of a set a warp has."""
        return -(-self.share * self.tiles_per_set // self.warps)

    @property
    def last_turn_units(self) -> int:
        """Units in the last ring stage of a whole set."""
        return self.share * self.tiles_per_set - (self.turns - 1) * self.warps

    @property
    def clusters(self) -> int:
        """Clusters of the grid."""
        return min(self.spread // self.split, self.sets)

    @property
    def grid(self) -> int:
        """CTAs."""
        return self.clusters * self.split

    @property
    def longest(self) -> int:
        """Ring stages that the busiest CTA fills."""
        return -(-self.sets // self.clusters) * self.turns

    @property
    def stage_bytes(self) -> int:
        """Bytes of a ring stage."""
        return self.warps * self.unit_bytes

    # ------------------------------------------------------------------ the CTA

    @property
    def producer(self) -> int:
        """The warp that issues the copies."""
        return self.warps

    @property
    def epilogue(self) -> int:
        """The first of the warps that add up the partial sums and store the output."""
        return self.warps + 1

    @property
    def finishers(self) -> int:
        """Those warps: three where a lane has many sums. 20 warps leave each thread as many registers as 17 do."""
        return 3 if self.partials >= 4 else 1

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return LANES * (self.warps + 1 + self.finishers)

    @property
    def partials(self) -> int:
        """Partial sums of a lane for one tile."""
        return (1 if self.segments == 2 else 2) * (1 if self.merged else 2) * self.column_tiles

    @property
    def activation_bytes(self) -> int:
        """Shared memory of the activations."""
        if self.rounded:
            return self.units * UNIT_K * 8 * self.column_tiles + AMAX_BYTES
        return self.b_in_shared * self.warps * self.turns * self.b_words * LANES * 4

    @property
    def barriers(self) -> int:
        """mbarriers: full and empty of the ring, ready and free of the partial sums; with a split two more a buffer for
        what the CTAs of a cluster tell each other."""
        return 2 * (self.stages + self.buffers) + (2 * self.buffers if self.split > 1 else 0)

    def shared_bytes(self) -> dict[str, int]:
        """Shared memory by what it holds."""
        return {
            "ring": self.stages * self.stage_bytes,
            "activations": self.activation_bytes,
            "partial sums": self.buffers * self.warps * self.partials * LANES * 4,
            "gathered sums": (self.split - 1) * self.buffers * self.partials * LANES * 4,
            "barriers": 8 * self.barriers,
        }

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel; empty if there is one."""
        found = [
            f"{name}={value!r} is not supported on sm90; supported: {', '.join(map(str, allowed))}"
            for name, value, allowed in (
                ("weights", self.weights, FORMATS),
                ("activation", self.activation, ACTIVATIONS),
                ("rows", self.rows, ROWS),
                ("tokens", self.tokens, TOKENS),
                ("warps", self.warps, WARPS),
            )
            if value not in allowed
        ]
        if not self.parts or min(self.parts) < 1:
            found.append(f"parts={self.parts}; allowed: at least one weight of at least one row")
        if self.k < 16 or self.k % 16:
            found.append(f"k={self.k}; allowed: positive multiples of 16")
        if self.grouped and len(set(self.parts)) > 1:
            found.append(f"parts={self.parts}; allowed in a grouped linear: equal numbers of rows")
        if self.weights == "fp8" and self.blocks > 1:
            found.append(f"tokens={self.tokens} with rows={self.rows}; allowed for fp8: at least 8 / segments tokens")
        if self.rounded and self.grouped and self.parts and -(-self.parts[0] // self.rows) % GROUP:
            found.append(f"parts={self.parts} with rows={self.rows}; allowed with e4m3: multiples of {GROUP} tiles")
        if self.split not in SPLITS or self.units % self.split or (self.rounded and self.split > 1):
            found.append(
                f"split={self.split}; allowed: {SPLITS} that divide the {self.units} units of a tile, with f16"
            )
        if self.rounded and self.warps % GROUP:
            found.append(f"warps={self.warps}; allowed with e4m3: multiples of {GROUP}")
        if not 1 <= self.in_flight <= self.stages:
            found.append(f"in_flight={self.in_flight}; allowed: 1 to stages={self.stages}")
        if found:
            return found
        parts = self.shared_bytes()
        if sum(parts.values()) > SHARED_BYTES:
            listed = " + ".join(f"{name} {size}" for name, size in parts.items())
            found.append(f"shared memory: {listed} = {sum(parts.values())} bytes, {SHARED_BYTES} available")
        return found
