"""What a pass stores: E2M1 in blocks of 16 (NVFP4) or E4M3 in blocks of 32, 64 or 128, and where the scales lie."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

CHUNK = 16
"""Consecutive values of a row that one thread holds."""
SWIZZLE_ROWS, SWIZZLE_COLUMNS = 128, 4
"""An atom of the scale layout of tcgen05: rows and scales."""
E4M3_LARGEST, E2M1_LARGEST = 448.0, 6.0
FP8_BLOCKS = (32, 64, 128)
FP8_SCALES = ("ue8m0", "fp32")


@dataclass(frozen=True)
class BlockFormat:
    """Codes and block scales of one tensor [rows, k].

    name      "nvfp4": two E2M1 codes a byte, an E4M3 scale for 16 values, one fp32 scale for the tensor. "fp8": E4M3
              codes, one scale for `block` values
    scale     of fp8: "ue8m0" (one byte, a power of two) or "fp32"
    swizzled  of nvfp4: scales in atoms of 128 rows x 4, padded with zeros, as tcgen05 reads them; else row by row
    native    sm_100a converts to E2M1 by an instruction; elsewhere it is made of sums
    floor     of fp8: the least amax of a block
    """

    name: str = "nvfp4"
    block: int = 16
    scale: str = "e4m3"
    swizzled: bool = False
    native: bool = False
    floor: float = 1e-4

    def problems(self) -> list[str]:
        """Every reason why there is no such format."""
        found = []
        if self.name not in ("nvfp4", "fp8"):
            found.append(f"format={self.name!r}; allowed: nvfp4, fp8")
        if self.name == "nvfp4" and (self.block != CHUNK or self.scale != "e4m3"):
            found.append(f"block={self.block}, scale={self.scale!r}; allowed for nvfp4: 16, e4m3")
        if self.name == "fp8" and self.block not in FP8_BLOCKS:
            found.append(f"block={self.block}; allowed for fp8: {', '.join(map(str, FP8_BLOCKS))}")
        if self.name == "fp8" and self.scale not in FP8_SCALES:
            found.append(f"scale={self.scale!r}; allowed for fp8: {', '.join(FP8_SCALES)}")
        if self.name == "fp8" and self.swizzled:
            found.append("swizzled=True; allowed for fp8: False")
        if not (math.isfinite(self.floor) and self.floor > 0):
            found.append(f"floor={self.floor!r}; allowed: a finite number above 0")
        return found

    @property
    def lanes(self) -> int:
        """Threads that share a block."""
        return self.block // CHUNK

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of one thread."""
        return CHUNK // 2 if self.name == "nvfp4" else CHUNK

    @property
    def scale_bytes(self) -> int:
        """Bytes of one block scale."""
        return 4 if self.scale == "fp32" else 1

    def padded(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and scales a row that are stored, padding included."""
        if not self.swizzled:
            return rows, columns
        return -(-rows // SWIZZLE_ROWS) * SWIZZLE_ROWS, -(-columns // SWIZZLE_COLUMNS) * SWIZZLE_COLUMNS

    def scales_shape(self, rows: int, k: int) -> tuple[int, ...]:
        """Shape of the tensor of scales of a [rows, k] tensor."""
        padded_rows, columns = self.padded(rows, k // self.block)
        return (padded_rows * columns,) if self.swizzled else (rows, columns)

    @property
    def floor_byte(self) -> int:
        """UE8M0 byte of the least scale: the smallest power of two s with 448 s >= floor."""
        mantissa, exponent = math.frexp(self.floor / E4M3_LARGEST)
        return min(max(exponent + 126 + (mantissa > 0.5), 0), 254)

    @property
    def floor_f32(self) -> float:
        """The floor as an fp32 number."""
        return float(struct.unpack("f", struct.pack("f", self.floor))[0])
