"""Places in words, and findings that count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emulator.errors import Where
from emulator.memory.globals import GlobalMemory
from emulator.watch import Finding
from emulator.watch.report import KEPT, Findings, PerProgram, element_text, lanes_text, nearest, tensor_text

AT = Where("k", (0, 0, 0), 0, 1, "st")


@pytest.mark.parametrize(
    ("lanes", "text"),
    [(1 << 7, "lane 7"), (0xFFFFFFFF, "lanes 0..31"), (0b111000, "lanes 3..5"), (0b1010001, "lanes 0, 4, 6")],
)
def test_lanes(lanes, text):
    assert lanes_text(lanes) == text


@pytest.mark.parametrize(
    ("shape", "strides", "byte", "text"),
    [
        ((4, 5), (), 4 * 13, "x[2, 3]"),
        ((4, 5), (), 4 * 20, "x[4, 0]"),
        ((4, 5), (), -4, "x[-1, 4]"),
        ((4, 5), (), 6, "x[0, 1] + 2 bytes"),
        ((5, 4), (4, 20), 4 * 13, "x[3, 2]"),
        ((3, 5), (28, 4), 28 + 20, "x[1, 4] + 4 bytes"),
        ((), (), 12, "x + 12 bytes"),
        ((7,), (), -12, "x - 12 bytes"),
    ],
)
def test_elements(shape, strides, byte, text):
    data = np.zeros(20, np.uint32)
    memory = GlobalMemory()
    span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 4 if strides else 80
    region = memory.register(data.ctypes.data, span, "x", True, shape, "uint32", 0, strides)
    assert element_text(region, region.address + byte) == text


def test_the_nearest_region():
    memory = GlobalMemory()
    a, b = memory.allocate(64, "a"), memory.allocate(64, "b")
    low, high = sorted((a, b), key=lambda r: r.address)
    assert nearest(memory.regions, low.address - 5) is low and nearest(memory.regions, high.end + 5) is high
    assert nearest(memory.regions, high.address) is high and nearest((), 5) is None


def test_tensor_memory():
    assert tensor_text(0, 5 << 16 | 300) == "tensor memory lane 5, column 300"
    assert tensor_text(1, 0) == "tensor memory lane 0, column 0 of CTA rank 1"


def test_findings_count_and_are_bounded():
    found = Findings()
    finding = Finding("memcheck", "race", AT, "x", "y")
    assert not found.count("a")
    found.add("a", finding)
    found.add("b", replace(finding, memory="z"))
    assert found.count("a")
    found.add("a", finding)
    assert [(f.memory, f.count) for f in found.listed()] == [("x", 3), ("z", 1)]
    for k in range(2 * KEPT):
        found.add(k, finding)
    assert len(found.listed()) == KEPT


def test_what_is_worked_out_for_a_program_is_kept_for_a_while():
    made = []
    known = PerProgram(lambda program: made.append(program) or len(made), kept=2)
    first, second, third = object(), object(), object()
    assert [known(first), known(second), known(first), known(third), known(second)] == [1, 2, 1, 3, 4]
