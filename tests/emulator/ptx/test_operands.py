"""Each operand form of PTX."""

import pytest

from emulator.errors import PtxSyntaxError
from emulator.ptx import (
    Address,
    Imm,
    Label,
    LabelList,
    Not,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Vector,
    parse,
)
from tests.emulator.ptx.ptx_texts import entry, kernel, only

# Slots follow the order of declaration: 8 predicates, 8 of 16 bits, 40 of 32, 16 of 64, 4 f32, 4 f64, 2 of 128.
P = [Reg(f"%p{i}", "pred", i) for i in range(8)]
R = [Reg(f"%r{i}", "b32", 16 + i) for i in range(40)]
RD = [Reg(f"%rd{i}", "b64", 56 + i) for i in range(16)]


def imm(value):
    return Imm(value, 0, str(value))


@pytest.mark.parametrize(
    ("statement", "operands"),
    [
        ("mov.b32 %r1, %r2;", (R[1], R[2])),
        ("mov.u32 %r1, %tid.x;", (R[1], Special("tid.x"))),
        ("mov.u64 %rd1, %clock64;", (RD[1], Special("clock64"))),
        ("mov.u32 %r1, %cluster_ctarank;", (R[1], Special("cluster_ctarank"))),
        ("mov.u32 %r1, %envreg31;", (R[1], Special("envreg31"))),
        ("mov.u32 %r1, WARP_SZ;", (R[1], Imm(32, 0, "WARP_SZ"))),
        ("add.s32 %r1, %r2, -8;", (R[1], R[2], imm(-8))),
        ("add.s32 %r1, %r2, - 8;", (R[1], R[2], imm(-8))),
        ("add.s32 %r1, %r2, +8;", (R[1], R[2], imm(8))),
        ("add.s32 %r1, %r2, -0x10;", (R[1], R[2], Imm(-16, 0, "-0x10"))),
        ("mov.b32 %r1, 0fFF800000;", (R[1], Imm(0xFF800000, 32, "0fFF800000"))),
        ("mov.b64 %rd1, 0d4000000000000000;", (RD[1], Imm(2 << 61, 64, "0d4000000000000000"))),
        ("mov.b64 %rd1, -1.5;", (RD[1], Imm(0xBFF8000000000000, 64, "-1.5"))),
        ("mov.b64 {_, %r1}, %rd1;", (Vector((Sink(), R[1])), RD[1])),
        ("st.v4.b32 [%rd1], {%r1, 0, -1, %r2};", (Address(RD[1], 0), Vector((R[1], imm(0), imm(-1), R[2])))),
        ("elect.sync _|%p1, -1;", (Pair(Sink(), P[1]), imm(-1))),
        ("elect.sync %r1|%p1, -1;", (Pair(R[1], P[1]), imm(-1))),
        ("setp.eq.and.b32 %p1|%p2, %r1, 1, !%p3;", (Pair(P[1], P[2]), R[1], imm(1), Not(P[3]))),
        ("mbarrier.arrive.shared::cluster.b64 _, [%r1];", (Sink(), Address(R[1], 0))),
        ("bar.sync 0;", (imm(0),)),
        ("ret;", ()),
    ],
)
def test_values(statement, operands):
    assert only(statement).operands == operands


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[%rd1]", Address(RD[1], 0)),
        ("[%rd1+16]", Address(RD[1], 16)),
        ("[%rd1+-16]", Address(RD[1], -16)),
        ("[%rd1-16]", Address(RD[1], -16)),
        ("[%rd1 + 0x10]", Address(RD[1], 16)),
        ("[%rd1+010]", Address(RD[1], 8)),
        ("[1024]", Address(imm(1024), 0)),
        ("[-4]", Address(imm(-4), 0)),
        ("[16+4]", Address(imm(16), 4)),
        ("[k_param_0]", Address(Symbol("k_param_0"), 0)),
        ("[k_param_1+16]", Address(Symbol("k_param_1"), 16)),
        ("[area+4]", Address(Symbol("area"), 4)),
    ],
)
def test_addresses(text, address):
    assert only(f"ld.b32 %r1, {text};", ".shared .b32 area[4];").operands == (R[1], address)


def test_symbols_with_and_without_arithmetic():
    body = "mov.b32 %r1, area; mov.b32 %r1, area+8; mov.b32 %r1, area-8; mov.b32 %r1, area+0; mov.b64 %rd1, k_param_1;"
    found = [i.operands[1] for i in kernel(body, ".shared .b32 area[4];").instructions]
    area = Symbol("area")
    assert found == [area, Address(area, 8), Address(area, -8), Address(area, 0), Symbol("k_param_1")]


def test_tensor_addresses():
    load, store = kernel(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, 0}], [%r1+8];"
        "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd1+64, {%r2}], [%r1];"
    ).instructions
    assert load.operands == (Address(R[1], 0), TensorAddress(Address(RD[1], 0), (R[2], imm(0))), Address(R[1], 8))
    assert store.operands == (TensorAddress(Address(RD[1], 64), (R[2],)), Address(R[1], 0))


def test_vector_registers():
    body = ".reg .v4 .b32 abcd; .reg .v2 .f32 uv; ld.v4.b32 abcd, [%rd1]; mov.b32 abcd.y, abcd.a; mov.b32 %r1, uv.g;"
    function = kernel(body)
    base = len(function.register_names) - 6
    parts = [Reg(f"abcd.{part}", "b32", base + i) for i, part in enumerate("xyzw")]
    whole, component, colour = (i.operands for i in function.instructions)
    assert whole == (Vector(tuple(parts)), Address(RD[1], 0))
    assert component == (parts[1], parts[3])
    assert colour == (R[1], Reg("uv.y", "f32", base + 5))
    assert function.register_names[-6:] == ("abcd.x", "abcd.y", "abcd.z", "abcd.w", "uv.x", "uv.y")


