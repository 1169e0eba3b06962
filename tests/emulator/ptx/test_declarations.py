"""Variables, initial values, parameters and registers."""

import struct

import pytest

from emulator.errors import PtxSyntaxError
from emulator.ptx import Parameter, Variable, parse
from tests.emulator.ptx.ptx_texts import HEADER, entry, kernel


def variables(text):
    return parse(HEADER + text).variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".global .b32 x;", Variable("x", "global", 4, 4)),
        (".visible .global .align 16 .u64 x;", Variable("x", "global", 16, 8)),
        (".shared .align 2 .b32 x;", Variable("x", "shared", 4, 4)),
        (".shared .b8 x[4][8];", Variable("x", "shared", 1, 32)),
        (".weak .const .v4 .f32 x[2];", Variable("x", "const", 16, 32)),
        (".global .v2 .align 32 .b16 x;", Variable("x", "global", 32, 4)),
        (".extern .shared .align 1024 .b8 x[];", Variable("x", "shared", 1024, 0, None, True)),
        (".extern .global .f64 x;", Variable("x", "global", 8, 8, None, True)),
        (".global .b128 x;", Variable("x", "global", 16, 16)),
        (".global .attribute(.unified(19, 95)) .b32 x;", Variable("x", "global", 4, 4)),
        (".global .texref x;", Variable("x", "global", 8, 8)),
        (".common .global .b32 x[0x10];", Variable("x", "global", 4, 64)),
    ],
)
def test_variables(text, expected):
    assert variables(text) == (expected,)


def test_several_variables_of_one_declaration():
    assert variables(".global .align 8 .b16 x, y[3], z = 5;") == (
        Variable("x", "global", 8, 2),
        Variable("y", "global", 8, 6),
        Variable("z", "global", 8, 2, b"\5\0"),
    )


