"""Operands, descriptors and accumulators for tests of the tensor core, placed and read back by hand."""

import numpy as np

from emulator.memory.shared import SharedMemory
from emulator.memory.tmem import TensorMemory
from emulator.units.descriptors import operand
from emulator.units.formats import decode, encode

CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
}
CODES["mxf8f6f4"] = CODES["f8f6f4"]
CODES["mxf4"] = CODES["mxf4nvf4"] = {"e2m1": 1}
A_AT, B_AT = 0, 32768
D_COLUMN, A_COLUMN, SFA_COLUMN, SFB_COLUMN = 0, 256, 320, 352


def instruction(kind, m, n, a, b, d="f32", mn_a=0, mn_b=0, neg_a=0, neg_b=0, sat=0):
    table = CODES[kind]
    code = {"f16": 0, "f32": 1, "s32": 2}[d]
    return (
        sat << 3 | code << 4 | table[a] << 7 | table[b] << 10 | neg_a << 13 | neg_b << 14 | mn_a << 15 | mn_b << 16
    ) | (n >> 3 << 17 | m >> 4 << 24)


def scaled_instruction(kind, m, n, a, b, scale, sfa=0, sfb=0):
    table = CODES[kind]
    return (
        sfb << 4 | table[a] << 7 | table[b] << 10 | n >> 3 << 17 | (scale == "ue8m0") << 23 | m >> 7 << 27 | sfa << 29
    )


def matrix_descriptor(at, lbo, sbo, layout):
    return at >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | 1 << 46 | layout << 61


def memory(count=1):
    places = []
    for _ in range(count):
        tensor = TensorMemory()
        tensor.alloc(512)
        places.append((SharedMemory(1 << 16), tensor))
    return places


def put(smem, word, codes, bits, mn_major):
    """Write element codes [rows, K] where a descriptor says they lie."""
    rows, k = codes.shape
    at = operand(word, rows, k, max(8, bits), mn_major, True).addresses()
    for byte in range(max(8, bits) // 8):
        smem.u8[at + byte] = codes >> np.array(8 * byte, codes.dtype) & np.array(255, codes.dtype)


def put_padded(smem, word, codes, bits):
    """4- and 6-bit codes [rows, K]: 16 of them at the start of every 16 bytes, low bits first."""
    rows, k = codes.shape
    where = operand(word, rows, k, 8, False, True).granules
    for r in range(rows):
        for g in range(k // 16):
            number = sum(int(c) << bits * i for i, c in enumerate(codes[r, 16 * g : 16 * g + 16]))
            at = int(where[r, g]) << 4
            smem.u8[at : at + 16] = list(number.to_bytes(16, "little"))


def put_packed(smem, word, codes):
    rows, k = codes.shape
    where = operand(word, rows, k, 4, False, True).granules
    raw = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(rows, -1, 16)
    smem.u8.reshape(-1, 16)[where] = raw


def random_codes(name, rows, k, seed):
    rng = np.random.default_rng(seed)
    if name in ("u8", "s8"):
        return rng.integers(0, 256, (rows, k), dtype=np.uint8)
    return encode(name, rng.standard_normal((rows, k)).astype(np.float32))


def values(name, codes):
    if name in ("u8", "s8"):
        return codes.view(np.int8 if name == "s8" else np.uint8).astype(np.float64)
    return decode(name, codes).astype(np.float64)


def read_d(places, m, n, pair=False, weights=False, lane0=0):
    """D words [M, N] from tensor memory, by the layouts of the PTX manual written out once more."""
    out = np.zeros((m, n), np.uint32)
    rows = m // len(places)
    for i, (_, tensor) in enumerate(places):
        for r in range(rows):
            if rows == 128:
                line = tensor.words[r, D_COLUMN : D_COLUMN + n]
            elif rows == 64 and not (pair or weights):
                line = tensor.words[lane0 + r % 16 + 32 * (r // 16), D_COLUMN : D_COLUMN + n]
            else:
                step = n * rows // 128
                line = np.concatenate([tensor.words[q, D_COLUMN : D_COLUMN + step] for q in range(r, 128, rows)])
            out[i * rows + r] = line
    return out


def put_scales(tensor, column, codes, lanes, byte):
    """Scale codes [rows, factors]: row r in lane r % 32 of every listed quarter, column r / 32, from byte `byte` on."""
    octets = tensor.words.view(np.uint8).reshape(128, 512, 4)
    for quarter in lanes:
        for r in range(codes.shape[0]):
            octets[32 * quarter + r % 32, column + r // 32, byte : byte + codes.shape[1]] = codes[r]


K_MAJOR_128 = (0, 1024, 2)
