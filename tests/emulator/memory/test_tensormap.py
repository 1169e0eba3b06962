"""Tensor maps against 444 that the CUDA driver wrote or refused on an H200."""

import json
from dataclasses import replace

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.memory import swizzle as sw
from emulator.memory.tensormap import ELEMENT_TYPES, TensorMap, driver_type, element_type, replace_field
from tests.emulator.units.goldens import data_file

ROWS = json.loads(data_file("tensormaps_h200.json").read_text())["rows"]
ACCEPTED = [r for r in ROWS if r["ok"]]


def of_row(row):
    return TensorMap(
        address=0x7F0000000000 + row["addr"],
        element=driver_type(row["dt"]),
        dims=tuple(row["dim"]),
        strides=tuple(row["stride"]),
        box=tuple(row["box"]),
        element_strides=tuple(row["es"]),
        interleave=row["il"],
        swizzle=row["sw"],
        nan_fill=bool(row["oob"]),
        l2=row["l2"],
    )


def test_every_accepted_map_encodes_to_the_driver_s_words():
    assert len(ACCEPTED) == 237
    for row in ACCEPTED:
        words = np.frombuffer(of_row(row).encode(), "<u4")
        assert [f"{w:08x}" for w in words[2:16]] == row["words"][2:], row
        assert not words[16:].any()
        assert int(words[0]) | int(words[1]) << 32 == 0x7F0000000000 + row["addr"]


def test_every_accepted_map_decodes_to_its_parameters():
    for row in ACCEPTED:
        words = np.array([0x1000, 2, *(int(w, 16) for w in row["words"][2:]), *[0xA5A5A5A5] * 16], "<u4")
        assert TensorMap.decode(words.tobytes()) == replace(of_row(row), address=0x200001000)


def test_problems_tell_what_the_driver_refused():
    told = 0
    for row in ROWS:
        # Rank 1 was refused throughout, and swizzles 4..7 have no field value here.
        if row["rank"] == 1 or row["sw"] > 3 or row["dt"] > 12:
            continue
        assert bool(of_row(row).problems()) != row["ok"], (row, of_row(row).problems())
        told += 1
    assert told == 358


def test_the_compiler_s_flags_survive():
    words = np.zeros(32, "<u4")
    words[2], words[8], words[9], words[13], words[14] = 0x00246312, 0x3FF, 0xFF, 0x3F000000, 7
    tmap = TensorMap.decode(words.tobytes())
    assert (tmap.element.name, tmap.swizzle, tmap.l2, tmap.dims, tmap.box) == ("f16", 3, 2, (1024, 256), (64, 8))
    assert tmap.flags == 0x200002 and tmap.encode() == words.tobytes()


@pytest.mark.parametrize(
    ("mode", "name", "pattern"),
    [
        (0x2C6392, "f32", sw.B128_ATOM32),
        (0x256392, "tf32", sw.B128),
        (0x246592, "b4x16", sw.B128),
        (0x246612, "b4x16_p64", sw.B128),
        (0x246692, "b6x16_p32", sw.B128),
        (0x346012, "u8", None),
        (0x3C6012, "u8", sw.B128_ATOM64),
    ],
)
def test_modes_that_only_the_compiler_writes(mode, name, pattern):
    words = np.zeros(32, "<u4")
    words[2] = mode
    tmap = TensorMap.decode(words.tobytes())
    assert tmap.element.name == name
    if pattern is None:
        with pytest.raises(IllegalInstruction, match="8B flip"):
            _ = tmap.pattern
    else:
        assert tmap.pattern == pattern


@pytest.mark.parametrize("mode", [0x50, 0xFFFFFFFF, 0x700, 0x10 | 3 << 11, 0x10 | 1 << 22, 0x11])
def test_garbage_is_no_tensor_map(mode):
    words = np.zeros(32, "<u4")
    words[2] = mode
    with pytest.raises(IllegalInstruction, match="not a tensor map"):
        TensorMap.decode(words.tobytes())