@pytest.mark.parametrize(
    ("text", "init"),
    [
        (".global .u32 x = 5;", struct.pack("<I", 5)),
        (".global .s16 x = -2;", struct.pack("<h", -2)),
        (".global .b8 x = 258;", b"\2"),
        (".global .u64 x = 0xFFFFFFFFFFFFFFFF;", b"\xff" * 8),
        (".global .b8 x[] = {1, 2, 3};", b"\1\2\3"),
        (".global .b8 x[4] = {1};", b"\1\0\0\0"),
        (".global .b8 x[3] = {};", b"\0\0\0"),
        (".global .b16 x[2][2] = {{1}, {2, 3}};", struct.pack("<4h", 1, 0, 2, 3)),
        (".global .b8 x[2][2][2] = {{{1}}, {{}, {7, 8}}};", bytes([1, 0, 0, 0, 0, 0, 7, 8])),
        (".global .b8 x[][3] = {{1}, {2, 3}};", bytes([1, 0, 0, 2, 3, 0])),
        (".global .v2 .b8 x = {1, 2};", b"\1\2"),
        (".global .v2 .b8 x[2] = {{1, 2}, {3, 4}};", b"\1\2\3\4"),
        (".global .f32 x = 1.5;", struct.pack("<f", 1.5)),
        (".global .f32 x = 0.1;", struct.pack("<f", 0.1)),
        (".global .f32 x = 1e300;", struct.pack("<f", float("inf"))),
        (".global .f32 x = -1e300;", struct.pack("<f", float("-inf"))),
        (".global .f32 x = 0f7FC00001;", bytes.fromhex("0100c07f")),
        (".global .f32 x = 0d3FF8000000000000;", struct.pack("<f", 1.5)),
        (".global .f64 x = 0f3FC00000;", struct.pack("<d", 1.5)),
        (".const .f64 x[2] = {-1.5, 0d3FF8000000000000};", struct.pack("<2d", -1.5, 1.5)),
        (".global .b32 x = 0f3F800000;", struct.pack("<f", 1)),
    ],
)
def test_initial_values(text, init):
    (variable,) = variables(text)
    assert (variable.init, variable.nbytes) == (init, len(init))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".global x;", "expected a type, found 'x'"),
        (".global .b33 x;", "expected a type, found '.b33'"),
        (".global .pred x;", "expected a type that has a size in memory, found '.pred'"),
        (".global .b32 %x.y;", "expected a name, found '%x.y'"),
        (".global .align 3 .b32 x;", "expected an alignment that is a power of two, found '3'"),
        (".global .align 0 .b32 x;", "expected an alignment that is a power of two, found '0'"),
        (".global .align x .b32 y;", "expected an alignment, found 'x'"),
        (".global .b32 x[];", "expected an array size or initial values, found ';'"),
        (".global .b32 x[2][];", "expected an array size, found ']'"),
        (".global .b32 x[-1];", "expected an array size, found '-'"),
        (".global .b32 x[2;", "expected ']', found ';'"),
        (
            ".global .b8 x[99999999999999];",
            "expected an array of at most 1099511627776 elements, found '99999999999999'",
        ),
        (".global .b64 x[1099511627776];", "expected a variable of at most 1099511627776 bytes, found 'x'"),
        (".global .b8 x[99999999] = {1};", "expected no initial values for a variable above 67108864 bytes, found '{'"),
        (".global .b32 x y;", "expected ';', found 'y'"),
        (".global .b32 x, ;", "expected a name, found ';'"),
        (".shared .b32 x = 1;", "expected no initial value in space .shared, found '='"),
        (".global .b32 y; .global .u64 x = y;", "an address cannot be an initial value here), found 'y'"),
        (".global .u64 x = generic(y);", "an address cannot be an initial value here), found 'generic'"),
        (".global .u8 x[] = {0xFF(y)};", "an address cannot be an initial value here), found '0xFF'"),
        (".global .b32 x = {1};", "expected a number, found '{'"),
        (".global .b32 x[2] = 1;", "expected '{', found '1'"),
        (".global .b32 x[2][2] = {1, 2};", "expected '{', found '1'"),
        (".global .b32 x[2] = {1, 2, 3};", "expected '}', found '3'"),
        (".global .b32 x[2] = {{1}, {2}};", "expected a number, found '{'"),
        (".global .b32 x[2] = {1;", "expected ',' or '}', found ';'"),
        (".global .f32 x = 1;", "expected a value of type .f32, found '1'"),
        (".global .f16 x = 1.5;", "expected a value of type .f16, found '1.5'"),
        (".global .u32 x = 1.5;", "expected a value of type .u32, found '1.5'"),
        (".global .b32 x; .global .b32 x;", "expected a name other than 'x', which is declared already"),
        (".func x () { ret; } .global .b32 x;", "expected a name other than 'x', which is declared already"),
        (".local .b32 x;", "expected a variable, a function or another directive of a module, found '.local'"),
        (".entry k (.reg .b32 a) { ret; }", "expected '.param' (register parameters are not supported), found '.reg'"),
        (".entry k (.param .b32 a, .param .b32 a) { ret; }", "expected parameters of different names, not 'a' twice"),
        (".entry k (.param .b32 a .param .b32 b) { ret; }", "expected ')', found '.param'"),
        (".entry k (.param .b8 a[1099511627777]) { ret; }", "expected an array of at most 1099511627776 elements"),
        (".entry k (.param .b64 a[1099511627776]) { ret; }", "expected a parameter of at most 1099511627776 bytes"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(HEADER + text)
    assert message in str(caught.value)
    assert caught.value.line == 4


def test_a_definition_completes_an_external_declaration():
    expected = (Variable("x", "global", 4, 4, b"\5\0\0\0"), Variable("y", "global", 4, 4))
    assert variables(".extern .global .b32 x; .global .b32 y; .global .b32 x = 5; .extern .global .b32 x;") == expected


def test_parameters_stand_at_their_alignment():
    text = entry(
        "ret;",
        parameters=".param .u8 a, .param .align 64 .b8 b[128], .param .u64 .ptr .shared .align 16 c, .param .f32 d, "
        ".param .u64 .ptr e, .param .align 2 .b64 f, .param .v2 .b16 g",
    )
    function = parse(text).functions["k"]
    assert function.parameters == (
        Parameter("a", 0, 1, 1),
        Parameter("b", 64, 128, 64),
        Parameter("c", 192, 8, 8),
        Parameter("d", 200, 4, 4),
        Parameter("e", 208, 8, 8),
        Parameter("f", 216, 8, 8),
        Parameter("g", 224, 4, 4),
    )
    assert function.parameter_bytes == 228


@pytest.mark.parametrize("head", [".entry k", ".entry k ()"])
def test_no_parameters(head):
    function = parse(f"{HEADER}{head} {{ ret; }}").functions["k"]
    assert (function.parameters, function.parameter_bytes) == ((), 0)


def test_an_open_parameter_has_no_bytes():
    function = parse(HEADER + ".func f (.param .b32 a, .param .align 8 .b8 rest[]) { ret; }").functions["f"]
    assert function.parameters == (Parameter("a", 0, 4, 4), Parameter("rest", 8, 0, 8))


def test_registers_get_slots_in_order():
    function = parse(HEADER + ".entry k { .reg .b32 a, %r<3>, %e<0>; .reg .v2 .f64 v; .reg .pred p; ret; }").functions[
        "k"
    ]
    assert function.register_names == ("a", "%r0", "%r1", "%r2", "v.x", "v.y", "p")
    assert function.register_types == ("b32", "b32", "b32", "b32", "f64", "f64", "pred")


def test_a_range_of_vectors():
    function = parse(HEADER + ".entry k { .reg .v2 .b32 v<2>; ret; }").functions["k"]
    assert function.register_names == ("v0.x", "v0.y", "v1.x", "v1.y")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (".reg x;", "expected a type, found 'x'"),
        (".reg .b32 x<y>;", "expected a number of registers, found 'y'"),
        (".reg .b32 x<3;", "expected '>', found ';'"),
        (".reg .b32 x.y;", "expected a name, found 'x.y'"),
        (".reg .b32 x", "expected ';', found '}'"),
        (".reg .v8 .b32 x;", "expected a type, found '.v8'"),
    ],
)
def test_registers_that_are_refused(body, message):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(entry(body))
    assert message in str(caught.value)


def test_variables_of_a_body():
    function = kernel(
        ".local .align 8 .b8 stack[16]; .shared .b32 area[4]; .global .b32 once = 3; mov.b64 %rd1, stack;"
    )
    assert function.variables == (
        Variable("stack", "local", 8, 16),
        Variable("area", "shared", 4, 16),
        Variable("once", "global", 4, 4, b"\3\0\0\0"),
    )
