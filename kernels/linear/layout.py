"""The packed weight: tiles one after the other, each a run of units, each unit the words of 32 lanes and its scales.

    unit      128 k of a tile's 16 rows; row g + 8 h of the tile, lane 4 g + t, product j of 8 (one block of 16 k)
    E2M1      one word a lane and product: rows g and g + 8, k 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of block j, which is what
              an A operand of 16-bit values has there; words j 0-3, then 4-7, of all lanes
    E4M3      two words a lane and product: row g, then row g + 8, bytes in the order of k, the same k (for activations
              of E4M3 4 t to 4 t + 3); four words of all lanes at a time
    scales    E2M1: byte 16 g + 4 (j / 2) + 2 h + j % 2. E4M3: one fp32 for each segment, in 16 bytes
    rows      16 rows of the weight; or, with 8, row g, its half h being the segment; or, with 4, row g / 4 + 2 h and
              segment g % 4

**Bit plan** of an E2M1 word for f16 (`PLAN_F16`): its 16-bit halves hold the even and the odd k of four pairs; pair 0
lies where f16 wants it, the others to the right of that, so that masks and left shifts alone unpack (11 operations for
8 weights). In the low exponent bits of f16 an E2M1 reads as 2^-14 of its value, subnormals included. In those of BF16,
three bits lower, it reads as 2^-126 of it (13 operations).

For E4M3 a byte holds the weight of row g where E4M3 wants it (2^-6 of its value), and in the four bits that are left
sign and mantissa bit of row g + 8 and the exponent bits of its *next* weight, so that one rotation by 6 and one shift
by 2 bring them into place (5 operations for 8 weights); its four bytes are k 4 t to 4 t + 3. There the units of four
tiles alternate, so that a warpgroup's lie together.
"""

from __future__ import annotations

import torch

from kernels.linear.config import UNIT_K, LinearConfig

F16_MASK = 0x8E008E00
"""Sign, two exponent bits and the mantissa bit of an E2M1 in both halves of a word."""
F16_SIGN = 0x80008000
BF16_MASK = 0x81C081C0
"""The same bits where BF16 has them."""
PLAN_F16 = ((15, 9), (12, 6), (14, 3), (13, 0))
"""Sign bit and lowest magnitude bit of pairs 0 to 3 in a half: (row g, k 0 1), (row g + 8, k 0 1), (row g, k 8 9),
..., beside 2 t."""

E4M3_MASK = 0x9C9C9C9C
"""Sign, two exponent bits and the mantissa bit of an E2M1 in every byte of a word."""
E4M3_LOW = 0x04040404
"""The bit of a byte that the second row's mantissa bit moves to; its other bits come from elsewhere."""


