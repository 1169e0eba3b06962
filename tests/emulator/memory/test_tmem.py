"""Tensor memory: the column allocator and its rules."""

import pytest

from emulator.errors import IllegalInstruction
from emulator.memory.tmem import TensorMemory, join_address, split_address


def test_addresses():
    assert split_address(0x00600010) == (96, 16) and join_address(96, 16) == 0x00600010


def test_poison():
    assert (TensorMemory().words == 0xFFFFFFFF).all() and TensorMemory().words.shape == (128, 512)


def test_first_fit_and_wait():
    memory = TensorMemory()
    assert [memory.alloc(n) for n in (128, 32, 256)] == [0, 128, 256]
    assert memory.alloc(128) is None
    assert memory.alloc(64) == 192
    memory.dealloc(0, 128)
    assert memory.alloc(128) == 0
    assert memory.allocations == {0: 128, 128: 32, 192: 64, 256: 256}


@pytest.mark.parametrize("columns", [0, 16, 33, 96, 1024, -32])
def test_sizes(columns):
    with pytest.raises(IllegalInstruction, match="allowed: 32, 64, 128, 256, 512"):
        TensorMemory().alloc(columns)


def test_dealloc_must_name_an_allocation():
    memory = TensorMemory()
    memory.alloc(64)
    for address, columns in ((0, 32), (32, 64), (1 << 16, 64)):
        with pytest.raises(IllegalInstruction, match=r"not an allocation; allocated: columns 0\.\.63"):
            memory.dealloc(address, columns)
    memory.dealloc(0, 64)
    with pytest.raises(IllegalInstruction, match="nothing is allocated"):
        memory.dealloc(0, 64)


def test_relinquish():
    memory = TensorMemory()
    memory.alloc(32)
    memory.relinquish()
    with pytest.raises(IllegalInstruction, match="relinquish"):
        memory.alloc(32)
    memory.dealloc(0, 32)


def test_check_columns():
    memory = TensorMemory()
    memory.alloc(64)
    memory.alloc(64)
    memory.check_columns(32, 96)
    memory.check_columns(0, 0)
    with pytest.raises(IllegalInstruction, match=r"tcgen05.ld of tensor memory columns 96\.\.159: not allocated"):
        memory.check_columns(96, 64, "tcgen05.ld")
    with pytest.raises(IllegalInstruction, match="the last column is 511"):
        memory.check_columns(500, 16)
    with pytest.raises(IllegalInstruction):
        memory.check_columns(-1, 1)
