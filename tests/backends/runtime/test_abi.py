"""C structures read by address."""

from __future__ import annotations

import ctypes
import struct

import pytest

from backends.runtime import abi


def test_sizes_are_those_of_the_cuda_headers():
    assert ctypes.sizeof(abi.LaunchAttribute) == 72
    assert ctypes.sizeof(abi.LaunchConfig) == 56
    assert abi.LaunchConfig.shared_bytes.offset == 24 and abi.LaunchConfig.count.offset == 48


def config(attributes: list[tuple[int, tuple[int, ...]]]) -> tuple[abi.LaunchConfig, object]:
    records = (abi.LaunchAttribute * max(1, len(attributes)))()
    for record, (identity, values) in zip(records, attributes, strict=False):
        record.id = identity
        for i, value in enumerate(values):
            record.value[i] = value
    made = abi.LaunchConfig()
    made.grid[:], made.block[:] = (7, 5, 3), (128, 2, 1)
    made.shared_bytes, made.count = 232448, len(attributes)
    made.attributes = ctypes.addressof(records)
    return made, records


def test_a_launch_without_attributes():
    made, _keep = config([])
    assert abi.read_config(ctypes.addressof(made)) == abi.Shape((7, 5, 3), (128, 2, 1), (1, 1, 1), 232448)


def test_the_cluster_is_found_among_harmless_attributes():
    made, _keep = config([(6, (1,)), (4, (2, 1, 4)), (8, (0,))])
    assert abi.read_config(ctypes.addressof(made)).cluster == (2, 1, 4)


def test_an_unknown_attribute_is_refused():
    made, _keep = config([(99, (1,))])
    with pytest.raises(ValueError, match="launch attribute 99"):
        abi.read_config(ctypes.addressof(made))


def address(data: bytes) -> tuple[int, object]:
    buffer = ctypes.create_string_buffer(data, len(data))
    return ctypes.addressof(buffer), buffer


def test_images_end_where_their_headers_say():
    fatbin = struct.pack("<IHHQ", abi.FATBIN_MAGIC, 1, 16, 5) + b"hello"
    at, _keep = address(fatbin + b"beyond")
    assert abi.read_image(at) == fatbin
    wrapper, _also = address(struct.pack("<IIQQ", abi.FATBIN_WRAPPER_MAGIC, 1, at, 0))
    assert abi.read_image(wrapper) == fatbin

    elf = bytearray(b"\x7fELF" + bytes(196))
    struct.pack_into("<QQ", elf, 32, 64, 100)  # program headers at 64, section headers at 100
    struct.pack_into("<HHHH", elf, 54, 56, 1, 30, 3)  # one of 56 bytes, three of 30
    at, _keep = address(bytes(elf) + b"beyond")
    assert abi.read_image(at) == bytes(elf)[:190]


def test_an_unknown_image_is_refused():
    at, _keep = address(b"PTX!" + bytes(60))
    with pytest.raises(ValueError, match="device image of unknown kind: magic 0x21585450"):
        abi.read_image(at)
