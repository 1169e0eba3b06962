"""The probe kernels of tensor loads, stores and reductions: 302 ran on an H200, with the tensor maps of its driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.errors import IllegalInstruction
from emulator.memory.globals import GlobalMemory, Region
from tests.emulator.goldens.probe import POLICIES, Out, launches, member, run, table, u32

CASES = {c["name"]: c for c in table("tma/cases")}
BEYOND = {"ld_3d_u16_il16", "ld_3d_u16_il32", "ld_5d_il16", "st_3d_u16_il32", "st_5d_il16"}
"""Exceptions: interleaved maps whose slices reach beyond the captured buffer, so nobody knows what was read there, and
whose byte counts the capture guessed wrong. tests/emulator/hw has interleaved copies that stay inside."""

RAN = [n for n, c in CASES.items() if "error" not in c and n not in BEYOND]


def tensor_map(case: dict[str, Any], region: Region) -> bytes:
    """The driver's 128 bytes over this region."""
    words = member("tma/desc")[case["row"]].copy()
    address = region.address + case["goff"]
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    return words.tobytes()


def start(name: str, change: dict[int, int] | None = None) -> tuple[list[np.ndarray], Region]:
    """Run one case; `change` replaces coordinates."""
    case, (kernel, grid, block, arguments) = CASES[name], launches("tma")[name]
    memory = GlobalMemory()
    if case["mode"] == "ld":
        source = member(f"tma/in/{case['smem_src']}").view(np.uint8)
        tensor = memory.allocate(source.size, "tensor")
        tensor.views[1][:] = source
    else:
        tensor = memory.allocate(case["len"], "tensor", fill=case["gfill"])
        if case["init"]:
            tensor.views[1][:] = np.resize(member(f"tma/in/{case['init']}").view(np.uint8), case["len"])
    given: list[Any] = []
    for argument in arguments:
        if "tmap" in argument:
            given.append(tensor_map(case, tensor))
        elif "out" in argument:
            given.append(Out(argument["n"]))
        elif "in" in argument:
            given.append(member(f"tma/in/{argument['in']}"))
        else:
            given.append(u32(argument["u32"]))
    for place, value in (change or {}).items():
        given[2 + place] = u32(value)
    policy = POLICIES[list(CASES).index(name) % 3]
    return run("tma", kernel, grid, block, given, memory, policy=policy, seed=2), tensor


@pytest.mark.parametrize("name", [n for n in RAN if CASES[n]["mode"] == "ld"])
def test_loads(name: str) -> None:
    """The shared image, swizzled, clipped and filled; the wait ends with the full box's bytes."""
    case = CASES[name]
    (image, status), _ = start(name)
    want = member("tma/blob")[case["pos"] : case["pos"] + case["len"]]
    assert (image == want).all()
    words = status.view(np.uint64)
    # the barrier's live word cannot be read (0, 1, 3); the token is what it was before the arrive, in its upper half
    assert words[2] >> np.uint64(32) == member("tma/status")[case["row"]][2] >> np.uint64(32)
    assert words[4] == member("tma/status")[case["row"]][4] == 1


@pytest.mark.parametrize("name", [n for n in RAN if CASES[n]["mode"] != "ld"])
def test_stores_and_reductions(name: str) -> None:
    case = CASES[name]
    _, tensor = start(name)
    assert (tensor.views[1] == member("tma/blob")[case["pos"] : case["pos"] + case["len"]]).all()


def test_nothing_is_left_out() -> None:
    refused = [n for n, c in CASES.items() if "error" in c]
    assert (len(RAN), len(BEYOND), len(refused), len(CASES)) == (297, 5, 8, 310)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ld_2d_u16_sw0_in", {0: 4}, "inner coordinate 4 of u16 is 8 bytes; it must be a multiple of 16"),
        ("ld_2d_u16_sw0_in", {0: -4}, "inner coordinate -4 of u16 is -8 bytes"),
        ("st_2d_u8_sw0_in", {0: 8}, "inner coordinate 8 of u8 is 8 bytes"),
        ("st_2d_u8_sw0_in", {0: -16}, r"tensor store at negative coordinates \(-16, 3\)"),
        ("st_2d_u8_sw0_in", {1: -1}, r"tensor store at negative coordinates \(16, -1\)"),
        ("red_add_u32", {1: -1}, "tensor reduction at negative coordinates"),
    ],
)
def test_what_the_hardware_faulted_on(name: str, change: dict[int, int], message: str) -> None:
    """CUDA error 715, illegal instruction: here with the instruction's place."""
    with pytest.raises(IllegalInstruction, match=message) as fault:
        start(name, change)
    assert "PTX line" in str(fault.value) and "async.bulk.tensor" in str(fault.value)


@pytest.mark.parametrize(
    ("kind", "op"), [("s64", "add"), ("f32", "min"), ("f64", "max"), ("s32", "inc"), ("f16", "xor")]
)
def test_reductions_that_the_hardware_does_not_have(kind: str, op: str) -> None:
    """The store kernel of a reduction over a map of another type."""
    name = next(n for n, c in CASES.items() if c["mode"] == "red" and c["reduce"] == op)
    words = {"s32": 3, "s64": 5, "f16": 6, "f32": 7, "f64": 9}
    memory = GlobalMemory()
    tensor = memory.allocate(4096, "tensor", fill=0)
    raw = np.frombuffer(tensor_map({**CASES[name], "goff": 0}, tensor), "<u4").copy()
    raw[2] = raw[2] & ~np.uint32(0x780) | np.uint32(words[kind] << 7)
    arguments = [raw.tobytes(), member("tma/in/sinit"), *(u32(0) for _ in range(5)), u32(1152)]
    with pytest.raises(IllegalInstruction, match=rf"reduction \.{op} on {kind} elements: the hardware faults"):
        run("tma", launches("tma")[name][0], 1, 32, arguments, memory)
