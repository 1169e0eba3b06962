"""Matrix moves of bytes and narrow elements, which no captured words cover, and their faults.

The 16-bit forms are held against captured words in tests/emulator/goldens. NVIDIA's own byte-transpose samples pass
with these layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, MemoryFault, UnknownInstruction
from tests.emulator.machine.arena import Arena

TILE = ".shared .align 128 .b8 tile[1024];"
# %r10 = address of the lane's row, %rd5 = place of the lane's registers
HEAD = """
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.u32 %r10, %r2, %r3;
mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd1, %rd4;
"""
FILL = """ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd6]; st.shared.v4.u32 [%r10], {%r20, %r21, %r22, %r23};
ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd6+512]; st.shared.v4.u32 [%r10+512], {%r20, %r21, %r22, %r23};
bar.warp.sync -1;
"""


def load(opcode: str, count: int, image: np.ndarray, before: str = "", **more: Any) -> np.ndarray:
    """Registers [count, 32] of an ldmatrix whose rows lie one behind the other in `image` (1024 bytes)."""
    out = np.zeros((32, 4), np.uint32)
    names = ", ".join(f"%r{40 + k}" for k in range(count))
    body = HEAD + FILL + f"{before} {opcode} {{{names}}}, [%r10];"
    body += "".join(f"st.global.u32 [%rd5+{4 * k}], %r{40 + k};" for k in range(count)) + " ret;"
    Arena(image=image, out=out).run(body, declarations=TILE, **more)
    return out.T[:count].copy()


def store(opcode: str, registers: np.ndarray, before: str = "") -> np.ndarray:
    """Shared memory (1024 bytes, 0xFF where nothing was stored) after a stmatrix of registers [count, 32]."""
    count, image = len(registers), np.zeros(1024, np.uint8)
    source = np.zeros((32, 4), np.uint32)
    source[:, :count] = registers.T
    names = ", ".join(f"%r{20 + k}" for k in range(count))
    body = HEAD + f"ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd5]; {before} {opcode} [%r10], {{{names}}};"
    body += """bar.warp.sync -1; ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r10];
    st.global.v4.u32 [%rd6], {%r20, %r21, %r22, %r23}; ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r10+512];
    st.global.v4.u32 [%rd6+512], {%r20, %r21, %r22, %r23}; ret;"""
    Arena(image=image, source=source).run(body, declarations=TILE)
    return image


IMAGE = np.random.default_rng(2).integers(0, 256, 1024, dtype=np.uint8)


@pytest.mark.parametrize("number", [1, 2])
def test_sixteen_by_sixteen_bytes_come_transposed(number: int) -> None:
    """Register 2 i + j, byte b of lane 4 g + t: row 4 t + b, column g + 8 j of matrix i."""
    got = load(f"ldmatrix.sync.aligned.m16n16.x{number}.trans.shared.b8", 2 * number, IMAGE)
    rows = IMAGE[:512].reshape(2, 16, 16)
    octets = got.view(np.uint8).reshape(2 * number, 32, 4)
    for i in range(number):
        for j in (0, 1):
            for lane in range(32):
                want = [rows[i, 4 * (lane % 4) + b, lane // 4 + 8 * j] for b in range(4)]
                assert octets[2 * i + j, lane].tolist() == want


@pytest.mark.parametrize(("source", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_narrow_elements_land_in_the_low_bits_of_bytes(source: str, bits: int) -> None:
    """Sixteen packed elements at the start of every 16-byte row."""
    rows = IMAGE[:512].reshape(32, 16)
    stream = np.unpackbits(rows[:, : 2 * bits], axis=1, bitorder="little").reshape(32, 16, bits)
    codes = (stream << np.arange(bits)).sum(-1)
    got = load(f"ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{source}", 4, IMAGE).view(np.uint8).reshape(4, 32, 4)
    for i in range(4):
        for lane in range(32):
            start = 4 * (lane % 4)
            assert got[i, lane].tolist() == codes[8 * i + lane // 4, start : start + 4].tolist()
    square = load(f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.{source}", 4, IMAGE)
    octets, tiles = square.view(np.uint8).reshape(4, 32, 4), codes.reshape(2, 16, 16)
    assert all(
        octets[2 * i + j, lane, b] == tiles[i, 4 * (lane % 4) + b, lane // 4 + 8 * j]
        for i in (0, 1) for j in (0, 1) for lane in range(32) for b in range(4)
    )  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 4])
def test_sixteen_by_eight_bytes_are_stored_transposed(number: int) -> None:
    """Byte 2 h + p of lane 4 g + t is (g + 8 h, 2 t + p) of the fragment of an accumulator: row 2 t + p in memory."""
    registers = np.random.default_rng(number).integers(0, 1 << 32, (number, 32), dtype=np.uint32)
    image = store(f"stmatrix.sync.aligned.m16n8.x{number}.trans.shared.b8", registers)
    rows, octets = image.reshape(64, 16), registers.view(np.uint8).reshape(number, 32, 4)
    for i in range(number):
        for lane in range(32):
            g, t = lane // 4, lane % 4
            for h in (0, 1):
                for p in (0, 1):
                    assert rows[8 * i + 2 * t + p, g + 8 * h] == octets[i, lane, 2 * h + p]
    assert (rows[8 * number :] == 0xFF).all()


def test_a_transposing_store_undoes_a_transposing_load() -> None:
    got = load("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 4, IMAGE)
    assert (store("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", got)[:512] == IMAGE[:512]).all()
    got = load("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16", 4, IMAGE)
    assert (store("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16", got)[:512] == IMAGE[:512]).all()


def test_misaligned_and_missing_rows() -> None:
    with pytest.raises(MemoryFault, match=r"read of 16 bytes .* by lane 3 is misaligned"):
        load(
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, IMAGE, "setp.eq.u32 %p1, %r1, 3; @%p1 add.u32 %r10, %r10, 8;"
        )
    # the address of a lane that gives no row is not looked at
    load("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, IMAGE, "setp.eq.u32 %p1, %r1, 9; @%p1 add.u32 %r10, %r10, 8;")
    with pytest.raises(MemoryFault, match="write of 16 bytes .* is outside its"):
        store("stmatrix.sync.aligned.m8n8.x1.shared.b16", np.zeros((1, 32), np.uint32), "add.u32 %r10, %r10, 8192;")
    with pytest.raises(IllegalInstruction, match=r"ldmatrix: lanes \[31\] do not execute it"):
        load("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, IMAGE, "setp.eq.u32 %p1, %r1, 31; @%p1 exit;")


@pytest.mark.parametrize(
    ("opcode", "count", "reason"),
    [
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16", 1, "1 registers; m8n8.x2 fills 2"),
        ("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8", 2, "2 registers; m16n16.x2 fills 4"),
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8", 2, "no implemented form"),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8", 4, "no implemented form"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b8", 1, "no implemented form"),
    ],
)
def test_forms_that_do_not_exist(opcode: str, count: int, reason: str) -> None:
    with pytest.raises(UnknownInstruction, match=reason):
        load(opcode, count, IMAGE)