def test_a_whole_special_vector_is_its_components():
    vector = only(".reg .v4 .b32 t; mov.v4.u32 t, %ctaid;").operands[1]
    assert vector == Vector(tuple(Special(f"ctaid.{part}") for part in "xyzw"))


def test_branches():
    body = "bra end; @%p1 bra.uni start; start: brx.idx %r1, table; table: .branchtargets start, end; end:"
    forward, guarded, indexed = kernel(body).instructions
    start, end = Label("start", 2), Label("end", 3)
    assert forward.operands == (end,)
    assert (guarded.operands, guarded.guard, guarded.guard_negated) == ((start,), P[1], False)
    assert indexed.operands == (R[1], LabelList((start, end)))


FUNCTIONS = ".func (.param .b32 o) f (.param .b32 i) { ret; } .func g () { ret; }"


@pytest.mark.parametrize(
    ("statement", "operands"),
    [
        ("call g;", (Vector(()), Symbol("g"), Vector(()))),
        ("call.uni g, ();", (Vector(()), Symbol("g"), Vector(()))),
        ("call.uni (%r1), f, (%r2);", (Vector((R[1],)), Symbol("f"), Vector((R[2],)))),
        ("call (_), f, (5);", (Vector((Sink(),)), Symbol("f"), Vector((imm(5),)))),
        ("s: .callprototype _ (); call %rd1, s;", (Vector(()), RD[1], Vector(()), Symbol("s"))),
        (
            "call (%r1), %rd1, (%r2), s; s: .callprototype (.param .b32 _) _ (.param .b32 _);",
            (Vector((R[1],)), RD[1], Vector((R[2],)), Symbol("s")),
        ),
        (
            "t: .calltargets f, g; call (%r1), %rd1, (%r2), t;",
            (Vector((R[1],)), RD[1], Vector((R[2],)), Vector((Symbol("f"), Symbol("g")))),
        ),
    ],
)
def test_calls(statement, operands):
    assert only(statement, FUNCTIONS).operands == operands


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("mov.b32 %r1, %r40;", "expected a declared register or a special register, found '%r40'"),
        ("mov.b32 %r1, %tid.q;", "expected a declared register or a special register, found '%tid.q'"),
        ("mov.b32 %r1, nothing;", "expected a declared name, found 'nothing'"),
        ("mov.b32 %r1, ;", "expected an operand, found ';'"),
        ("mov.b32 %r1 %r2;", "expected ',' or ';', found '%r2'"),
        ("mov.b32 %r1, %r2", "expected ',' or ';', found '}'"),
        ("mov.b32 %r1, 4*3;", "expected ',' or ';', found '*'"),
        ("mov.b32 %r1, (1);", "expected an operand, found '('"),
        ("mov.b32 %r1, -0f3F800000;", "expected a number of at most 64 bits, found '0f3F800000'"),
        ("mov.b32 %r1, -%r2;", "expected a number of at most 64 bits, found '%r2'"),
        ("mov.b64 {}, %rd1;", "expected an operand, found '}'"),
        ("mov.b64 {%r1, {%r2}}, %rd1;", "expected an operand, found '{'"),
        ("mov.b64 {%r1 %r2}, %rd1;", "expected '}', found '%r2'"),
        ("ld.b32 %r1, [%rd1+1.5];", "expected an integer offset, found '1.5'"),
        ("ld.b32 %r1, [%rd1+%r2];", "expected a number of at most 64 bits, found '%r2'"),
        ("ld.b32 %r1, [%tid.x];", "expected a register, a variable or an integer as address, found '%tid.x'"),
        ("ld.b32 %r1, [1.5];", "expected a register, a variable or an integer as address, found '1.5'"),
        ("ld.b32 %r1, [%rd1;", "expected ']', found ';'"),
        ("tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%rd1, %r5];", "expected '{' and coordinates, found '%r5'"),
        ("bra 5;", "expected a label, found '5'"),
        ("bra nowhere;", "expected a label of this function, found 'nowhere'"),
        ("bra k_param_0;", "expected a label of this function, found 'k_param_0'"),
        ("L: brx.idx %r1, L;", "expected the name of a .branchtargets of this function, found 'L'"),
        ("t: .branchtargets L; L: bra t;", "expected a label of this function, found 't'"),
        ("t: .branchtargets gone; ret;", "expected a label of this function, found 'gone'"),
        ("L: call %rd1, (%r1), L;", "expected a .callprototype or .calltargets of this function, found 'L'"),
        ("call 5;", "expected a function or a register, found '5'"),
        ("call f, 5;", "expected a .callprototype or .calltargets, found '5'"),
        ("t: .calltargets lost; ret;", "expected a declared name, found 'lost'"),
        ("@%r1 ret;", "expected a declared predicate, found '%r1'"),
        ("@%p9 ret;", "expected a declared predicate, found '%p9'"),
        ("@%p1 L: ret;", "expected an operand, found ':'"),
        ("@%p1 ;", "expected an instruction, found ';'"),
        ("%r1 %r2;", "expected an instruction, found '%r1'"),
    ],
)
def test_what_is_refused(statement, message):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(entry(statement))
    assert message in str(caught.value)
    assert caught.value.line >= 7
