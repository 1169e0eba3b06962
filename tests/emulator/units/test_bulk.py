"""Bulk copies and reductions between memories."""

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.globals import GlobalMemory
from emulator.memory.shared import SharedMemory
from emulator.units import bulk


def memories():
    gmem = GlobalMemory()
    region = gmem.allocate(64, "x")
    region.views[4][:] = np.arange(16)
    return gmem, region, SharedMemory(64), SharedMemory(64)


def test_round_trip():
    gmem, region, a, b = memories()
    bulk.load(gmem, region.address + 16, a, 32, 32)
    assert a.u32[8:].tolist() == list(range(4, 12)) and a.u32[0] == 0xFFFFFFFF
    bulk.peer(a, 32, b, 0, 32)
    bulk.store(b, 0, gmem, region.address, 16)
    assert region.views[4][:6].tolist() == [4, 5, 6, 7, 4, 5]


def test_reductions():
    gmem, region, a, _ = memories()
    a.u32[:] = 3
    bulk.reduce(a, 0, gmem, region.address, 32, "add", "u32")
    bulk.reduce(a, 0, gmem, region.address + 32, 16, "min", "s32")
    bulk.reduce(a, 0, gmem, region.address + 48, 16, "and", "b64")
    assert region.views[4].tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 3, 3, 3, 3, 0, 1, 2, 3]
    with pytest.raises(IllegalInstruction, match="reduction .inc on s32"):
        bulk.reduce(a, 0, gmem, region.address, 16, "inc", "s32")


@pytest.mark.parametrize(("offset", "nbytes", "message"), [(0, 8, "of 8 bytes"), (8, 16, "at 0x8"), (0, -16, "of -16")])
def test_alignment(offset, nbytes, message):
    gmem, region, a, b = memories()
    error = MemoryFault if offset else IllegalInstruction
    with pytest.raises(error, match=message):
        bulk.load(gmem, region.address, a, offset, nbytes)
    with pytest.raises(error, match=message):
        bulk.peer(a, offset, b, 0, nbytes)


def test_bounds():
    gmem, region, a, _ = memories()
    with pytest.raises(MemoryFault, match="past the end of x"):
        bulk.store(a, 0, gmem, region.address + 64, 16)
    with pytest.raises(MemoryFault, match="outside its 64 bytes"):
        bulk.load(gmem, region.address, a, 64, 16)
    bulk.load(gmem, region.address, a, 0, 0)
