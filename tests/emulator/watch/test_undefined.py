"""Shadows of memory: what is undefined, and for how long."""

from __future__ import annotations

import numpy as np

from emulator.memory.globals import GlobalMemory
from emulator.watch.undefined import Bytes, GlobalShadows, Words


def test_bytes_are_undefined_until_defined():
    shadow = Bytes(64, 100)
    assert not shadow.clean(100, 101) and shadow.clean(100, 100)
    shadow.define(np.array([104, 108]), 4)
    assert shadow.clean(104, 112) and shadow.first(104, 120) == 112 and shadow.first(100, 120) == 100
    shadow.define(np.array([120, 128]), 2)
    assert shadow.get(np.array([118, 120, 126]), 4).tolist() == [[255, 255, 0, 0], [0, 0, 255, 255], [255, 255, 0, 0]]
    shadow.put(np.array([104]), 255, 2)
    assert shadow.first(104, 112) == 104 and shadow.clean(106, 112)


def test_defining_outside_is_left_to_the_machine():
    shadow = Bytes(16)
    shadow.define(np.array([12]), 8)
    shadow.define(np.array([-4]), 8)
    assert not shadow.clean(0, 4) and not shadow.clean(12, 16)


def test_words_by_tensor_address():
    words = Words()
    words.put(np.array([[3 << 16 | 7, 127 << 16 | 511]]), 0)
    assert words.get(np.array([3 << 16 | 7, 3 << 16 | 8, 127 << 16 | 511])).tolist() == [0, 255, 0]
    words.allocate(0, 32)
    assert words.get(np.array([3 << 16 | 7, 127 << 16 | 511])).tolist() == [255, 0]


def test_only_fresh_allocations_have_a_shadow():
    memory = GlobalMemory()
    fresh, filled = memory.allocate(64, "fresh"), memory.allocate(64, "filled", fill=0)
    written = memory.allocate(64, "written")
    written.views[4][3] = 7
    shadows = GlobalShadows()
    shadows.begin(memory)
    found = {r.name: shadows.find(r.address + 8) for r in (fresh, filled, written)}
    assert {name: at is not None and at[1] is not None for name, at in found.items()} == {
        "fresh": True, "filled": False, "written": False,
    }  # fmt: skip
    assert shadows.find(1) is None


def test_what_a_launch_has_written_stays_defined_for_the_next():
    memory = GlobalMemory()
    region = memory.allocate(64, "out")
    shadows = GlobalShadows()
    shadows.begin(memory)
    shadows.find(region.address)[1].fill(region.address, region.address + 16)
    region.views[4][:4] = 1
    again = GlobalMemory()
    again.register(region.address, 32, "part", poisoned=region.poisoned)
    shadows.begin(again)
    shadow = shadows.find(region.address)[1]
    assert shadow.clean(region.address, region.address + 16) and not shadow.clean(region.address, region.address + 20)


def test_regions_that_appear_while_a_kernel_runs():
    """Local memory is allocated with every CTA."""
    memory = GlobalMemory()
    shadows = GlobalShadows()
    shadows.begin(memory)
    frame = memory.allocate(64, "local memory of CTA (0, 0, 0)")
    assert shadows.find(frame.address)[1] is not None
    memory.unregister(frame)
    assert shadows.find(frame.address) is None
