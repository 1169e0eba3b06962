"""Names inside nested scopes."""

import pytest

from emulator.errors import PtxSyntaxError
from emulator.ptx import Address, Label, Reg, Symbol, Vector, parse
from emulator.ptx.scopes import MAX_REGISTERS, Scopes, Targets, Use
from tests.emulator.ptx.ptx_texts import entry, kernel

WAIT = """{{
    .reg .pred P1;
    LAB_WAIT:
    mbarrier.try_wait.parity.shared.b64 P1, [%r{}], 0, 10000000;
    @P1 bra.uni DONE;
    bra.uni LAB_WAIT;
    DONE:
}}
"""


def test_blocks_that_use_the_same_names():
    function = kernel(WAIT.format(1) + WAIT.format(2) + WAIT.format(3) + "ret;")
    base = function.register_names.index("P1")
    assert function.register_names[base:] == ("P1", "P1$2", "P1$3")
    assert function.register_types[base:] == ("pred",) * 3
    code = function.instructions
    assert [code[i].operands[0].slot for i in (0, 3, 6)] == [base, base + 1, base + 2]
    assert [code[i].guard.slot for i in (1, 4, 7)] == [base, base + 1, base + 2]
    assert [code[i].operands[0] for i in (1, 4, 7)] == [Label("DONE", 3), Label("DONE$2", 6), Label("DONE$3", 9)]
    assert [code[i].operands[0] for i in (2, 5, 8)] == [
        Label("LAB_WAIT", 0),
        Label("LAB_WAIT$2", 3),
        Label("LAB_WAIT$3", 6),
    ]


def test_the_innermost_declaration_wins_and_ends_with_its_scope():
    function = kernel(".reg .b32 x; mov.b32 x, 1; { .reg .b64 x; mov.b64 x, 2; { mov.b64 x, 3; } } mov.b32 x, 4;")
    outer, inner = Reg("x", "b32", 82), Reg("x$2", "b64", 83)
    assert [i.operands[0] for i in function.instructions] == [outer, inner, inner, outer]


def test_registers_of_a_range_are_shadowed_one_by_one():
    body = "{ .reg .b32 %r<3>; mov.b32 %r2, 1; mov.b32 %r3, 1; } mov.b32 %r2, 2;"
    names = [i.operands[0].name for i in kernel(body).instructions]
    assert names == ["%r2$2", "%r3", "%r2"]


def test_a_local_name_hides_one_of_the_module():
    function = kernel("{ .shared .b32 area; st.shared.b32 [area], 1; } st.shared.b32 [area], 2;", ".shared .b32 area;")
    assert [i.operands[0] for i in function.instructions] == [Address(Symbol(n), 0) for n in ("area$2", "area")]
    assert [v.name for v in function.variables] == ["area$2"]


def test_a_suffix_is_never_a_name_in_use():
    function = kernel(".reg .b32 x, x$2; { .reg .b32 x; mov.b32 x, 1; } { .reg .b32 x$2; mov.b32 x$2, 1; }")
    assert [i.operands[0].name for i in function.instructions] == ["x$3", "x$2$2"]
    assert len(set(function.register_names)) == len(function.register_names)


def test_call_frames_repeat_their_parameters():
    frame = "{ .param .b64 p0; .param .b32 r0; st.param.b64 [p0], %rd1; call (r0), f, (p0); ld.param.b32 %r1, [r0]; }"
    function = kernel(frame * 2, ".extern .func (.param .b32 r) f (.param .b64 p);")
    assert [v.name for v in function.variables] == ["p0", "r0", "p0$2", "r0$2"]
    assert function.instructions[4].operands == (
        Vector((Symbol("r0$2"),)),
        Symbol("f"),
        Vector((Symbol("p0$2"),)),
    )


def test_labels_are_visible_before_and_after_and_from_inside():
    body = "{ bra out; { bra out; in: bra in; } } out: { bra out; out: bra out; } bra out;"
    targets = [i.operands[0] for i in kernel(body).instructions]
    outer, inner = Label("out", 3), Label("out$2", 4)
    # The inner `out` ends first but is met after the outer one, so it carries the suffix.
    assert targets == [outer, outer, Label("in", 2), inner, inner, outer]


def test_a_label_of_an_inner_scope_is_hidden_outside():
    with pytest.raises(PtxSyntaxError, match="8:5: expected a label of this function, found 'in'"):
        parse(entry("bra in; { in: ret; }"))


def test_the_first_unknown_label_is_reported():
    with pytest.raises(PtxSyntaxError, match="8:5: .* found 'b'"):
        parse(entry("bra b; bra a; bra b;"))


@pytest.mark.parametrize(
    "body",
    [
        ".reg .b32 x; .reg .b64 x;",
        ".reg .b32 x, x;",
        ".reg .b32 x<3>; .reg .b32 x1;",
        ".reg .b32 k_param_0;",
        ".reg .b32 _;",
        "x: .reg .b32 x;",
    ],
)
def test_a_register_twice_in_a_scope(body):
    with pytest.raises(PtxSyntaxError, match="expected a name that this scope has not declared"):
        parse(entry(body))


def test_other_names_twice_in_a_scope():
    with pytest.raises(PtxSyntaxError, match="8:10: expected a label that this scope has not declared, found 'L'"):
        parse(entry("L: ret;  L: ret;"))
    with pytest.raises(PtxSyntaxError, match="expected a label that this scope has not declared, found '%r1'"):
        parse(entry("%r1: ret;"))
    with pytest.raises(PtxSyntaxError, match="expected a name other than 'x', which this scope declares"):
        parse(entry(".local .b32 x; .shared .b32 x;"))


def test_the_limit_of_registers():
    body = f".reg .b32 x<{MAX_REGISTERS - 82 - 1}>; .reg .b32 y;"
    assert len(kernel(body).register_names) == MAX_REGISTERS
    for more in (".reg .b32 z;", ".reg .b32 z<18446744073709551615>;"):
        with pytest.raises(
            PtxSyntaxError, match=f"expected at most {MAX_REGISTERS} registers in a function, found 'z'"
        ):
            parse(entry(body + more))


def test_names_are_as_before_when_the_last_scope_ends():
    meaning = {"shared_area": Symbol("shared_area")}
    scopes = Scopes(meaning)
    scopes.parameter("p")
    scopes.register("shared_area", "b32", 1)
    scopes.open()
    scopes.register("p", "b64", 1)
    assert meaning == {
        "p": Reg("p$2", "b64", 1),
        "shared_area": Reg("shared_area$2", "b32", 0),
    }
    assert scopes.depth == 2
    assert scopes.close() is None and scopes.close() is None
    assert meaning == {"shared_area": Symbol("shared_area")}


def test_a_use_of_the_wrong_kind_comes_back():
    scopes = Scopes({})
    place = [None, None]
    wrong = Use(7, (Targets,), place, 0)
    scopes.use("x", wrong)
    scopes.use("x", Use(9, (Label,), place, 1))
    scopes.mark("x", Label("x", 3))
    assert scopes.close() is wrong
    assert place[1] == Label("x", 3)


@pytest.mark.parametrize(
    "unit", ["{ .reg .pred P; X: bra Y; bra X;\n", "{ bra Y;\n", "{ bra Y; {} \n"], ids=["labels", "uses", "pairs"]
)
def test_deep_nesting_is_linear(unit):
    """50,000 scopes inside one another: neither the stack of Python nor the time gives in."""
    text = entry(unit * 50_000 + "}" * 50_000 + "Y: ret;")
    function = parse(text).functions["k"]
    assert function.instructions[0].operands[0].name == "Y"
