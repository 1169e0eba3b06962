"""Calls of functions: frames, returns, nesting, divergence, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import emulator
from emulator.errors import Trap, UnknownInstruction
from emulator.machine.inline import inline_calls
from tests.emulator.machine.arena import HEADER, MY_WORD, Arena

ADD = """.func (.param .b32 sum) plus(.param .b32 x, .param .b32 y)
{ .reg .b32 %r<4>; ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y]; add.u32 %r3, %r1, %r2; st.param.b32 [sum], %r3; ret; }
"""


def test_a_frame_of_param_variables():
    out = np.zeros(64, np.uint32)
    body = (
        MY_WORD
        + """{ .param .b32 a; .param .b32 b; .param .b32 back;
    st.param.b32 [a], %r1; mov.b32 %r5, 1000; st.param.b32 [b], %r5;
    call.uni (back), plus, (a, b); ld.param.b32 %r6, [back]; }
    { .param .b32 a; .param .b32 b; .param .b32 back;
    st.param.b32 [a], %r6; st.param.b32 [b], %r6;
    call.uni (back), plus, (a, b); ld.param.b32 %r6, [back]; }
    st.global.u32 [%rd30], %r6; ret;"""
    )
    Arena(out=out).run(body, declarations=ADD, block=64)
    assert out.tolist() == [2 * (1000 + t) for t in range(64)]


def test_registers_literals_and_the_bit_bucket_as_arguments():
    out = np.zeros(32, np.uint32)
    body = MY_WORD + "call (%r6), plus, (%r1, 7); call (_), plus, (%r6, %r6); st.global.u32 [%rd30], %r6; ret;"
    Arena(out=out).run(body, declarations=ADD)
    assert out.tolist() == [t + 7 for t in range(32)]


def test_a_guarded_call_runs_for_its_lanes_only():
    out = np.zeros(32, np.uint32)
    body = MY_WORD + "mov.b32 %r6, 5; setp.lt.u32 %p1, %r1, 10; @!%p1 call (%r6), plus, (%r1, 100); "
    Arena(out=out).run(body + "st.global.u32 [%rd30], %r6; ret;", declarations=ADD)
    assert out.tolist() == [5] * 10 + [100 + t for t in range(10, 32)]


def test_nested_calls_loops_and_early_returns():
    declare = (
        ADD
        + """.func (.param .b32 r) triangle(.param .b32 n)
{ .reg .b32 %r<6>; .reg .pred %p<3>;
  ld.param.b32 %r1, [n]; mov.b32 %r2, 0; setp.gt.u32 %p2, %r1, 20; @!%p2 bra LOOP;
  mov.b32 %r2, 999; st.param.b32 [r], %r2; ret;
  LOOP: setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE; call (%r2), plus, (%r2, %r1); sub.u32 %r1, %r1, 1; bra LOOP;
  DONE: st.param.b32 [r], %r2; ret; }
"""
    )
    out = np.zeros(32, np.uint32)
    body = MY_WORD + "call (%r6), triangle, (%r1); activemask.b32 %r7; "
    body += "setp.eq.u32 %p1, %r7, -1; selp.b32 %r6, %r6, 0, %p1; st.global.u32 [%rd30], %r6; ret;"
    Arena(out=out).run(body, declarations=declare)
    assert out.tolist() == [t * (t + 1) // 2 if t <= 20 else 999 for t in range(32)]


def test_arrays_local_and_shared_variables_of_a_function():
    declare = """.func (.param .align 8 .b8 swapped[8]) swap(.param .align 8 .b8 pair[8])
{ .reg .b32 %r<5>; .reg .b64 %rd<3>; .local .align 8 .b8 room[8]; .shared .align 4 .b32 calls;
  ld.param.v2.b32 {%r1, %r2}, [pair]; st.local.b32 [room], %r2; st.local.b32 [room+4], %r1; ld.local.b64 %rd1, [room];
  st.param.b64 [swapped], %rd1; atom.shared.add.u32 %r3, [calls], 1; ret; }
.func (.param .b32 n) count() { .reg .b32 %r<2>; .shared .align 4 .b32 calls; ld.shared.b32 %r1, [calls];
  st.param.b32 [n], %r1; ret; }
"""
    out = np.zeros(32, np.uint64)
    body = """mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; mov.b32 %r2, 77;
    { .param .align 8 .b8 give[8]; .param .align 8 .b8 take[8];
      st.param.v2.b32 [give], {%r1, %r2}; call.uni (take), swap, (give); ld.param.b64 %rd4, [take]; }
    st.global.u64 [%rd3], %rd4; ret;"""
    Arena(out=out).run(body, declarations=declare)
    assert out.tolist() == [77 | t << 32 for t in range(32)]
    once = emulator.parse(HEADER + declare + ".entry k() { .reg .b64 %rd<3>; call (%rd1), swap, (%rd2); "
                          "call (%rd1), swap, (%rd1); ret; }")  # fmt: skip
    flat = inline_calls(once, once.functions["k"])
    assert [v.name for v in flat.variables if v.space == "shared"] == ["swap$calls"]
    assert len([v for v in flat.variables if v.name.startswith("room$")]) == 2


def test_a_function_without_calls_is_left_alone():
    module = emulator.parse(HEADER + ADD)
    assert inline_calls(module, module.functions["plus"]) is module.functions["plus"]


@pytest.mark.parametrize(
    ("declare", "call", "reason"),
    [
        (".func f() { call f; ret; }\n", "call f;", "call of f: it is recursive"),
        (".extern .func f();\n", "call f;", "declared but not defined"),
        (ADD, "call plus, (%r1);", "wrong arguments"),
        (ADD, "call (%r6), plus, (%p1, %r1);", "wrong arguments"),
        (ADD, "{ .param .b64 wide; call (%r6), plus, (wide, %r1); }", "wrong arguments"),
        (".func f() { ret; }\n", "{ P: .callprototype _ (); call %rd5, P; }", "a call through a register"),
    ],
)
def test_calls_that_are_refused(declare: str, call: str, reason: str):
    with pytest.raises(UnknownInstruction, match=reason):
        Arena(out=np.zeros(1, np.uint32)).run(MY_WORD + call + " ret;", declarations=declare)


def test_a_failed_device_assertion_is_a_trap():
    texts = "".join(
        f".global .align 1 .b8 {name}[{len(text) + 1}] = {{{', '.join(str(c) for c in text.encode())}, 0}};\n"
        for name, text in (("message", "x < 3"), ("file", "a.cu"), ("function", "kernel"))
    )
    frame = ".param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e"
    declare = f"{texts}.extern .func __assertfail({frame});\n"
    body = (
        MY_WORD
        + """setp.lt.u32 %p1, %r1, 30; @%p1 bra FINE;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
      mov.u64 %rd5, message; st.param.b64 [a], %rd5; mov.u64 %rd5, file; st.param.b64 [b], %rd5; mov.b32 %r5, 12;
      st.param.b32 [c], %r5; mov.u64 %rd5, function; st.param.b64 [d], %rd5; mov.b64 %rd5, 1; st.param.b64 [e], %rd5;
      call.uni __assertfail, (a, b, c, d, e); }
    FINE: ret;"""
    )
    with pytest.raises(Trap, match=r"a.cu:12: kernel: assertion `x < 3` failed in lanes \[30, 31\]"):
        Arena(out=np.zeros(1, np.uint32)).run(body, declarations=declare)
