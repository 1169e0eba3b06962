"""Modes read from printed layouts: plain, nested, swizzled, coordinates, tensor memory, extents of run time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernels.shared.modes import flat, memory, modes, size, split


def tensor(layout: str, space: str = "", width: int = 32) -> Any:
    element = type("Element", (), {"width": width})
    return SimpleNamespace(layout=layout, memspace=f"AddressSpace.{space}" if space else None, element_type=element)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("8", ["8"]),
        ("(8,4)", ["8", "4"]),
        ("((8,1),?{i64 div=8})", ["(8,1)", "?{i64 div=8}"]),
        ("(((64,128),1),?,2)", ["((64,128),1)", "?", "2"]),
        ("((8192,1))", ["(8192,1)"]),
        ("()", []),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    assert split(text) == parts


def test_flat_and_size() -> None:
    assert flat("(((64,128),1),?)") == ["64", "128", "1", "?"]
    assert (size("((64,128),1)"), size("(?,2)"), size("?{i64 div=8}"), size("1"), size("0")) == (8192, None, None, 1, 0)


@pytest.mark.parametrize(
    ("layout", "space", "meanings"),
    [
        ("(8,64):(64,1)", "gmem", ["steps of 64", "contiguous"]),
        ("128:1", "smem", ["contiguous"]),
        ("(?,?):(?{i64 div=8},1)", "gmem", ["steps set at run time, extent known at run time",
                                            "contiguous, extent known at run time"]),
        ("(4,8):(0,1)", "gmem", ["repeats one place", "contiguous"]),
        ("((4,8),1):((0,2),0)", "smem", ["steps of 2, repeats in part", "one"]),
        ("((8,2),4):((1,64),8)", "smem", ["contiguous in part", "steps of 8"]),
        ("S<3,4,3> o 0 o ((8,16),2):((64,512),1)", "", ["", "contiguous"]),
        ("(((64,128),1),1,?):(((1@0,1@1),0),0,128@1)", "", [
            "box of 64 in dimension 0 x 128 in dimension 1", "one",
            "dimension 1 in steps of 128, extent known at run time",
        ]),
        ("(3,?):(1@2,?{i64}@1@0)", "", ["dimension 2", "dimension 1@0 in steps of ?{i64}, extent known at run time"]),
        ("((128,128),1,2):((65536,1),0,128)", "tmem", ["128 lanes x 128 columns", "one", "2 places 128 columns apart"]),
        ("(((32,32),1),4):(((1,65536),0),32)", "tmem", ["32 lanes x 32 columns", "4 places 32 columns apart"]),
        ("128:65536", "tmem", ["128 lanes"]),
    ],
)  # fmt: skip
def test_meanings(layout: str, space: str, meanings: list[str]) -> None:
    assert [m.meaning for m in modes(tensor(layout, space))] == meanings


def test_narrow_values_in_tensor_memory_are_not_called_columns() -> None:
    assert [m.meaning for m in modes(tensor("(128,32):(65536,1)", "tmem", 16))] == ["128 lanes", "32 16-bit values"]


def test_labels_only_if_there_is_one_for_each() -> None:
    layout = tensor("(8,64):(64,1)", "gmem")
    assert [m.label for m in modes(layout, ["row", "column"])] == ["row", "column"]
    assert [m.label for m in modes(layout, ["row"])] == ["", ""]


def test_memory() -> None:
    assert memory(tensor("8:1", "tmem")) == "tmem"
    assert memory(tensor("(8,4):(1@0,1@1)")) == "coordinates"
    assert memory(SimpleNamespace(layout="(1,4):(0,2)", iterator="!cute_nvgpu.smem_desc")) == "descriptors"
    assert memory("(8,4):(4,1)") == ""

    class NoMemory:
        layout = "4:1@0"

        @property
        def memspace(self) -> str:
            raise ValueError("doesn't have memspace")

    assert memory(NoMemory()) == "coordinates"
