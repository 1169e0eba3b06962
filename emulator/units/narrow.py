"""How 4- and 6-bit elements lie in bytes: packed, padded in shared memory, and in tensor memory's 8-bit holders.

Padded (kinds f8f6f4 and mxf8f6f4 in shared memory): 16 elements at the start of every 16 bytes, low bits first.
Holder (their A in tensor memory, and what a decompressing tcgen05.cp writes): one element a byte, 4-bit ones in bits
[5:2], 6-bit ones in bits [6:1]. Packed (kinds mxf4 and mxf4nvf4 everywhere): two a byte, the low nibble first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.units.formats import HOLDER_SHIFT

U8 = NDArray[np.uint8]


def unpack_nibbles(raw: U8) -> U8:
    """uint8 [rows, n] -> codes [rows, 2 n]."""
    out = np.empty((raw.shape[0], raw.shape[1], 2), np.uint8)
    np.bitwise_and(raw, 15, out=out[..., 0])
    np.right_shift(raw, 4, out=out[..., 1])
    return out.reshape(raw.shape[0], -1)


def unpack_padded(raw: U8, bits: int) -> U8:
    """Padded uint8 [rows, n] (n a multiple of 16) -> codes [rows, n] of 4 or 6 bits."""
    rows = raw.shape[0]
    groups = raw.reshape(rows, -1, 16)
    if bits == 4:
        return unpack_nibbles(np.ascontiguousarray(groups[:, :, :8]).reshape(rows, -1))
    triples = groups[:, :, :12].reshape(rows, -1, 3).astype(np.uint32)
    word = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
    codes = np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], -1)
    return codes.reshape(rows, -1).astype(np.uint8)


def from_holders(raw: U8, name: str) -> U8:
    """Holder bytes of tensor memory -> codes, same shape; 8-bit formats fill their holder."""
    shift = HOLDER_SHIFT.get(name, 0)
    return raw >> np.uint8(shift) if shift else raw


def decompress(raw: U8, source: str) -> U8:
    """What tcgen05.cp .b8x16.<source> makes of padded bytes [rows, n]: holders [rows, n]."""
    if source == "b4x16_p64":
        return unpack_padded(raw, 4) << np.uint8(HOLDER_SHIFT["e2m1"])
    return unpack_padded(raw, 6) << np.uint8(HOLDER_SHIFT["e3m2"])
