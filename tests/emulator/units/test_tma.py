"""Tensor copies against 296 that ran on an H200, bit for bit, and their faults."""

import json
from dataclasses import replace

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.globals import GlobalMemory
from emulator.memory.im2col import Im2col
from emulator.memory.shared import SharedMemory
from emulator.memory.tensormap import TensorMap, element_type
from emulator.units import tma
from tests.emulator.units.goldens import hopper

CASES = json.loads(bytes(hopper("tma/cases")))
MODELLED = [c for c in CASES if "error" not in c and not c["interleave"]]
SHARED_BASE = 1024


def golden_map(case, address):
    return replace(TensorMap.decode(hopper("tma/desc")[case["row"]].tobytes()), address=address)


def described(case, address):
    """The map that the case's parameters describe."""
    return TensorMap(
        address=address,
        element=element_type(case["dtype"]),
        dims=tuple(case["dims"]),
        strides=tuple(case["strides"]),
        box=tuple(case["box"]),
        element_strides=tuple(case["estr"]),
        swizzle={0: 0, 32: 1, 64: 2, 128: 3}[case["swizzle"]],
        nan_fill=bool(case["nanfill"]),
        interleave=case["interleave"],
    )


def expected(case):
    return hopper("tma/blob")[case["pos"] : case["pos"] + case["len"]]


@pytest.mark.parametrize("case", [c for c in MODELLED if c["mode"] == "ld"], ids=lambda c: c["name"])
def test_load(case):
    source = hopper(f"tma/in/{case['smem_src']}").view(np.uint8)
    gmem = GlobalMemory()
    region = gmem.allocate(source.size, "source")
    region.views[1][:] = source
    tmap = golden_map(case, region.address + case["goff"])
    assert tmap == described(case, tmap.address)
    smem = SharedMemory(SHARED_BASE + case["len"])
    smem.u8[:] = 0xA5
    tma.check_load(tmap, case["coord"], SHARED_BASE)
    written = tma.place(tma.load_box(tmap, case["coord"], gmem), smem, SHARED_BASE)
    assert written.size * 16 == case["full_bytes"]
    assert smem.u8[SHARED_BASE : SHARED_BASE + case["len"]].tobytes() == expected(case).tobytes()
    assert hopper("tma/status")[case["row"]][4] == 1


@pytest.mark.parametrize("case", [c for c in MODELLED if c["mode"] != "ld"], ids=lambda c: c["name"])
def test_store_and_reduce(case):
    source = hopper(f"tma/in/{case['smem_src']}").view(np.uint8)
    smem = SharedMemory(SHARED_BASE + source.size)
    smem.u8[SHARED_BASE : SHARED_BASE + source.size] = source
    gmem = GlobalMemory()
    region = gmem.allocate(case["len"], "target", fill=case["gfill"])
    if case["init"]:
        init = hopper(f"tma/in/{case['init']}").view(np.uint8)
        region.views[1][:] = np.resize(init, case["len"])
    tmap = golden_map(case, region.address + case["goff"])
    assert tmap == described(case, tmap.address)
    if case["mode"] == "st":
        tma.store_box(tmap, case["coord"], smem, SHARED_BASE, gmem)
    else:
        tma.reduce_box(tmap, case["coord"], smem, SHARED_BASE, gmem, case["reduce"])
    assert region.views[1].tobytes() == expected(case).tobytes()


def test_case_counts():
    assert sum(c["mode"] != "red" for c in MODELLED) == 265 and sum(c["mode"] == "red" for c in MODELLED) == 31


@pytest.mark.parametrize("case", [c for c in CASES if "error" not in c], ids=lambda c: c["name"])
def test_complete_tx_counts_the_whole_box(case):
    if not case["interleave"]:
        assert tma.box_bytes(golden_map(case, 0)) == case["full_bytes"]


@pytest.mark.parametrize("case", [c for c in CASES if "error" in c], ids=lambda c: c["name"])
def test_maps_that_the_driver_refused(case):
    with pytest.raises(IllegalInstruction, match="bad tensor map"):
        tma.box_bytes(described(case, 4096))


def small_map(**change):
    """A 6 x 20 f16 tensor with row pitch 48 and a 2 x 16 box in its own memory."""
    gmem = GlobalMemory()
    region = gmem.allocate(6 * 48, "x")
    region.views[2][:] = np.arange(144)
    base = TensorMap(region.address, element_type("f16"), (20, 6), (48,), (16, 2), (1, 1))
    return replace(base, **change), gmem, region


@pytest.mark.parametrize("coords", [(1, 0), (-4, 0), (7, 1)])
def test_the_inner_coordinate_must_be_16_byte_aligned(coords):
    tmap, gmem, _ = small_map()
    with pytest.raises(IllegalInstruction, match=f"inner coordinate {coords[0]} of f16 is {coords[0] * 2} bytes"):
        tma.load_box(tmap, coords, gmem)
    with pytest.raises(IllegalInstruction, match="must be a multiple of 16 bytes"):
        tma.store_box(tmap, coords, SharedMemory(256), 0, gmem)


