"""Registered regions: values in place, and faults that say what was missed by how much."""

import numpy as np
import pytest

from emulator.errors import MemoryFault
from emulator.memory.globals import GlobalMemory


def registered(array, name="x", **kwargs):
    memory = GlobalMemory()
    memory.register(array.ctypes.data, array.nbytes, name, shape=array.shape, dtype=str(array.dtype), **kwargs)
    return memory, array.ctypes.data


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_load_and_store_every_width(dtype):
    array = np.arange(64, dtype=dtype)
    memory, base = registered(array)
    width = array.itemsize
    addresses = base + np.arange(63, 31, -1) * width
    assert memory.load(addresses, width).tolist() == list(range(63, 31, -1))
    memory.store(addresses.astype(np.uint64), np.full(32, 7, dtype))
    assert array[32:].tolist() == [7] * 32 and array[:32].tolist() == list(range(32))


def test_vector_forms():
    array = np.arange(64, dtype=np.uint32)
    memory, base = registered(array)
    got = memory.load_vector(base + np.array([0, 16, 240]), 4, 4)
    assert got.tolist() == [[0, 4, 60], [1, 5, 61], [2, 6, 62], [3, 7, 63]]
    memory.store_vector(base + np.array([16]), np.array([[9], [8]], np.uint32))
    assert array[4:6].tolist() == [9, 8]
    with pytest.raises(MemoryFault, match="multiple of 16"):
        memory.load_vector(base + np.array([8]), 4, 4)


def test_lanes_may_reach_several_regions():
    a, b = np.arange(4, dtype=np.uint32), np.arange(10, 14, dtype=np.uint32)
    memory = GlobalMemory()
    for name, array in (("a", a), ("b", b)):
        memory.register(array.ctypes.data, array.nbytes, name)
    addresses = np.array([a.ctypes.data, b.ctypes.data + 4], np.int64)
    assert memory.load(addresses, 4).tolist() == [0, 11]
    memory.store(addresses, np.array([5, 6], np.uint32))
    assert (a[0], b[1]) == (5, 6)


def test_no_lanes_no_access():
    memory = GlobalMemory()
    assert memory.load(np.empty(0, np.int64), 4).shape == (0,)
    memory.store(np.empty(0, np.int64), np.empty(0, np.uint32))


def test_past_the_end_names_tensor_lane_and_distance():
    array = np.zeros((4, 8), np.float32)
    memory, base = registered(array, "scores")
    addresses = base + np.array([0, 124, 128, 132])
    with pytest.raises(MemoryFault) as caught:
        memory.load(addresses, 4, lanes=np.array([0, 5, 9, 11]))
    text = str(caught.value)
    assert f"read of 4 bytes at {base + 128:#x} by lane 9 and 1 more (9, 11)" in text
    assert "0 bytes past the end of scores (float32 [4, 8])" in text and f"{base:#x}..{base + 128:#x}" in text


def test_before_the_start_and_across_the_end():
    array = np.zeros(30, np.uint8)
    memory, base = registered(array)
    with pytest.raises(MemoryFault, match="16 bytes before the start of x"):
        memory.view(base - 16, 4)
    with pytest.raises(MemoryFault, match="its last 2 bytes are past the end of x"):
        memory.view(base + 28, 4)
    with pytest.raises(MemoryFault, match="its first 1 bytes are before the start"):
        memory.view(base - 1, 4)


def test_an_element_across_the_end_of_an_odd_sized_region():
    array = np.zeros(30, np.uint8)
    memory, base = registered(array)
    with pytest.raises(MemoryFault, match="its last 2 bytes"):
        memory.load(np.array([base + 28]), 4)
    assert memory.load(np.array([base + 28]), 2).tolist() == [0]


def test_misaligned_is_its_own_message():
    memory, base = registered(np.zeros(8, np.uint32))
    with pytest.raises(MemoryFault, match=r"misaligned: the address must be a multiple of 4"):
        memory.load(np.array([base, base + 2]), 4)


def test_read_only():
    memory, base = registered(np.zeros(8, np.uint32), "weights", writable=False)
    assert memory.load(np.array([base]), 4).tolist() == [0]
    with pytest.raises(MemoryFault, match="read-only weights"):
        memory.store(np.array([base]), np.array([1], np.uint32))
    with pytest.raises(MemoryFault, match="read-only weights"):
        memory.view(base, 4, write=True)


@pytest.mark.parametrize("address", [0, 8, (1 << 63) + 64])
def test_wild_addresses_are_never_followed(address):
    memory, _ = registered(np.zeros(8, np.uint32))
    with pytest.raises(MemoryFault, match="outside every registered tensor"):
        memory.load(np.array([address], np.uint64), 4)
    with pytest.raises(MemoryFault):
        memory.store(np.array([address], np.uint64), np.zeros(1, np.uint32))


def test_nothing_registered():
    with pytest.raises(MemoryFault, match="none is registered"):
        GlobalMemory().load(np.array([64]), 4)


def test_a_slice_that_starts_between_elements():
    backing = np.arange(64, dtype=np.uint8)
    memory = GlobalMemory()
    memory.register(backing.ctypes.data + 3, 21, "slice")
    first = -(-(backing.ctypes.data + 3) // 8) * 8
    assert memory.load(np.array([first]), 8)[0] == backing[first - backing.ctypes.data :][:8].view(np.uint64)[0]
    with pytest.raises(MemoryFault):
        memory.load(np.array([first - 8]), 8)


def test_overlapping_regions_and_unregister():
    array = np.arange(64, dtype=np.uint32)
    memory = GlobalMemory()
    whole = memory.register(array.ctypes.data, 256, "whole")
    part = memory.register(array.ctypes.data + 16, 16, "part")
    assert memory.load(array.ctypes.data + np.array([200]), 4).tolist() == [50]
    memory.unregister(whole)
    with pytest.raises(MemoryFault, match="168 bytes past the end of part"):
        memory.load(array.ctypes.data + np.array([200]), 4)
    memory.unregister(part)
    assert memory.regions == ()
    with pytest.raises(ValueError, match="not registered"):
        memory.unregister(part)


def test_allocate_is_aligned_and_poisoned():
    memory = GlobalMemory()
    region = memory.allocate(100, "parameters")
    assert region.address % 256 == 0 and region.nbytes == 100
    assert memory.view(region.address, 100).tolist() == [0xFF] * 100
    with pytest.raises(MemoryFault, match="1 bytes are past the end of parameters"):
        memory.view(region.address + 97, 4)


def test_empty_tensor_registers_and_holds_nothing():
    memory = GlobalMemory()
    memory.register(0, 0, "empty")
    with pytest.raises(MemoryFault):
        memory.view(0, 1)
    with pytest.raises(ValueError, match="nbytes=-1"):
        memory.register(4096, -1, "negative")


def test_the_last_lane_wins():
    array = np.zeros(4, np.uint32)
    memory, base = registered(array)
    memory.store(np.full(3, base), np.array([1, 2, 3], np.uint32))
    assert array[0] == 3
