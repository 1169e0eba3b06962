"""initcheck on kernels written by hand: the right version is silent, the wrong one is named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.watch.checked import Checked, kinds

WORDS = np.arange(64, dtype=np.uint32)
MINE = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd30, %r1, 4; add.s64 %rd31, %rd1, %rd30; add.s64 %rd32, %rd2, %rd30;"
TILE = ".shared .align 16 .b8 tile[1024];"
STORE = "st.global.u32 [%rd32], %r9;"


def check(body: str, words: int = 64, **settings) -> Checked:
    case = Checked("initcheck", {"out": words}, x=WORDS.copy())
    case.found = case.run(MINE + body, **settings)
    return case


# ---------------------------------------------------------------- where it is used
USES = {
    "output": ("st.global.u32 [%rd32], %r8;", "uninitialised output"),
    "address": (
        "and.b64 %rd33, %rd20, 7; sub.s64 %rd33, %rd1, %rd33; ld.global.u8 %rs1, [%rd33+8];",
        "uninitialised address",
    ),
    "branch": ("setp.eq.u32 %p1, %r8, 0; @%p1 bra L; mov.u32 %r9, 1; L:", "uninitialised predicate"),
    "guard": ("setp.eq.u32 %p1, %r8, 0; @%p1 st.global.u32 [%rd32], %r1;", "uninitialised predicate"),
    "barrier": ("bar.sync %r8;", "uninitialised operand"),
    "shared address": (
        "and.b32 %r7, %r8, 0x3fc; add.u32 %r7, %r7, 1024; st.shared.u32 [%r7], %r1;",
        "uninitialised address",
    ),
    "table": (
        "T: .branchtargets A, B; and.b32 %r7, %r8, 1; brx.idx %r7, T; A: mov.u32 %r9, 1; B:",
        "uninitialised branch",
    ),
}


@pytest.mark.parametrize("use", USES)
def test_an_undefined_register_is_reported_where_it_is_used(use):
    body, kind = USES[use]
    case = check(body, declarations=TILE)
    assert kind in [k for k, _ in kinds(case.found)]
    assert case.found[0].tool == "initcheck" and case.found[0].where.kernel == "kernel"


@pytest.mark.parametrize(
    "body",
    [
        "mov.u32 %r9, %r8; add.u32 %r9, %r9, 1; cvt.rn.f32.u32 %f1, %r9; fma.rn.f32 %f2, %f1, %f1, %f1;",
        "shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1;",
        "st.shared.u32 [tile], %r8; ld.shared.u32 %r9, [tile];",
        "setp.lt.u32 %p1, %r1, 64; selp.b32 %r9, %r1, %r8, %p1;" + STORE,
        "mov.b64 %rd5, {%r1, %r8}; mov.b64 {%r9, %r10}, %rd5;" + STORE,
        "and.b32 %r9, %r8, 0;" + STORE,
        "mov.b32 %r9, 0x01020304; prmt.b32 %r9, %r9, %r9, 0x3210;" + STORE,
    ],
)
def test_moving_it_and_masking_it_off_is_silent(body):
    case = check(body, declarations=TILE)
    assert case.found == [] and case.error is None


def test_lanes_are_told_apart():
    """Only lanes from 8 on take the load; those below store what was never written."""
    case = check("setp.ge.u32 %p1, %r1, 8; @%p1 ld.global.u32 %r9, [%rd31];" + STORE)
    (finding,) = case.found
    assert finding.kind == "uninitialised output" and finding.memory == "out[0]"
    assert "%r9 has not been written" in finding.missing
    right = check("mov.u32 %r9, 5; setp.ge.u32 %p1, %r1, 8; @%p1 ld.global.u32 %r9, [%rd31];" + STORE)
    assert right.found == []


def test_bytes_are_told_apart():
    """A byte of a word that was stored in parts."""
    parts = "st.shared.u8 [tile], %r1; st.shared.u8 [tile+1], %r1; st.shared.u8 [tile+3], %r1;"
    tail = "ld.shared.u32 %r9, [tile]; shr.u32 %r10, %r9, 24; and.b32 %r11, %r9, 0xffff; and.b32 %r12, %r9, 0xff0000;"
    names = {"%r10": 0, "%r11": 0, "%r12": 1, "%r9": 1}
    for register, count in names.items():
        case = check(f"{parts}{tail} st.global.u32 [%rd32], {register};", declarations=TILE)
        assert len(case.found) == count, register
        if count:
            assert "shared memory offset 0x402 (tile+0x2), which nobody has written" in case.found[0].missing


def test_a_choice_takes_only_the_side_that_its_predicate_names():
    body = "setp.{} %p1, %r1, 40; selp.b32 %r9, %r8, %r1, %p1;" + STORE
    assert check(body.format("gt.u32")).found == []
    assert kinds(check(body.format("lt.u32")).found) == [("uninitialised output", 1)]
    undefined = "setp.eq.u32 %p1, %r8, 1; selp.b32 %r9, %r1, 7, %p1;" + STORE
    assert kinds(check(undefined).found) == [("uninitialised output", 1)]


def test_a_shuffle_brings_what_its_source_lane_holds():
    """Lane 3 alone holds nothing; the broadcast of lane 3 spoils all, that of lane 4 none."""
    body = "setp.ne.u32 %p1, %r1, 3; @%p1 mov.u32 %r8, %r1; shfl.sync.idx.b32 %r9, %r8, {}, 31, -1;" + STORE
    assert check(body.format(4)).found == []
    assert kinds(check(body.format(3)).found) == [("uninitialised output", 1)]
    moving = "mov.u32 %r7, {}; " + body.replace("{}", "%r7")
    assert check(moving.format(4)).found == []
    assert kinds(check(moving.format(3)).found) == [("uninitialised output", 1)]


def test_votes_and_reductions_need_all_lanes():
    body = "setp.ne.u32 %p1, %r1, 3; {} mov.u32 %r8, %r1; redux.sync.add.u32 %r9, %r8, -1;" + STORE
    assert check(body.format("")).found == []
    assert kinds(check(body.format("@%p1")).found) == [("uninitialised output", 1)]


# ---------------------------------------------------------------- memory
def test_shared_memory_is_undefined_until_written_and_origin_is_named():
    body = "mov.u32 %r5, tile; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6; {} ld.shared.u32 %r9, [%r5];" + STORE
    assert check(body.format("st.shared.u32 [%r5], %r1;"), declarations=TILE).found == []
    (finding,) = check(body.format(""), declarations=TILE).found
    assert finding.kind == "uninitialised output" and finding.other is not None
    assert finding.other.text.startswith("ld.shared.u32") and finding.where.text.startswith("st.global.u32")
    assert "tile+0x0" in finding.missing


def test_an_undefined_value_keeps_its_origin_through_shared_memory():
    body = "st.shared.u32 [tile], %r8; bar.sync 0; ld.shared.u32 %r9, [tile];" + STORE
    (finding,) = check(body, declarations=TILE).found
    assert "register %r8, which no instruction has written" in finding.missing
    assert finding.other is not None and finding.other.text.startswith("st.shared.u32")


def test_local_memory_is_undefined_and_may_hold_undefined_values():
    frame = ".local .align 8 .b8 frame[16];"
    right = frame + "st.local.u32 [frame], %r1; ld.local.u32 %r9, [frame];" + STORE
    wrong = frame + "st.local.u32 [frame], %r1; ld.local.u32 %r9, [frame+4];" + STORE
    moved = frame + "st.local.u32 [frame], %r8; ld.local.u32 %r9, [frame];"
    assert check(right).found == [] and check(moved).found == []
    assert kinds(check(wrong).found) == [("uninitialised output", 1)]


def test_inputs_are_defined_and_outputs_are_not_until_written():
    assert check("ld.global.u32 %r9, [%rd31];" + STORE).found == []
    case = check("ld.global.u32 %r9, [%rd32];" + STORE)
    assert kinds(case.found) == [("uninitialised output", 1)]
    assert "comes from out[0], which nobody has written" in case.found[0].missing
    rewritten = check("st.global.u32 [%rd32], %r1; ld.global.u32 %r9, [%rd32]; add.u32 %r9, %r9, 1;" + STORE)
    assert rewritten.found == []


def test_a_second_launch_may_read_what_the_first_has_written():
    case = check("st.global.u32 [%rd32], %r1;")
    again = case.run(MINE + "ld.global.u32 %r9, [%rd32]; st.global.u32 [%rd32], %r9;")
    assert again == []
    (finding,) = case.run(MINE + "ld.global.u32 %r9, [%rd32+128]; st.global.u32 [%rd32], %r9;")
    assert "out[32], which nobody has written" in finding.missing


def test_atomics_need_defined_memory_and_operands():
    once = "setp.eq.u32 %p1, %r1, 0; "
    right = once + "@%p1 st.global.u32 [%rd2], 0; bar.sync 0; atom.global.add.u32 %r9, [%rd2], 1;"
    assert check(right).found == []
    assert kinds(check("red.global.add.u32 [%rd2], 1;").found) == [("uninitialised operand", 1)]
    value = once + "@%p1 st.global.u32 [%rd2], 0; bar.sync 0; red.global.add.u32 [%rd2], %r8;"
    assert kinds(check(value).found) == [("uninitialised output", 32)]


def test_a_ragged_block_has_no_undefined_lanes_beyond_its_threads():
    assert check("ld.global.u32 %r9, [%rd31]; vote.sync.any.pred %p2, %p1, 0xff;", block=8).found == []


def test_copies_pass_definedness_on():
    """cp.async of an input is defined; a bulk store of a tile that is half written is not."""
    copied = "cp.async.ca.shared.global [tile], [%rd1], 16; cp.async.wait_all; ld.shared.u32 %r9, [tile{}];"
    assert check(copied.format("+12") + STORE, declarations=TILE).found == []
    assert kinds(check(copied.format("+16") + STORE, declarations=TILE).found) == [("uninitialised output", 1)]
    half = (
        "mov.u32 %r5, tile; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], %r1; bar.sync 0;"
        "fence.proxy.async.shared::cta; setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, tile;"
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r5], {}; cp.async.bulk.commit_group;"
        "cp.async.bulk.wait_group 0;"
    )
    assert check(half.format(128), declarations=TILE).found == []
    (finding,) = check(half.format(256), declarations=TILE).found
    assert finding.kind == "uninitialised output" and finding.memory == "out[32]"
    assert "cp.async.bulk.global" in finding.where.text


# ---------------------------------------------------------------- tensor memory and matrix products
ALLOC = (
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [tile], 32; ld.shared.u32 %r20, [tile];"
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
)
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 32;"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r9, %r10}, [%r20]; tcgen05.wait::ld.sync.aligned;"


def test_tensor_memory_is_undefined_until_stored():
    stored = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {%r1}; tcgen05.wait::st.sync.aligned;"
    assert check(ALLOC + stored + LOAD + STORE + FREE, declarations=TILE).found == []
    # column 1 is loaded with it, and not used
    (finding,) = check(ALLOC + stored + LOAD + "st.global.u32 [%rd32], %r10;" + FREE, declarations=TILE).found
    assert "tensor memory lane 0, column 1, which nobody has written" in finding.missing
    assert finding.other is not None and finding.other.text.startswith("tcgen05.ld")


def test_columns_that_are_allocated_again_are_undefined_again():
    stored = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {%r1};"
    body = ALLOC.split("tcgen05.relinquish")[0] + stored + FREE + ALLOC + LOAD + STORE + FREE
    assert kinds(check(body, declarations=TILE).found) == [("uninitialised output", 1)]


def test_mma_sync_passes_rows_on():
    """Row 0 of A (lanes 0 to 3, first register) holds nothing; it spoils row 0 of D alone."""
    fragments = "setp.ge.u32 %p1, %r1, 4; {} mov.u32 %r40, 0; mov.u32 %r41, 0; mov.u32 %r42, 0; mov.u32 %r43, 0;"
    zero = "mov.u32 %r44, 0; mov.u32 %r45, 0; mov.f32 %f1, 0f00000000;"
    product = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r40, %r41, %r42, %r43},"
        " {%r44, %r45}, {%f1, %f1, %f1, %f1};"
    )
    whole, spoiled = fragments.format("") + zero + product, fragments.format("@%p1") + zero + product
    first, below = "mov.b32 %r9, %f2;", "mov.b32 %r9, %f4;"
    assert check(whole + first + STORE).found == []
    assert check(spoiled + below + STORE).found == []
    (finding,) = check(spoiled + first + STORE).found
    assert finding.memory == "out[0]"
    masked = "@%p1 st.global.u32 [%rd32], %r9;"
    assert check(spoiled + first + masked).found == []


def test_findings_count_instead_of_repeating():
    body = "mov.u32 %r5, 0; L: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 9; st.global.u32 [%rd32], %r8; @%p1 bra L;"
    (finding,) = check(body).found
    assert finding.count == 9 and "(9 times)" in str(finding)
