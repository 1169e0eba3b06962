"""Conversions against words captured on an H200, and the narrow formats against their definitions."""

import json
import math

import numpy as np
import pytest

from emulator.units.formats import FORMATS, decode, decode_table, encode
from tests.emulator.units.goldens import hopper

INDEX = json.loads(bytes(hopper("alu/index")))


def golden(op):
    """(input arrays, output words) of one captured instruction text."""
    for entry in INDEX:
        if op in entry["ops"]:
            out = hopper(entry["out"])
            words = out[:, entry["ops"].index(op)] if entry["op_axis"] == 1 else out[entry["ops"].index(op)]
            return [hopper(f"alu/in/{s}")[:: entry["step"]] for s in entry["src"]], words
    raise KeyError(op)


def options(op):
    return {"satfinite": "satfinite" in op, "relu": "relu" in op}


SCALAR = [
    op
    for entry in INDEX
    for op in entry["ops"]
    if op.startswith("cvt.") and entry["src"] == ["f32"]
    if op.split()[0].split(".")[-2] in ("f16", "bf16", "tf32") and ".sat." not in op and ".ftz" not in op
]


@pytest.mark.parametrize("op", SCALAR)
def test_from_f32(op):
    (source,), words = golden(op)
    name, rounding = op.split()[0].split(".")[-2], op.split(".")[1]
    got = encode(name, source.view(np.float32), rounding, **options(op))
    assert got.tolist() == words.tolist()


def test_all_scalar_forms_are_there():
    assert len(SCALAR) == 30 and "cvt.rna.satfinite.tf32.f32 {d},{a}" in SCALAR


@pytest.mark.parametrize("relu", ["", "relu."])
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_pairs_from_f32(name, relu):
    op = f"cvt.rn.{relu}satfinite.{name}x2.f32 {{d}},{{a}},{{b}}"
    (a, b), words = golden(op)
    high = encode(name, a.view(np.float32), satfinite=True, relu=bool(relu)).astype(np.uint16)
    low = encode(name, b.view(np.float32), satfinite=True, relu=bool(relu)).astype(np.uint16)
    assert (high << 8 | low).tolist() == words.tolist()


@pytest.mark.parametrize("relu", ["", "relu."])
@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_pairs_from_f16(name, relu):
    (pairs,), words = golden(f"cvt.rn.{relu}satfinite.{name}x2.f16x2 {{d}},{{a}}")
    halves = decode("f16", np.ascontiguousarray(pairs).view(np.uint16).reshape(-1, 2))
    codes = encode(name, halves, satfinite=True, relu=bool(relu))
    assert codes.view(np.uint16).ravel().tolist() == words.tolist()


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_to_f16(name):
    (pairs,), words = golden(f"cvt.rn.f16x2.{name}x2 {{d}},{{a}}")
    values = decode(name, np.ascontiguousarray(pairs).view(np.uint8).reshape(-1, 2))
    assert encode("f16", values).view(np.uint32).ravel().tolist() == words.tolist()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_decode_16_bit(name):
    (codes,), words = golden(f"cvt.f32.{name} {{d}},{{a}}")
    assert decode(name, codes).view(np.uint32).tolist() == words.tolist()


@pytest.mark.parametrize("name", [n for n in FORMATS if FORMATS[n].dtype is np.uint8])
def test_every_code_survives_a_round_trip(name):
    fmt = FORMATS[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    values = decode(name, codes)
    finite = np.isfinite(values)
    assert encode(name, values[finite]).tolist() == codes[finite].tolist()
    assert values[fmt.largest] == {"e4m3": 448, "e5m2": 57344, "e2m3": 7.5, "e3m2": 28, "e2m1": 6}[name]
    assert values[1] == 2.0 ** (1 - fmt.bias - fmt.mantissa)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_rounding_is_to_nearest_even_and_saturates(name):
    fmt = FORMATS[name]
    table = decode(name, np.arange(fmt.largest + 1, dtype=np.uint8)).astype(np.float64)
    middle = (table[1:] + table[:-1]) / 2
    lower = np.arange(fmt.largest)
    even = lower + (lower & 1)
    assert encode(name, middle.astype(np.float32)).tolist() == even.tolist()
    below, above = np.nextafter(middle.astype(np.float32), 0), np.nextafter(middle.astype(np.float32), 1e9)
    assert encode(name, below).tolist() == lower.tolist()
    assert encode(name, above).tolist() == (lower + 1).tolist()
    huge = np.array([1e30, -1e30, np.inf, -np.inf], np.float32)
    top, sign = fmt.largest, fmt.sign
    assert encode(name, huge, satfinite=True).tolist() == [top, top | sign, top, top | sign]
    assert encode(name, huge, satfinite=True, relu=True).tolist() == [top, 0, top, 0]
    assert encode(name, np.array([np.nan, -0.0], np.float32)).tolist() == [fmt.nan, sign]
    tiny = np.array([1e-40, -1e-40, 1e-45], np.float32)
    assert encode(name, tiny).tolist() == [0, sign, 0]


def test_e2m1_table():
    assert decode("e2m1", np.arange(16, dtype=np.uint8)).tolist() == [
        0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6,
    ]  # fmt: skip
    assert decode("e2m1", np.array([0xF7], np.uint8)).tolist() == [6]
    values = np.array([0.25, 0.75, 1.25, 2.5, 5.0, 0.2500001], np.float32)
    assert encode("e2m1", values).tolist() == [0, 2, 2, 4, 6, 1]


def test_scale_formats():
    table = decode_table("ue8m0")
    assert table[0] == 2.0**-127 and table[127] == 1 and table[254] == 2.0**127 and math.isnan(table[255])
    assert decode("ue4m3", np.array([0x38, 0xB8, 0x01, 0x7E], np.uint8)).tolist() == [1, 1, 2.0**-9, 448]
    assert math.isnan(decode("ue4m3", np.array([0xFF], np.uint8))[0])


def test_ue8m0_rounding():
    values = np.array([1, 1.5, 2, -3, 0, 2.0**-127, 2.0**-127 * 1.25, 1e-45, 3e38, np.inf, np.nan], np.float32)
    assert encode("ue8m0", values, "rz").tolist() == [127, 127, 128, 128, 0, 0, 0, 0, 254, 255, 255]
    assert encode("ue8m0", values, "rp").tolist() == [127, 128, 128, 129, 0, 0, 1, 0, 255, 255, 255]
    assert encode("ue8m0", values, "rp", satfinite=True).tolist() == [127, 128, 128, 129, 0, 0, 1, 0, 254, 254, 255]
    with pytest.raises(ValueError, match="rz, rp"):
        encode("ue8m0", values)


def test_unknown_names():
    with pytest.raises(ValueError, match="'e8m1'"):
        decode("e8m1", np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="'rna'"):
        encode("f16", np.zeros(1, np.float32), "rna")
    with pytest.raises(ValueError, match="'ue4m3'"):
        encode("ue4m3", np.zeros(1, np.float32))


def test_shapes_and_empties():
    assert encode("e4m3", np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert decode("f16", np.zeros((2, 0), np.uint16)).shape == (2, 0)
