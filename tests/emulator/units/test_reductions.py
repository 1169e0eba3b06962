"""Reductions element by element: edges that the captured tensor reductions do not name."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.units.reductions import LEGAL, RAW, reduce_elements, reduce_values


def raw(kind, values):
    return np.array(values, RAW[kind])


@pytest.mark.parametrize(
    ("kind", "op", "old", "new", "want"),
    [
        ("u32", "add", 0xFFFFFFFF, 2, 1),
        ("u32", "min", 0xFFFFFFFF, 2, 2),
        ("s32", "min", 0xFFFFFFFF, 2, 0xFFFFFFFF),
        ("s32", "max", 0x80000000, 0, 0),
        ("u32", "inc", 4, 5, 5),
        ("u32", "inc", 5, 5, 0),
        ("u32", "dec", 0, 5, 5),
        ("u32", "dec", 6, 5, 5),
        ("u32", "dec", 3, 5, 2),
        ("u64", "xor", 0xF0F0, 0xFF00, 0x0FF0),
        ("s64", "max", (1 << 64) - 1, 3, 3),
        ("f16", "add", 0x3C00, 0x3C01, 0x4000),
        ("f16", "add", 0x7BFF, 0x7BFF, 0x7C00),
        ("f16", "add", 0x7C00, 0xFC00, 0x7FFF),
        ("f16", "min", 0x7E00, 0xBC00, 0xBC00),
        ("f16", "max", 0x0000, 0x8000, 0x0000),
        ("f16", "min", 0x0000, 0x8000, 0x8000),
        ("bf16", "add", 0x3F80, 0x3B80, 0x3F80),
        ("bf16", "max", 0xFFC0, 0xFF80, 0xFF80),
        ("f32", "add", 0x00000001, 0x00000001, 0x00000002),
        ("f32ftz", "add", 0x00000001, 0x00000001, 0x00000000),
        ("f32", "add", 0x7FC12345, 0x3F800000, 0x7FFFFFFF),
        ("f64", "add", 0x3FF0000000000000, 0x3FF0000000000000, 0x4000000000000000),
    ],
)
def test_one(kind, op, old, new, want):
    assert reduce_values(op, kind, raw(kind, [old]), raw(kind, [new])).tolist() == [want]


def test_illegal_pairs_name_what_is_allowed():
    with pytest.raises(IllegalInstruction, match="allowed for s64: min, max"):
        reduce_values("add", "s64", raw("s64", [1]), raw("s64", [1]))
    with pytest.raises(IllegalInstruction, match="allowed for u8: none"):
        reduce_elements("add", "u8", np.zeros(1, np.uint8), np.zeros(1, np.uint8))
    assert set(LEGAL) == set(RAW)


def test_bytes_in_bytes_out():
    old = np.array([1, 2], np.uint32).view(np.uint8)
    new = np.array([6, 4], np.uint32).view(np.uint8)
    assert reduce_elements("or", "b32", old, new).view(np.uint32).tolist() == [7, 6]
    assert reduce_elements("xor", "b64", old, new).view(np.uint32).tolist() == [7, 6]
    empty = np.empty(0, np.uint8)
    assert reduce_elements("add", "f32", empty, empty).size == 0
