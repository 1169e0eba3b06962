"""Printing: an equal module, and texts that a reader and ptxas know."""

import pytest

from emulator.ptx import Label, LabelList, parse, print_module
from emulator.ptx.printer import _operand
from tests.emulator.ptx.ptx_texts import EVERYTHING, HEADER, bare, entry
from tests.emulator.ptx.test_parser import long_kernel

TEXTS = {
    "everything": EVERYTHING,
    "long": long_kernel(1000),
    "empty": HEADER,
    "scopes": entry("{ .reg .pred P; X: bra Y; { .reg .pred P; X: @P bra X; } } Y: { X: bra X; }"),
    "digits": entry(".reg .b32 a0, a1, a2, b, x$1; { .reg .b32 a0, a1; .reg .b64 a2; } " + "{ .reg .pred P1; }" * 14),
    "vectors": entry(".reg .v2 .b32 v; .reg .v4 .f32 w, u<3>; { .reg .v2 .b32 v; mov.b32 v.x, w.y; } ret;"),
    "mixed range": entry(".reg .b32 q0; .reg .b64 q1; .reg .b64 q2; ret;"),
    "labels of one place": entry("bra a; bra b; a: b: ret; bra c; c:"),
    "unused labels": entry("a: b: { a: ret; bra a; }"),
    "list names in use": entry(
        "$list0: brx.idx %r1, t; t: .branchtargets $list0; brx.idx %r1, u; u: .branchtargets e; e:"
    ),
    "call of a later function": HEADER + ".entry k { call f; ret; } .func f () { ret; }",
    "alias of a declared function": HEADER
    + ".extern .func f (); .func g () { ret; } .alias f, g; .entry k { call f; }",
    "a register named as a function": HEADER
    + ".func f () { ret; } .entry k { { .reg .b32 f; mov.b32 f, 1; } call f; }",
    "directives": HEADER + ".func f () .noreturn { trap; } .entry k .maxntid 64, 2 .explicitcluster { ret; }",
    "offsets": entry(
        "ld.b32 %r1, [%rd1-8]; mov.b32 %r1, a-8; mov.b32 %r1, a+0; ld.b32 %r1, [8+4];", ".shared .b8 a[4];"
    ),
    "odd variables": HEADER + ".extern .global .b32 x; .global .align 64 .b8 y[3] = {1, 2}; .const .b64 z[2];",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_round_trip(text):
    module = parse(text)
    again = parse(print_module(module))
    assert bare(again) == bare(module)


def test_the_text():
    module = parse(
        entry(
            "bra L; mov.b64 {_, %r1}, %rd1; L: @!%p1 ld.b32 %r1, [%rd1+-4]; setp.eq.and.b32 %p1|%p2, %r1, 0x10, !%p3; "
            "st.tensor [%rd1+64, {%r1, 0}], [%r2]; mov.u32 %r1, %tid.x; mov.b32 %r1, s+4; ret;",
            before=".shared .b8 s[8];",
        )
    )
    assert print_module(module).split("\n") == [
        ".version 8.8",
        ".target sm_90a",
        ".address_size 64",
        "",
        ".shared .align 1 .b8 s[8];",
        ".visible .entry k (.param .b64 k_param_0, .param .align 16 .b8 k_param_1[24])",
        "{",
        "\t.reg .pred %p<8>;",
        "\t.reg .b16 %h<8>;",
        "\t.reg .b32 %r<40>;",
        "\t.reg .b64 %rd<16>;",
        "\t.reg .f32 %f<4>;",
        "\t.reg .f64 %fd<4>;",
        "\t.reg .b128 %q<2>;",
        "\tbra L;",
        "\tmov.b64 {_, %r1}, %rd1;",
        "L:",
        "\t@!%p1 ld.b32 %r1, [%rd1+-4];",
        "\tsetp.eq.and.b32 %p1|%p2, %r1, 0x10, !%p3;",
        "\tst.tensor [%rd1+64, {%r1, 0}], [%r2];",
        "\tmov.u32 %r1, %tid.x;",
        "\tmov.b32 %r1, s+4;",
        "\tret;",
        "}",
        "",
    ]


def test_a_stem_ends_with_no_digit():
    """ptxas reads `P1$1<2>` otherwise than as P1$10 and P1$11."""
    printed = print_module(parse(entry("{ .reg .pred P1; }" * 12)))
    assert "\t.reg .pred P1$10;\n\t.reg .pred P1$11;\n" in printed


def test_a_label_list_has_no_text_of_its_own():
    with pytest.raises(TypeError, match="LabelList is no operand of a single name"):
        _operand(LabelList((Label("a", 0),)))