@pytest.mark.parametrize("coords", [(-8, 0), (0, -1)])
def test_stores_take_no_negative_coordinate(coords):
    tmap, gmem, _ = small_map()
    tma.load_box(tmap, coords, gmem)
    with pytest.raises(IllegalInstruction, match="tensor store at negative coordinates"):
        tma.store_box(tmap, coords, SharedMemory(256), 0, gmem)
    with pytest.raises(IllegalInstruction, match="tensor reduction at negative coordinates"):
        tma.reduce_box(tmap, coords, SharedMemory(256), 0, gmem, "add")


@pytest.mark.parametrize(
    ("kind", "op"),
    [("s64", "add"), ("f32", "min"), ("f64", "max"), ("s32", "inc"), ("f16", "xor"), ("u8", "add"), ("tf32", "add")],
)
def test_reductions_that_fault(kind, op):
    tmap, gmem, _ = small_map(element=element_type(kind))
    with pytest.raises(IllegalInstruction, match=rf"reduction \.{op} on {kind}"):
        tma.reduce_box(tmap, (0, 0), SharedMemory(256), 0, gmem, op)


def test_wrong_number_of_coordinates_and_misaligned_shared_address():
    tmap, gmem, _ = small_map()
    with pytest.raises(IllegalInstruction, match="3 coordinates for a rank-2"):
        tma.load_box(tmap, (0, 0, 0), gmem)
    box = tma.load_box(tmap, (0, 0), gmem)
    with pytest.raises(MemoryFault, match="multiple of 128"):
        tma.place(box, SharedMemory(256), 64)
    with pytest.raises(MemoryFault, match="outside its 96 bytes"):
        tma.place(box, SharedMemory(96), 128)


def test_interleaved_maps_that_are_refused():
    tmap, gmem, _ = small_map(interleave=1)
    with pytest.raises(IllegalInstruction, match="interleave needs rank 3 or more"):
        tma.load_box(tmap, (0, 0), gmem)
    strided = replace(tmap, dims=(4, 2, 2), strides=(64, 128), box=(16, 1, 1), element_strides=(2, 1, 1))
    with pytest.raises(IllegalInstruction, match="inner element stride are not modelled"):
        tma.load_box(strided, (0, 0, 0), gmem)


def pixels(lower=(-1, -1), upper=(-1, -1), steps=(1, 1, 1, 1), count=12):
    """8 channels of 16 bits, images of 4 x 3, two of them."""
    gmem = GlobalMemory()
    region = gmem.allocate(8 * 4 * 3 * 2 * 2, "images")
    region.views[2][:] = np.arange(1, 193)
    boxed = Im2col(lower, upper, count)
    box = (8, 1, 1, 1)
    kind = element_type("u16")
    return TensorMap(region.address, kind, (8, 4, 3, 2), (16, 64, 192), box, steps, im2col=boxed), gmem


def first_elements(tmap, gmem, coords, offsets):
    box = tma.load_im2col(tmap, coords, offsets, gmem)
    return box.data.view(np.uint16)[:, 0].tolist()


def test_im2col_runs_through_the_box_and_the_images():
    # The box of a 3 x 3 filter with a border of one begins at -1 and has 3 x 2... pixels less the border behind.
    tmap, gmem = pixels()
    assert first_elements(tmap, gmem, (0, -1, -1, 0), (1, 1))[:4] == [1, 9, 17, 25]
    assert first_elements(tmap, gmem, (0, -1, -1, 0), (0, 0)) == [0, 0, 0, 0, 0, 1, 9, 17, 0, 33, 41, 49]
    assert first_elements(tmap, gmem, (0, 2, 1, 1), (0, 0)) == [145] + [0] * 11
    with pytest.raises(IllegalInstruction, match="coordinate 3 of dimension 1 is outside the bounding box, -1..2"):
        tma.load_im2col(tmap, (0, 3, 0, 0), (0, 0), gmem)
    with pytest.raises(IllegalInstruction, match=r"offsets \(256, 0\); at most 255"):
        tma.load_im2col(tmap, (0, 0, 0, 0), (256, 0), gmem)
    with pytest.raises(IllegalInstruction, match="tile mode with a tensor map of im2col"):
        tma.check_load(tmap, (0, 0, 0, 0), 0)
    with pytest.raises(IllegalInstruction, match="must lie inside the tensor"):
        tma.check_store_im2col(tmap, (0, 0, 0, 0), 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lower": (3, 0), "upper": (-1, 0)}, "bounding box of dimension 1 is empty: from 3 to 2"),
        ({"count": 1025}, "1025 pixels; allowed 1..1024"),
        ({"count": 0}, "0 pixels"),
    ],
)
def test_im2col_maps_that_the_driver_refuses(changes, message):
    tmap, gmem = pixels(**changes)
    with pytest.raises(IllegalInstruction, match=message):
        tma.load_im2col(tmap, (0, 3, 0, 0), (0, 0), gmem)