def test_decode_needs_the_whole_object():
    with pytest.raises(ValueError, match="32 bytes"):
        TensorMap.decode(bytes(32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": (257, 1)}, r"box\[0\]=257"),
        ({"strides": (24,)}, "multiple of 16"),
        ({"strides": ()}, r"len\(strides\)=0"),
        ({"element_strides": (1, 9)}, r"element_strides\[1\]=9"),
        ({"dims": (0, 4)}, r"dims\[0\]=0"),
        ({"swizzle": 4}, "swizzle=4"),
        ({"flags": 1}, "flags=0x1"),
    ],
)
def test_encode_names_what_does_not_fit(change, message):
    good = TensorMap(4096, element_type("f16"), (64, 4), (128,), (64, 4), (1, 1))
    good.encode()
    with pytest.raises(ValueError, match=message):
        replace(good, **change).encode()


def test_replace_every_field():
    tmap = TensorMap(4096, element_type("f16"), (64, 4, 2), (128, 512), (64, 4, 1), (1, 1, 1), flags=0x200002)
    assert tmap.replace("global_address", 0, 0x123456789AB0).address == 0x123456789AB0
    assert tmap.replace("global_dim", 1, 1000).dims == (64, 1000, 2)
    assert tmap.replace("global_stride", 1, 0xABCDEF0120).strides == (128, 0xABCDEF0120)
    assert tmap.replace("box_dim", 0, 256).box == (256, 4, 1)
    assert tmap.replace("box_dim", 2, 2).box == (64, 4, 2)
    assert tmap.replace("element_stride", 2, 8).element_strides == (1, 1, 8)
    assert tmap.replace("rank", 0, 1).rank == 2
    assert tmap.replace("swizzle_mode", 0, 3).swizzle == 3
    assert tmap.replace("swizzle_atomicity", 0, 1).atomicity == 1
    assert tmap.replace("interleave_layout", 0, 1).interleave == 1
    assert tmap.replace("fill_mode", 0, 1).nan_fill
    for kind in ELEMENT_TYPES:
        assert tmap.replace("elemtype", 0, kind.ptx).element is kind
    assert tmap.replace("global_dim", 0, 7).flags == 0x200002


def test_replace_works_on_an_object_that_is_not_yet_a_map():
    raw = bytes([0xFF] * 128)
    for field, ordinal, value in (("rank", 0, 0), ("elemtype", 0, 0), ("global_dim", 0, 5)):
        raw = replace_field(raw, field, ordinal, value)
    words = np.frombuffer(raw, "<u4")
    assert (int(words[2]) >> 4 & 7, int(words[2]) >> 7 & 15, int(words[8])) == (0, 0, 4)


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "message"),
    [
        ("rank", 0, 5, "value 5; allowed 0..4"),
        ("swizzle_mode", 0, 4, "value 4"),
        ("elemtype", 0, 16, "value 16"),
        ("global_stride", 0, 8, "multiple of 16"),
        ("global_stride", 4, 16, "ordinal 4"),
        ("box_dim", 0, 0, "value 0; allowed 1..256"),
        ("element_stride", 5, 1, "ordinal 5"),
        ("colour", 0, 1, "no such field"),
    ],
)
def test_replace_refuses(field, ordinal, value, message):
    with pytest.raises(IllegalInstruction, match=message):
        replace_field(bytes(128), field, ordinal, value)


def test_narrow_types():
    good = TensorMap(4096, element_type("b4x16_p64"), (256, 4), (128,), (128, 4), (1, 1), swizzle=3)
    assert good.problems() == []
    assert any("needs 128" in p for p in replace(good, box=(64, 4)).problems())
    assert any("multiple of 128" in p for p in replace(good, dims=(192, 4)).problems())
    assert any("multiple of 32" in p for p in replace(good, strides=(144,)).problems())
    assert any("even" in p for p in replace(good, element=element_type("b4x16"), dims=(31, 4)).problems())
    with pytest.raises(ValueError, match="element type 'e4m3'"):
        element_type("e4m3")
    with pytest.raises(ValueError, match="16"):
        driver_type(16)
