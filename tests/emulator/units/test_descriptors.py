"""Matrix descriptors against 296 element maps captured on an H200, and the tcgen05 forms against CuTe layouts."""

import json

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, MemoryFault
from emulator.memory.shared import SharedMemory
from emulator.units.descriptors import MatrixDescriptor, operand
from tests.emulator.units.goldens import hopper

CASES = json.loads(bytes(hopper("wgmma_map/cases")))
BITS = {"f16": 16, "tf32": 32, "u8": 8}
COLS = CASES["cols"]


def word_of(start, lbo, sbo, base=0, wgmma=0, layout=0, version=0):
    return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | version << 46 | base << 49 | layout << 61 | wgmma << 62


def blackwell(start, lbo, sbo, layout, base=0):
    return word_of(start, lbo, sbo, base, layout=layout, version=1)


@pytest.mark.parametrize("kind", BITS)
def test_hardware_element_maps(kind):
    maps, seen = hopper(f"wgmma_map/{kind}"), 0
    for values in CASES["rows"]:
        case = dict(zip(COLS, values, strict=True))
        if case["type"] != kind:
            continue
        word = word_of(
            case["start_byte"], case["lbo_byte"], case["sbo_byte"], case["base_offset"], wgmma=case["layout_code"]
        )
        rows, k = maps.shape[1:]
        found = operand(word, rows, k, BITS[kind], bool(case["mn_major"]), False)
        assert (found.addresses() * 8 // BITS[kind] == maps[case["row"]]).all(), case["name"]
        # The same map at another 1024-aligned place, read through memory.
        smem = SharedMemory(1 << 17)
        image = np.random.default_rng(0).integers(0, 256, 16384, dtype=np.uint8)
        smem.u8[65536 : 65536 + 16384] = image
        moved = operand(word + (65536 >> 4), rows, k, BITS[kind], bool(case["mn_major"]), False)
        raw = moved.read(smem)
        assert raw.shape == (rows, k)
        assert (raw == image.view(raw.dtype)[maps[case["row"]]]).all()
        seen += 1
    assert seen == {"f16": 148, "tf32": 74, "u8": 74}[kind]


def test_tcgen05_layout_codes_mean_the_same_patterns():
    for hopper_code, code in ((0, 0), (1, 2), (2, 4), (3, 6)):
        for mn_major in (False, True):
            a = operand(word_of(512, 2048, 1024, wgmma=hopper_code), 64, 16, 16, mn_major, False)
            b = operand(blackwell(512, 2048, 1024, code), 64, 16, 16, mn_major, True)
            assert (a.granules == b.granules).all()


def test_128_byte_swizzle_with_32_byte_atoms():
    """CuTe: Swizzle<2,5,2> o ((T,8,m),(4,k)):((1,T,LBO),(8T,SBO)) for tf32, MN-major."""
    found = operand(blackwell(1024, 4096, 512, 1), 64, 8, 32, True, True)
    at = found.addresses()
    for row, k in ((0, 0), (5, 1), (31, 3), (32, 0), (63, 7)):
        plain = 1024 + row * 4 % 128 + row * 4 // 128 * 4096 + k % 4 * 128 + k // 4 * 512
        assert at[row, k] == plain ^ ((plain >> 7 & 3) << 5)
    with pytest.raises(IllegalInstruction, match="needs MN-major"):
        operand(blackwell(0, 0, 1024, 1), 64, 8, 32, False, True)


def test_packed_four_bit_rows():
    smem = SharedMemory(8192)
    smem.u8[:] = np.arange(8192) % 251
    found = operand(blackwell(0, 16, 1024, 2), 16, 64, 4, False, True)
    raw = found.read(smem)
    assert raw.shape == (16, 32) and raw.dtype == np.uint8
    at = found.addresses()
    assert at.shape == (16, 64) and (smem.u8[at[:, ::2]] == raw).all()
    with pytest.raises(IllegalInstruction, match="4-bit"):
        operand(blackwell(0, 16, 1024, 2), 16, 64, 4, True, True)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (blackwell(0, 0, 0, 3), "swizzle mode 3"),
        (blackwell(0, 0, 0, 5), "swizzle mode 5"),
        (blackwell(0, 0, 0, 7), "swizzle mode 7"),
        (word_of(0, 0, 0, layout=2), r"bits 46..48 are 0"),
        (blackwell(0, 0, 0, 2) | 1 << 52, "absolute leading-dimension"),
    ],
)
def test_reserved_encodings(word, message):
    with pytest.raises(IllegalInstruction, match=message):
        MatrixDescriptor.tcgen05(word)


def test_a_matrix_that_leaves_shared_memory():
    found = operand(blackwell(0, 16, 1024, 2), 128, 16, 16, False, True)
    found.read(SharedMemory(16384))
    with pytest.raises(MemoryFault, match="matrix descriptor read"):
        found.read(SharedMemory(16384 - 64))
    operand(blackwell(0x3FFF0, 0, 0, 0), 8, 8, 16, False, True)
