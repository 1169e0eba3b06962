"""Packing of 4- and 6-bit elements."""

import numpy as np

from emulator.units.narrow import decompress, from_holders, unpack_nibbles, unpack_padded


def test_nibbles():
    assert unpack_nibbles(np.array([[0x21, 0xF3]], np.uint8)).tolist() == [[1, 2, 3, 15]]


def test_padded_groups_ignore_their_padding():
    codes = np.arange(32) % 64
    raw = np.full((1, 32), 0xEE, np.uint8)
    for i, code in enumerate(codes % 16):
        group, inside = divmod(i, 16)
        at = 16 * group + inside // 2
        shift = 4 * (inside % 2)
        raw[0, at] = int(raw[0, at]) & (0xF0 >> shift) | int(code) << shift
    assert unpack_padded(raw, 4).tolist() == [(codes % 16).tolist()]
    raw = np.full((1, 32), 0xEE, np.uint8)
    for group in range(2):
        number = sum(int(c) << 6 * i for i, c in enumerate(codes[16 * group : 16 * group + 16]))
        raw[0, 16 * group : 16 * group + 12] = list(number.to_bytes(12, "little"))
    assert unpack_padded(raw, 6).tolist() == [codes.tolist()]


def test_holders_put_the_element_in_the_middle_of_its_byte():
    raw = np.zeros((1, 16), np.uint8)
    raw[0, 0] = 0x2F
    four = decompress(raw, "b4x16_p64")
    assert four[0, :3].tolist() == [0b00111100, 0b00001000, 0]
    assert from_holders(four, "e2m1")[0, :2].tolist() == [15, 2]
    raw[0, :3] = [0x0C | 0xC0, 0x0F, 0]
    six = decompress(raw, "b6x16_p32")
    assert six[0, 0] == 0b00011000 and (from_holders(six, "e3m2")[0, :2] & 63).tolist() == [0x0C, 0x3F]
    assert from_holders(six, "e4m3") is six
