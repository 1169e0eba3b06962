"""The C structures that cross the boundary, read and written by address."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

FATBIN_MAGIC = 0xBA55ED50
FATBIN_WRAPPER_MAGIC = 0x466243B1
ELF_MAGIC = 0x464C457F

ATTRIBUTE_CLUSTER = 4
# cudaLaunchAttributeID: those that steer scheduling, caching or priority and can't change a result.
HARMLESS_ATTRIBUTES = {
    0: "ignore",
    1: "access policy window",
    2: "cooperative",
    3: "synchronization policy",
    5: "cluster scheduling policy",
    6: "programmatic stream serialization",
    7: "programmatic event",
    8: "priority",
    9: "memory synchronization domain map",
    10: "memory synchronization domain",
    11: "preferred cluster dimension",
    12: "launch completion event",
    13: "device updatable kernel node",
    14: "preferred shared memory carveout",
    16: "NVLink utilization-centric scheduling",
}


class LaunchAttribute(ctypes.Structure):
    """cudaLaunchAttribute: 72 bytes."""

    _fields_ = [("id", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_uint32 * 16)]


class LaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Shape:
    """The configuration of one launch; x, y, z each. `shared_bytes` is the dynamic shared memory of a CTA."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int


def triple(values: ctypes.Array[ctypes.c_uint32]) -> tuple[int, int, int]:
    """The first three of an array."""
    return int(values[0]), int(values[1]), int(values[2])


def read_config(address: int) -> Shape:
    """The launch configuration at `address`. Raises ValueError for an attribute that could change a result and isn't
    known."""
    config = LaunchConfig.from_address(address)
    cluster = (1, 1, 1)
    attributes = (LaunchAttribute * config.count).from_address(config.attributes) if config.count else ()
    for attribute in attributes:
        if attribute.id == ATTRIBUTE_CLUSTER:
            cluster = triple(attribute.value)
        elif attribute.id not in HARMLESS_ATTRIBUTES:
            raise ValueError(f"launch attribute {attribute.id} is not known to the emulated driver")
    return Shape(triple(config.grid), triple(config.block), cluster, int(config.shared_bytes))


def read_image(address: int) -> bytes:
    """The bytes of the device image at `address`: a fatbin (its header says how long), the wrapper around one, or an
    ELF."""
    magic = ctypes.c_uint32.from_address(address).value
    if magic == FATBIN_WRAPPER_MAGIC:
        return read_image(ctypes.c_uint64.from_address(address + 8).value)
    if magic == FATBIN_MAGIC:
        header = ctypes.c_uint16.from_address(address + 6).value
        return ctypes.string_at(address, header + ctypes.c_uint64.from_address(address + 8).value)
    if magic == ELF_MAGIC:
        return ctypes.string_at(address, _elf_size(address))
    raise ValueError(f"device image of unknown kind: magic {magic:#010x}")


def _elf_size(address: int) -> int:
    """The end of the section or program header table, whichever is later: both lie behind the contents."""
    tables = ((32, 54, 56), (40, 58, 60))
    ends = []
    for offset_at, size_at, count_at in tables:
        offset = ctypes.c_uint64.from_address(address + offset_at).value
        size = ctypes.c_uint16.from_address(address + size_at).value
        ends.append(offset + size * ctypes.c_uint16.from_address(address + count_at).value)
    return max(ends)
