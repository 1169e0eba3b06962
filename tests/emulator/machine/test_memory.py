"""Addresses: bounds, alignment, poison, spaces, atomics, printf."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import MemoryFault
from tests.emulator.machine.arena import MY_WORD, Arena


def test_a_read_past_the_end_names_everything():
    x = np.zeros(40, np.float32)
    with pytest.raises(MemoryFault) as fault:
        Arena(x=x).run(MY_WORD + "ld.global.f32 %f1, [%rd30]; ret;", block=64)
    text = str(fault.value)
    assert "read of 4 bytes" in text and "x (float32 [40])" in text and "0 bytes past the end" in text
    assert "kernel, CTA (0, 0, 0), warp 1, PTX line" in text and "ld.global.f32" in text
    assert "lane 8" in text


def test_masked_lanes_may_hold_wild_addresses():
    x = np.arange(40, dtype=np.uint32)
    body = MY_WORD + "setp.lt.u32 %p1, %r1, 40; @%p1 ld.global.u32 %r5, [%rd30]; @%p1 add.u32 %r5, %r5, 1; "
    Arena(x=x).run(body + "@%p1 st.global.u32 [%rd30], %r5; ret;", block=64)
    assert x.tolist() == list(range(1, 41))


def test_a_misaligned_vector_is_refused():
    with pytest.raises(MemoryFault, match="misaligned"):
        Arena(x=np.zeros(64, np.uint32)).run(MY_WORD + "ld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%rd1+4]; ret;")


def test_shared_memory_starts_poisoned_and_is_bounded():
    out = np.zeros(32, np.uint32)
    declare = ".shared .align 16 .b8 tile[256];"
    body = MY_WORD + "mov.u32 %r6, tile; shl.b32 %r7, %r1, 2; add.u32 %r6, %r6, %r7; ld.shared.u32 %r5, [%r6]; "
    Arena(out=out).run(body + "st.global.u32 [%rd30], %r5; ret;", declarations=declare)
    assert set(out.tolist()) == {0xFFFFFFFF}
    with pytest.raises(MemoryFault, match="outside its"):
        Arena(out=out).run(body + "ld.shared.u32 %r5, [%r6+4096]; ret;", declarations=declare)


def test_generic_addresses_reach_shared_local_and_global():
    out = np.zeros(96, np.uint32)
    declare = ".shared .align 16 .b8 tile[256];"
    body = (
        MY_WORD
        + """
    .local .align 8 .b8 stack[64];
    mov.u32 %r6, tile; cvt.u64.u32 %rd10, %r6; cvta.shared.u64 %rd11, %rd10; mul.wide.u32 %rd12, %r1, 4;
    add.s64 %rd11, %rd11, %rd12; add.u32 %r7, %r1, 100; st.u32 [%rd11], %r7; ld.u32 %r8, [%rd11]; st.global.u32
    [%rd30], %r8;
    mov.u64 %rd13, stack; cvta.local.u64 %rd14, %rd13; st.u32 [%rd14+12], %r1; ld.local.u32 %r9, [%rd13+12];
    st.global.u32 [%rd30+128], %r9; ld.u32 %r10, [%rd30]; st.u32 [%rd30+256], %r10; ret;"""
    )
    Arena(out=out).run(body, declarations=declare)
    assert out[:32].tolist() == list(range(100, 132))
    assert out[32:64].tolist() == list(range(32))
    assert out[64:].tolist() == list(range(100, 132))


@pytest.mark.parametrize(
    ("operation", "want"),
    [("add.u32", 32 * 33 // 2), ("max.u32", 32), ("min.s32", 0), ("or.b32", 63), ("inc.u32", 0), ("exch.b32", 32)],
)
def test_atomics_update_lane_after_lane(operation: str, want: int):
    x = np.zeros(1, np.uint32)
    body = "mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 1; "
    Arena(x=x).run(body + f"atom.global.{operation} %r5, [%rd1], %r1; ret;")
    if operation == "inc.u32":
        want = _increments(range(1, 33))
    assert int(x[0]) == want


def _increments(limits: range) -> int:
    value = 0
    for limit in limits:
        value = 0 if value >= limit else value + 1
    return value


def test_compare_and_swap_returns_the_old_value():
    x, old = np.array([5], np.uint32), np.zeros(32, np.uint32)
    body = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd2, %rd5; "
    body += "add.u32 %r2, %r1, 5; add.u32 %r3, %r1, 6; "
    Arena(x=x, old=old).run(body + "atom.global.cas.b32 %r5, [%rd1], %r2, %r3; st.global.u32 [%rd5], %r5; ret;")
    assert int(x[0]) == 37 and old.tolist() == list(range(5, 37))


def test_printf_prints_lane_after_lane():
    declare = ".global .align 1 .b8 text[14] = {104, 105, 32, 37, 100, 32, 37, 46, 50, 102, 10, 0, 0, 0};\n"
    declare += ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    body = """
    .local .align 8 .b8 stack[16];
    mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 1; @%p1 ret;
    mov.u64 %rd5, stack; st.local.u32 [%rd5], %r1; cvt.rn.f64.u32 %rd6, %r1; st.local.u64 [%rd5+8], %rd6;
    cvta.local.u64 %rd7, %rd5; mov.u64 %rd8, text; cvta.global.u64 %rd9, %rd8;
    { .param .b64 a0; .param .b64 a1; .param .b32 back;
      st.param.b64 [a0], %rd9; st.param.b64 [a1], %rd7;
      call.uni (back), vprintf, (a0, a1);
      ld.param.b32 %r5, [back]; }
    ret;"""
    launch = Arena(out=np.zeros(1, np.uint32)).run(body, declarations=declare)
    assert launch.output == "hi 0 0.00\nhi 1 1.00\n"


def test_an_atomic_may_have_its_scope_behind_its_space():
    out = np.zeros(3, np.uint32)
    body = """
    mov.u32 %r1, %laneid; mov.u32 %r6, tile; setp.ne.u32 %p1, %r1, 0; @%p1 bra GO; st.shared.v2.u32 [%r6], {7, 3};
    GO: bar.warp.sync -1; add.u32 %r2, %r1, 5; atom.shared.cta.min.u32 %r3, [%r6], %r2;
    atom.relaxed.shared::cta.cta.max.s32 %r4, [%r6+4], %r1; red.global.gpu.add.u32 [%rd1+8], 1;
    bar.warp.sync -1; ld.shared.v2.u32 {%r8,%r9}, [%r6]; st.global.v2.u32 [%rd1], {%r8,%r9}; ret;"""
    Arena(out=out).run(body, declarations=".shared .align 16 .b8 tile[16];")
    assert out.tolist() == [5, 31, 32]
