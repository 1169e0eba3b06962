"""Debug lines, pragmas, and what a function asks of its launch."""

import pytest

from emulator.errors import PtxSyntaxError
from emulator.ptx import parse
from tests.emulator.ptx.ptx_texts import HEADER, entry, kernel


def test_performance_directives():
    text = """.entry k () .maxntid 128, 2 .reqntid 32 .minnctapersm 1 .maxnreg 64 .reqnctapercluster 2,1,1
    .explicitcluster .maxclusterrank 8 .blocksareclusters .pragma "nounroll"; .noreturn { ret; }"""
    assert parse(HEADER + text).functions["k"].directives == {
        "maxntid": (128, 2),
        "reqntid": (32,),
        "minnctapersm": (1,),
        "maxnreg": (64,),
        "reqnctapercluster": (2, 1, 1),
        "explicitcluster": (),
        "maxclusterrank": (8,),
        "blocksareclusters": (),
        "noreturn": (),
    }


def test_locations_hold_until_the_next_one():
    text = entry(
        """ret;
        .loc 1 92 5
        ret; ret;
        .loc 2 93 5, function_name $L__info0, inlined_at 1 45 3
        ret;
        .loc 2 94 1, function_name $L__info0+8, inlined_at 1 45 3
        ret;
        .loc 1 0 0
        ret;
        { .loc 7 3 3
        ret; }
        ret;""",
        before='.file 1 "a b.py"',
    )
    code = parse(text + '.file 2 "b.py", 1700000000, 42\n').functions["k"].instructions
    first, second = ("a b.py", 92), ("file 7", 3)
    assert [i.loc for i in code] == [None, first, first, ("b.py", 93), ("b.py", 94), None, second, second]


def test_lines_and_texts():
    code = kernel("ret;\n  @!%p1   bra.uni\tend; end: mov.b32 %r1, // why\n 5;").instructions
    assert [i.line for i in code] == [8, 9, 9]
    assert [i.text for i in code] == ["ret;", "@!%p1 bra.uni end;", "mov.b32 %r1, 5;"]


def test_sections_and_pragmas_are_skipped():
    text = entry('.pragma "nounroll"; .pragma "a", "b"; .section .x { .b8 1 } ret;', before='.pragma "c";')
    text += ".section .debug_str\n{\ninfo: .b8 99,117\n{ .b32 a-b }\n}\n.section named { }"
    assert [i.opcode for i in parse(text).functions["k"].instructions] == ["ret"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".entry k .maxntid x { ret; }", "expected '{', found 'x'"),
        (".entry k .maxntid 1, { ret; }", "expected an integer, found '{'"),
        (".entry k .fastest { ret; }", "expected a performance directive or '{', found '.fastest'"),
        (".pragma nounroll;", "expected a string, found 'nounroll'"),
        ('.pragma "a"', "expected ';', found the end of the text"),
        (".file x;", "expected a file number, found 'x'"),
        (".file 1 x;", "expected a path in quotes, found 'x'"),
        (".section ;", "expected the name of a section, found ';'"),
        (".section .x {", "expected '}', found the end of the text"),
        (".entry k { .loc x }", "expected a file number, found 'x'"),
        (".entry k { .loc 1 x }", "expected a line, found 'x'"),
        (".entry k { .loc 1 1 }", "expected a column, found '}'"),
        (".entry k { .loc 1 1 1, other 5 }", "expected 'function_name' or 'inlined_at', found 'other'"),
        (".entry k { .loc 1 1 1, inlined_at 5 }", "expected a line, found '}'"),
        (".entry k { .elsewhere }", "expected an instruction or a directive of a body, found '.elsewhere'"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(HEADER + text)
    assert message in str(caught.value)
