"""Widths and kinds of the scalar types."""

import pytest

from emulator.ptx import TYPES


@pytest.mark.parametrize(
    ("name", "bits", "kind", "size"),
    [
        ("pred", 1, "p", 0),
        ("b8", 8, "b", 1),
        ("s16", 16, "s", 2),
        ("bf16", 16, "f", 2),
        ("u32", 32, "u", 4),
        ("f16x2", 32, "f", 4),
        ("f64", 64, "f", 8),
        ("f32x2", 64, "f", 8),
        ("b128", 128, "b", 16),
        ("b1024", 1024, "b", 128),
    ],
)
def test_types(name, bits, kind, size):
    found = TYPES[name]
    assert (found.name, found.bits, found.kind, found.bytes) == (name, bits, kind, size)