def rows_of_tile(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row of the weight and segment of K for tile rows (h, g), each int64 [2, 8]."""
    h, g = torch.arange(2)[:, None], torch.arange(8)[None, :]
    if rows == 16:
        return g + 8 * h, torch.zeros(2, 8, dtype=torch.int64)
    if rows == 8:
        return (g + 0 * h), (h + 0 * g)
    return g // 4 + 2 * h, g % 4 + 0 * h


def to_tiles(values: torch.Tensor, config: LinearConfig, group: int) -> torch.Tensor:
    """values [n, ceil(k / group)], one for each `group` k, as [tiles, units, h, g, groups of a unit]; zeros where n or
    k end."""
    n = values.shape[0]
    per_unit = UNIT_K // group
    padded = values.new_zeros((-(-n // config.rows) * config.rows, config.segments * config.units * per_unit))
    padded[:n, : values.shape[1]] = values
    parts = padded.view(-1, config.rows, config.segments, config.units, per_unit)
    row, segment = (x.to(values.device) for x in rows_of_tile(config.rows))
    return parts[:, row, segment].permute(0, 3, 1, 2, 4)


def from_tiles(tiles: torch.Tensor, config: LinearConfig, n: int, columns: int) -> torch.Tensor:
    """Inverse of ``to_tiles``: [tiles, units, h, g, groups of a unit] -> [n, columns]."""
    count, _, _, _, per_unit = tiles.shape
    parts = tiles.new_zeros((count, config.rows, config.segments, config.units, per_unit))
    row, segment = (x.to(tiles.device) for x in rows_of_tile(config.rows))
    parts[:, row, segment] = tiles.permute(0, 2, 3, 1, 4)
    return parts.reshape(count * config.rows, -1)[:n, :columns].contiguous()


def e2m1_words(codes: torch.Tensor) -> torch.Tensor:
    """Codes [tiles, units, h, g, 128] -> bytes [tiles, units, 1024] by the bit plan for f16."""
    lanes = codes.unflatten(-1, (2, 4, 2, 4, 2)).to(torch.int64)  # tile, unit, h, g, j / 4, j % 4, pair, t, parity
    word = torch.zeros((), dtype=torch.int64, device=codes.device)
    for index, (sign, magnitude) in enumerate(PLAN_F16):
        code = lanes[:, :, index % 2, :, :, :, index // 2]  # tile, unit, g, j / 4, j % 4, t, parity
        half = ((code >> 3) << sign) | ((code & 7) << magnitude)
        word = word | half[..., 0] | (half[..., 1] << 16)
    word = word.permute(0, 1, 3, 2, 5, 4)  # tile, unit, j / 4, g, t, j % 4
    return _bytes(word).flatten(2)


def e2m1_codes(data: torch.Tensor) -> torch.Tensor:
    """Inverse of ``e2m1_words``."""
    word = _words(data.unflatten(-1, (2, 8, 4, 4, 4))).permute(0, 1, 3, 2, 5, 4)  # tile, unit, g, j / 4, j % 4, t
    found = [
        torch.stack([(word >> (16 * p + sign) & 1) << 3 | (word >> (16 * p + magnitude) & 7) for p in range(2)], dim=-1)
        for sign, magnitude in PLAN_F16
    ]
    lanes = torch.stack(
        [torch.stack(found[h::2], dim=-3) for h in range(2)], dim=2
    )  # tile, unit, h, g, ..., pair, t, parity
    return lanes.flatten(-5).to(torch.uint8)


def e2m1_words_e4m3(codes: torch.Tensor) -> torch.Tensor:
    """Codes [tiles, units, h, g, 128] -> bytes [tiles, units, 1024] by the bit plan for E4M3."""
    lanes = codes.unflatten(-1, (2, 4, 4, 4)).to(torch.int64)  # tile, unit, h, g, j / 4, j % 4, t, byte
    first, second = lanes[:, :, 0], lanes[:, :, 1]
    before = second.roll(-1, -1)  # the exponent bits of the next byte's weight
    byte = (first >> 3) << 7 | (first & 7) << 2 | (second >> 3) << 1 | (second & 1) | (before >> 1 & 3) << 5
    return byte.to(torch.uint8).permute(0, 1, 3, 2, 5, 4, 6).flatten(2)  # tile, unit, j / 4, g, t, j % 4, byte


def e2m1_codes_e4m3(data: torch.Tensor) -> torch.Tensor:
    """Inverse of ``e2m1_words_e4m3``."""
    byte = data.unflatten(-1, (2, 8, 4, 4, 4)).permute(0, 1, 3, 2, 5, 4, 6).to(torch.int64)
    first = (byte >> 7) << 3 | (byte >> 2 & 7)
    second = (byte >> 1 & 1) << 3 | (byte & 1) | (byte.roll(1, -1) >> 5 & 3) << 1
    return torch.stack((first, second), dim=2).flatten(-4).to(torch.uint8)


def e4m3_words(codes: torch.Tensor, config: LinearConfig) -> torch.Tensor:
    """Bytes [tiles, units, h, g, 128] -> bytes [tiles, units, 2048]."""
    if config.rounded:
        lanes = codes.unflatten(-1, (4, 2, 4, 4))  # tile, unit, h, g, j / 2, j % 2, t, byte
    else:
        lanes = codes.unflatten(-1, (4, 2, 2, 4, 2)).transpose(-3, -2).flatten(-2)  # the same
    return lanes.permute(0, 1, 4, 3, 6, 5, 2, 7).flatten(2)  # tile, unit, j / 2, g, t, j % 2, h, byte


def e4m3_codes(data: torch.Tensor, config: LinearConfig) -> torch.Tensor:
    """Inverse of ``e4m3_words``."""
    lanes = data.unflatten(-1, (4, 8, 4, 2, 2, 4)).permute(0, 1, 6, 3, 2, 5, 4, 7)
    if not config.rounded:
        lanes = lanes.unflatten(-1, (2, 2)).transpose(-3, -2)
    return lanes.flatten(4)


def scale_bytes(scales: torch.Tensor) -> torch.Tensor:
    """Block scales [tiles, units, h, g, 8 or 4] -> bytes [tiles, units, 128 or 64]."""
    return scales.unflatten(-1, (-1, 2)).permute(0, 1, 3, 4, 2, 5).flatten(2)


def scales_of_bytes(data: torch.Tensor) -> torch.Tensor:
    """Inverse of ``scale_bytes``."""
    return data.unflatten(-1, (8, -1, 2, 2)).permute(0, 1, 4, 2, 3, 5).flatten(4)


def _bytes(words: torch.Tensor) -> torch.Tensor:
    """Little-endian bytes of 32-bit words held in int64, in a new last dimension."""
    return torch.stack([words >> 8 * i & 255 for i in range(4)], dim=-1).to(torch.uint8)


def _words(data: torch.Tensor) -> torch.Tensor:
    """Inverse of ``_bytes``."""
    wide = data.to(torch.int64)
    return wide[..., 0] | wide[..., 1] << 8 | wide[..., 2] << 16 | wide[..., 3] << 24
