"""The probe kernels of wgmma's shared-memory descriptors: 296 element maps captured through products with the identity.

The capture ran every map on two images, the low and the high part of the element's index, and put them together.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.emulator.goldens.probe import Out, launches, member, run, table, u64

BYTES = {"f16": 2, "tf32": 4, "u8": 1}
LOW = 128
"""Indices below this are exact in every type."""
CASES = table("wgmma_map/cases")
ROWS = [dict(zip(CASES["cols"], row, strict=True)) for row in CASES["rows"]]


def encoded(kind: str, values: np.ndarray) -> np.ndarray:
    if kind == "u8":
        return values.astype(np.uint8)
    return values.astype(np.float16 if kind == "f16" else np.float32)


@cache
def images(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(both parts of the element indices, twice the identity in the layout that the launches name), 16 KiB each."""
    index = np.arange(16384 // BYTES[kind])
    parts = np.stack([encoded(kind, index % LOW), encoded(kind, index // LOW)])
    identity = np.zeros_like(parts)
    for n in range(32 // BYTES[kind]):
        byte = n * BYTES[kind]
        # K-major without swizzle, LBO 128, SBO 256
        identity[:, (n % 8 * 16 + n // 8 * 256 + byte // 16 * 128 + byte % 16) // BYTES[kind]] = 1
    return parts, identity


def element_map(case: str, kind: str, operand: str) -> np.ndarray:
    """The map that the emulator's product shows: [64, K]."""
    kernel, grid, block, arguments = launches("map")[case]
    parts, identity = images(kind)
    given: list[Any] = [{"img": parts, "id": identity}[a["in"].split("_")[0]] for a in arguments[:2]]
    given += [u64(a["u64"]) for a in arguments[2:4]] + [Out(arguments[4]["n"])]
    (out,) = run("map", kernel, grid, block, given)
    words = out.view(np.uint32 if kind == "u8" else np.float32).reshape(2, 64, 64).astype(np.int64)
    index = words[0] + LOW * words[1]
    return index[:, : 32 // BYTES[kind]] if operand == "A" else index.T[:, : 32 // BYTES[kind]]


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("operand", ["A", "B"])
def test_element_maps(kind: str, operand: str) -> None:
    chosen = [r for r in ROWS if r["type"] == kind and r["name"].split("_")[1] == operand]
    for row in chosen:
        got = element_map(row["name"], kind, operand)
        assert (got == member(f"wgmma_map/{kind}")[row["row"]]).all(), row["name"]
    assert len(chosen) == {"f16": 74, "tf32": 37, "u8": 37}[kind]