def test_a_map_over_unregistered_memory_faults():
    tmap, gmem, region = small_map()
    with pytest.raises(MemoryFault, match="past the end of x"):
        tma.load_box(replace(tmap, dims=(20, 9)), (0, 5), gmem)
    with pytest.raises(MemoryFault, match="tensor load"):
        tma.load_box(tmap.with_address(4096), (0, 0), gmem)
    gmem.unregister(region)
    gmem.register(region.address, region.nbytes, "x", writable=False)
    with pytest.raises(MemoryFault, match="read-only x"):
        tma.store_box(tmap, (0, 0), SharedMemory(256), 0, gmem)


def test_a_box_wholly_outside_touches_nothing():
    tmap, gmem, region = small_map()
    assert not tma.load_box(tmap, (0, 6), gmem).data.any() and not tma.load_box(tmap, (24, 0), gmem).data.any()
    before = region.views[1].copy()
    tma.store_box(tmap, (0, 6), SharedMemory(256), 0, gmem)
    tma.store_box(tmap, (24, 0), SharedMemory(256), 0, gmem)
    assert (region.views[1] == before).all()


def test_gather4_and_scatter4():
    tmap, gmem, region = small_map(box=(16, 1))
    box = tma.load_gather4(tmap, (0, 5, 1, -1, 0), gmem)
    assert box.data.view(np.uint16)[:, 0].tolist() == [120, 24, 0, 0] and not box.data[2].any()
    smem = SharedMemory(128)
    tma.place(box, smem, 0)
    tma.store_scatter4(tmap, (0, 2, 3, 6, 4), smem, 0, gmem)
    assert region.views[2][48:64].tolist() == list(range(120, 136))
    assert region.views[2][72:88].tolist() == list(range(24, 40))
    assert region.views[2][96:112].tolist() == list(range(16))
    with pytest.raises(IllegalInstruction, match="box of one row"):
        tma.load_gather4(replace(tmap, box=(16, 2)), (0, 0, 0, 0, 0), gmem)
    with pytest.raises(IllegalInstruction, match="negative"):
        tma.store_scatter4(tmap, (0, -1, 0, 0, 0), smem, 0, gmem)


def test_packed_and_padded_fp4():
    gmem = GlobalMemory()
    region = gmem.allocate(2 * 64, "fp4")
    region.views[1][:] = np.arange(128)
    packed = TensorMap(region.address, element_type("b4x16"), (128, 2), (64,), (128, 2), (1, 1))
    assert tma.box_bytes(packed) == 128
    assert tma.load_box(packed, (0, 0), gmem).data.tobytes() == bytes(range(128))
    padded = replace(packed, element=element_type("b4x16_p64"), swizzle=3)
    assert tma.box_bytes(padded) == 128
    data = tma.load_box(padded, (0, 0), gmem).data
    assert data.shape == (2, 128)
    assert data[0, :24].tolist() == [*range(8), *[255] * 8, *range(8, 16)]
    smem = SharedMemory(256)
    tma.place(tma.load_box(padded, (0, 0), gmem), smem, 0)
    assert smem.u8[128 + 16 : 128 + 24].tolist() == list(range(64, 72))
    with pytest.raises(IllegalInstruction, match="multiple of 64 bytes"):
        tma.load_box(padded, (32, 0), gmem)
    with pytest.raises(IllegalInstruction, match="store with element type b4x16_p64"):
        tma.store_box(padded, (0, 0), smem, 0, gmem)


def test_padded_fp6():
    gmem = GlobalMemory()
    region = gmem.allocate(96, "fp6")
    region.views[1][:] = np.arange(96)
    tmap = TensorMap(region.address, element_type("b6x16_p32"), (128, 1), (96,), (128, 1), (1, 1))
    assert tma.box_bytes(tmap) == 96
    data = tma.load_box(tmap, (0, 0), gmem).data[0]
    assert data[:16].tolist() == [*range(12), *[255] * 4] and data[16] == 12


def test_checks_at_issue():
    tmap, _, _ = small_map()
    tma.check_load(tmap, (-8, -1), 128)
    tma.check_store(tmap, (8, 9), 128, "add")
    for wrong in (lambda: tma.check_load(tmap, (4, 0), 0), lambda: tma.check_load(tmap, (0,), 0)):
        with pytest.raises(IllegalInstruction):
            wrong()
    for wrong in (lambda: tma.check_load(tmap, (0, 0), 16), lambda: tma.check_store(tmap, (0, 0), 64)):
        with pytest.raises(MemoryFault, match="multiple of 128"):
            wrong()
    for coords, op in (((0, -1), None), ((4, 0), None), ((0, 0), "inc")):
        with pytest.raises(IllegalInstruction):
            tma.check_store(tmap, coords, 0, op)
