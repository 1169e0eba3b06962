"""memcheck on kernels written by hand: the right version is silent, the wrong one is named with tensor and element."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import MemoryFault
from emulator.events import Access, WarpId
from emulator.memory.globals import GlobalMemory
from emulator.watch import Finding
from emulator.watch.writers import Writers
from tests.emulator.watch.checked import Checked, kinds

MINE = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd30, %r1, 4; add.s64 %rd31, %rd1, %rd30; add.s64 %rd32, %rd2, %rd30;"
TWO = ".shared .align 16 .b8 first[256]; .shared .align 16 .b8 second[256];"


def check(body: str, x: np.ndarray | None = None, words: int = 64, **settings) -> Checked:
    case = Checked("memcheck", {"out": words}, x=np.arange(64, dtype=np.uint32) if x is None else x)
    case.found = case.run(MINE + body, **settings)
    return case


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


# ---------------------------------------------------------------- what the machine refuses
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("st.global.u32 [%rd32+256], %r1;", "out of bounds", "out[64]"),
        ("ld.global.u32 %r9, [%rd2+-4];", "out of bounds", "4 bytes before the start of"),
        ("ld.global.u32 %r9, [%rd31+2];", "misaligned", "must be a multiple of 4"),
        ("st.global.u32 [%rd31], %r1;", "write to read-only memory", "goes to read-only x"),
        ("mov.u32 %r5, first; ld.shared.u32 %r9, [%r5+512];", "out of bounds", "is outside its"),
    ],
)
def test_a_fault_of_the_machine_is_a_finding(body, kind, words):
    memory = GlobalMemory()
    assert memory.regions == ()
    case = check(body, declarations=TWO)
    assert isinstance(case.error, MemoryFault)
    finding = only([f for f in case.found if f.where.line == case.error.where.line and f.kind == kind][:1])
    assert words in str(finding)
    assert finding.tool == "memcheck" and finding.where.text == case.error.where.text


def test_a_launch_without_faults_has_no_findings():
    case = check("ld.global.u32 %r9, [%rd31]; st.global.u32 [%rd32], %r9;")
    assert case.found == [] and case.error is None
    assert case.outputs["out"][:32].tolist() == list(range(32))


def test_a_tensor_that_is_gone_is_outside_every_tensor():
    case = check("ld.global.u32 %r9, [%rd31];")
    case.memory.unregister(next(r for r in case.memory.regions if r.name == "x"))
    found = case.run(MINE + "ld.global.u32 %r9, [%rd31];")
    assert "out of bounds" in {f.kind for f in found} and isinstance(case.error, MemoryFault)


# ---------------------------------------------------------------- inside memory, outside the tensor
def halves() -> Checked:
    """x and y are the halves of one allocation: what runs off x lands in y."""
    both = np.arange(128, dtype=np.uint32)
    return Checked("memcheck", {"out": 64}, x=both[:64], y=both[64:])


NEIGHBOURS = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd30, %r1, 4; add.s64 %rd31, %rd1, %rd30; add.s64 %rd33, %rd3, %rd30;"


def test_running_off_one_tensor_into_the_next():
    right = halves()
    assert right.run(NEIGHBOURS + "ld.global.u32 %r9, [%rd31+128]; st.global.u32 [%rd33], %r9;") == []
    wrong = halves()
    finding = only(wrong.run(NEIGHBOURS + "ld.global.u32 %r9, [%rd31+192]; st.global.u32 [%rd33], %r9;"))
    assert wrong.error is None
    assert finding.kind == "out of bounds" and finding.memory == "read of x[64]"
    assert "the address is computed from x (uint32 [64])" in finding.missing and "but lies in y" in finding.missing


def test_an_address_from_one_tensor_that_lands_in_another():
    wrong = halves()
    finding = only(wrong.run(NEIGHBOURS + "ld.global.u32 %r9, [%rd31+256]; st.global.u32 [%rd33], %r9;"))
    assert finding.memory == "read of x[64]" and "but lies in y (uint32 [64])" in finding.missing


def test_an_address_that_may_come_from_two_tensors_is_held_against_none():
    body = "setp.lt.u32 %p1, %r1, 16; selp.b64 %rd5, %rd1, %rd2, %p1; add.s64 %rd5, %rd5, %rd30;"
    assert halves().run(NEIGHBOURS + body + "ld.global.u32 %r9, [%rd5];") == []


def test_a_pointer_out_of_memory_may_point_anywhere():
    """A table of pointers, as grouped problems have."""
    data = np.arange(64, dtype=np.uint32)
    table = np.array([data.ctypes.data], np.uint64)
    case = Checked("memcheck", {"out": 32}, table=table, data=data)
    body = "ld.global.u64 %rd5, [%rd1]; add.s64 %rd5, %rd5, %rd30; ld.global.u32 %r9, [%rd5];"
    assert case.run(MINE + body) == [] and case.error is None


def test_a_gap_between_the_rows_of_a_strided_tensor():
    padded = np.arange(80, dtype=np.uint32).reshape(8, 10)[:, :8]
    body = "ld.global.u32 %r9, [%rd1+{}]; st.global.u32 [%rd32], %r9;"
    assert check(body.format(4 * 7), padded).found == []
    assert check(body.format(4 * 10), padded).found == []
    finding = only(check(body.format(4 * 8), padded).found)
    assert finding.memory == "read of x + 32 bytes" and "its strides are (40, 4) bytes" in finding.missing


# ---------------------------------------------------------------- shared and local memory
def test_a_shared_variable_ends_where_the_next_begins():
    body = "mov.u32 %r5, first; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5+{}], %r1;"
    assert check(body.format(128), declarations=TWO).found == []
    finding = only(check(body.format(132), declarations=TWO).found)
    assert finding.memory == "write of shared memory offset 0x500 (second+0x0)"
    assert "computed from variable first, which ends at offset 0x500" in finding.missing


def test_an_address_from_two_shared_variables_is_held_against_none():
    body = "mov.u32 %r5, first; mov.u32 %r6, second; sub.u32 %r7, %r6, %r5; add.u32 %r5, %r5, %r7;"
    assert check(body + "st.shared.u32 [%r5], %r1;", declarations=TWO).found == []


def test_the_first_kilobyte_of_shared_memory_belongs_to_the_system():
    finding = only(check("mov.u32 %r5, 512; ld.shared.u32 %r9, [%r5];", declarations=TWO).found)
    assert "belong to the system" in finding.missing and finding.memory == "read of shared memory offset 0x200"


def test_local_memory_of_another_thread():
    frame = ".local .align 16 .b8 frame[16]; mov.u64 %rd5, frame; "
    assert check(frame + "st.local.u32 [%rd5+12], %r1; ld.local.u32 %r9, [%rd5+12];").found == []
    finding = only(check(frame + "setp.eq.u32 %p1, %r1, 4; @%p1 st.local.u32 [%rd5+16], %r1;").found)
    assert finding.memory == "write of local memory of another thread, from lane 4"
    assert "16 bytes from the start of the 16 bytes that the lane owns" in finding.missing


# ---------------------------------------------------------------- exactly once
BOTH_WARPS = "and.b32 %r2, %r1, 31; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd2, %rd5; st.global.u32 [%rd5], %r1;"


def test_an_element_that_two_warps_write():
    assert check("st.global.u32 [%rd32], %r1;", block=64).found == []
    finding = only(check(BOTH_WARPS, block=64).found)
    assert finding.kind == "written twice" and finding.memory == "write of out[0]"
    assert (finding.where.warp, finding.other.warp) == (1, 0)


def test_writing_again_what_was_read_or_what_is_ones_own_is_silent():
    """A thread that rewrites its own element, atomics, the last of several adding what it has read, and two warps that
    write the same value."""
    own = "st.global.u32 [%rd32], 0; st.global.u32 [%rd32], %r1;"
    atomics = "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd2], 0; bar.sync 0; red.global.add.u32 [%rd2], 1;"
    adding = (
        "setp.ge.u32 %p1, %r1, 32; and.b32 %r2, %r1, 31; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd2, %rd5;"
        "@!%p1 st.global.u32 [%rd5], %r1; bar.sync 0; @!%p1 bra L;"
        "ld.global.u32 %r9, [%rd5]; add.u32 %r9, %r9, 1; st.global.u32 [%rd5], %r9; L:"
    )
    same = BOTH_WARPS.replace("], %r1", "], %r2")
    for body in (own, atomics, adding, same):
        assert check(body, block=64).found == []


def test_two_blocks_that_write_the_same_tile():
    finding = only(check("mov.u32 %r2, %ctaid.x; st.global.u32 [%rd32], %r2;", grid=2).found)
    assert (finding.where.cta, finding.other.cta) == ((1, 0, 0), (0, 0, 0))


def test_neighbouring_bytes_that_two_warps_write_are_not_one_element():
    memory, held = GlobalMemory(), np.full(64, 255, np.uint8)
    memory.register(held.ctypes.data, 64, "out", shape=(64,), dtype="uint8", poisoned=1)
    writers = Writers(memory)

    def write(warp: int, place: int):
        where = np.array([held.ctypes.data + place])
        return writers.note(
            Access(WarpId((0, 0, 0), 0, warp), "global", "write", "generic", where, 1), 0, *memory.regions
        )

    assert write(0, 6) is None and write(1, 7) is None and write(0, 6) is None
    clash = write(1, 6)
    assert clash is not None and clash.places.tolist() == [6] and clash.who.warp == 0
    held[6] = 1
    assert clash.changed() == held.ctypes.data + 6


def test_findings_count_instead_of_repeating():
    body = "mov.u32 %r5, 512; ld.shared.u32 %r9, [%r5]; ld.shared.u32 %r9, [%r5];"
    loop = f"mov.u32 %r6, 0; L: add.u32 %r6, %r6, 1; {body} setp.lt.u32 %p1, %r6, 3; @%p1 bra L;"
    found = check(loop, declarations=TWO).found
    assert kinds(found) == [("out of bounds", 3), ("out of bounds", 3)]
