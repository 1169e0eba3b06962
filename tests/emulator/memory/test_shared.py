"""Shared memory: poison, widths, bounds and alignment."""

import numpy as np
import pytest

from emulator.errors import MemoryFault
from emulator.memory.shared import SharedMemory, cluster_address, split_address


def test_addresses():
    assert cluster_address(3, 0x400) == 0x03000400
    assert split_address(0x03000400) == (3, 0x400)
    assert split_address(0x0FFFFFFF) == (15, 0xFFFFFF)


def test_fresh_memory_is_poison():
    memory = SharedMemory(100)
    assert set(memory.u8.tolist()) == {0xFF} and memory.u8.size == 112
    assert memory.u128.ctypes.data % 16 == 0


def test_widths_share_bytes():
    memory = SharedMemory(64)
    memory.store(np.array([0, 4]), np.array([0x03020100, 0x07060504], np.uint32))
    assert memory.load(np.array([0]), 8).tolist() == [0x0706050403020100]
    assert memory.load(np.array([2, 6], np.uint32), 2).tolist() == [0x0302, 0x0706]
    memory.store(np.array([1]), np.array([-1], np.int8))
    assert memory.u8[:3].tolist() == [0, 255, 2]


def test_vectors():
    memory = SharedMemory(64)
    memory.store_vector(np.array([0, 32]), np.arange(8, dtype=np.uint32).reshape(4, 2))
    assert memory.u32[:4].tolist() == [0, 2, 4, 6] and memory.u32[8:12].tolist() == [1, 3, 5, 7]
    assert memory.load_vector(np.array([32, 0]), 4, 4).tolist() == [[1, 0], [3, 2], [5, 4], [7, 6]]
    with pytest.raises(MemoryFault, match="multiple of 16"):
        memory.load_vector(np.array([8]), 4, 4)


@pytest.mark.parametrize("offset", [61, 64, 1 << 23])
def test_outside(offset):
    memory = SharedMemory(62)
    with pytest.raises(MemoryFault, match=r"outside its 62 bytes"):
        memory.load(np.array([0, offset]), 1) if offset > 61 else memory.load(np.array([60]), 4)


def test_negative_and_misaligned():
    memory = SharedMemory(64, "CTA 1 shared memory")
    with pytest.raises(MemoryFault, match=r"read of 4 bytes at CTA 1 shared memory offset -0x4 by lane 7"):
        memory.load(np.array([0, -4]), 4, lanes=np.array([6, 7]))
    with pytest.raises(MemoryFault, match=r"misaligned: the offset must be a multiple of 4"):
        memory.store(np.array([2]), np.zeros(1, np.uint32))


def test_ranges():
    memory = SharedMemory(64)
    memory.bytes(48, 16)[:] = 1
    assert memory.u8[48:].sum() == 16
    with pytest.raises(MemoryFault, match="copy of 17 bytes"):
        memory.bytes(48, 17, "copy")
    with pytest.raises(MemoryFault):
        memory.bytes(-1, 4)
    with pytest.raises(ValueError, match="nbytes=-1"):
        SharedMemory(-1)


def test_no_lanes():
    assert SharedMemory(16).load(np.empty(0, np.int64), 4).size == 0
