"""Whole modules: structure, errors, hostile and mutated texts, speed."""

import random
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import PtxSyntaxError
from emulator.ptx import Parameter, Prototype, parse
from tests.emulator.ptx.ptx_texts import EVERYTHING, HEADER, entry


def test_the_header():
    module = parse(".version 9.0\n.target sm_100a, debug, texmode_independent\n.address_size 64\n")
    assert (module.version, module.target, module.variables, module.functions) == ("9.0", "sm_100a", (), {})
    assert parse(".version 8.8 .target sm_90a").target == "sm_90a"


def test_every_form_in_one_text():
    module = parse(EVERYTHING)
    assert module.source == EVERYTHING
    assert [v.name for v in module.variables] == ["dynamic", "bars", "counter", "table", "pairs"]
    assert list(module.functions) == ["vprintf", "helper", "other", "demo"]
    assert module.functions["other"] == module.functions["helper"]
    vprintf = module.functions["vprintf"]
    assert (vprintf.extern, vprintf.entry, vprintf.instructions) == (True, False, ())
    assert vprintf.returns == (Parameter("status", 0, 4, 4),)
    assert vprintf.parameters == (Parameter("format", 0, 8, 8), Parameter("args", 8, 8, 8))
    demo = module.functions["demo"]
    assert (demo.entry, demo.extern, demo.parameter_bytes) == (True, False, 140)
    assert demo.directives == {
        "reqntid": (128, 1, 1),
        "minnctapersm": (1,),
        "reqnctapercluster": (2, 1, 1),
        "explicitcluster": (),
    }
    frame = (Parameter("_", 0, 4, 4),)
    assert demo.prototypes == {"shape": Prototype(frame, frame)}
    assert len(demo.instructions) == 35
    assert demo.instructions[0].loc == ("kernels/demo.py", 12)
    assert demo.instructions[-1].loc == ("kernels/demo.py", 20)


def test_an_opcode_may_be_written_in_parts():
    text = entry("mov .u32 %r1, 1; ld.global .v2 .b32 {%r1, %r2}, [%rd1];")
    assert [i.opcode for i in parse(text).functions["k"].instructions] == ["mov.u32", "ld.global.v2.b32"]


def test_functions_see_only_their_own_names():
    text = HEADER + ".entry a (.param .b32 p) { .reg .b32 x; ret; } .entry b () { ld.param.b32 %r1, [p]; }"
    with pytest.raises(PtxSyntaxError, match="expected a declared register or a special register, found '%r1'"):
        parse(text)
    with pytest.raises(PtxSyntaxError, match="4:71: expected a declared name, found 'x'"):
        parse(HEADER + ".entry a (.param .b32 p) { .reg .b32 x; ret; } .entry b () { bar.sync x; }")


def test_a_function_may_be_defined_after_its_use():
    module = parse(HEADER + ".entry k () { call f; ret; } .func f () { ret; }")
    assert module.functions["k"].instructions[0].operands[1].name == "f"


def test_a_definition_replaces_a_declaration():
    module = parse(HEADER + ".extern .func f; .func f (.param .b32 a) { ret; } .extern .func f;")
    assert (module.functions["f"].extern, len(module.functions["f"].instructions)) == (False, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: expected '.version', found the end of the text"),
        (".version 8", "1:10: expected a version such as 8.8, found '8'"),
        (".version 8.", "1:10: expected a version such as 8.8, found '8.'"),
        (".version 8.8", "1:13: expected '.target', found the end of the text"),
        (".version 8.8 .target 90", "1:22: expected a target such as sm_90a, found '90'"),
        (".version 8.8 .target sm_90a .address_size 32", "1:43: expected 64, found '32'"),
        (HEADER + "ret;", "4:1: expected a directive, found 'ret'"),
        (
            HEADER + ".reg .b32 x;",
            "4:1: expected a variable, a function or another directive of a module, found '.reg'",
        ),
        (HEADER + ".entry { }", "4:8: expected a name, found '{'"),
        (HEADER + ".entry k ( { }", "4:12: expected '.param', found '{'"),
        (HEADER + ".entry k () ret;", "4:13: expected '{', found 'ret'"),
        (HEADER + ".entry k () {", "expected an instruction, a label, a directive or '}', found the end of the text"),
        (HEADER + ".entry k () { ) }", "expected an instruction, a label, a directive or '}', found ')'"),
        (HEADER + ".entry k () { } }", "4:17: expected a directive, found '}'"),
        (HEADER + ".entry k () { } .entry k () { }", "expected a name that the module has not declared, found 'k'"),
        (HEADER + ".global .b32 k; .entry k () { }", "expected a name that the module has not declared, found 'k'"),
        (HEADER + ".alias a, b;", "4:11: expected a function with a body, found 'b'"),
        (HEADER + ".func b () { } .alias b, b;", "expected a name that the module has not defined, found 'b'"),
        (HEADER + ".func b () { } .alias a b;", "expected ',', found 'b'"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert message in str(caught.value)


def parses_or_explains(text):
    try:
        parse(text)
    except PtxSyntaxError as error:
        assert re.match(r"\d+:\d+: expected .+, found ", str(error))
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        return False
    return True


PIECES = (
    "{ } ( ) [ ] ; , : @ ! | < > + - _ = %r1 %p1 %tid.x .reg .param .loc .shared .global .align .b32 .v4 .pred bra "
    'call brx.idx 99999999999999999999 0x 09 0f 1e999 -1.5 /* */ // " \0 \u00e9 .branchtargets .callprototype .file '
    ".section .entry .func .alias .extern $skip P1 .b8 a.b :: 0f3F800000 WARP_SZ demo"
).split(" ")


def mutate(text, rng):
    """A few edits of the kinds that slips of an editor and of a generator make."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        a, b = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:a] + text[a + rng.choice((1, 1, 8, 80)) :]
        elif kind == 1:
            text = text[:a] + rng.choice(PIECES) + text[a:]
        elif kind == 2:
            text = text[:a] + chr(rng.randrange(32, 127)) + text[a + 1 :]
        elif kind == 3:
            text = text[:a] + text[b : b + 30] + text[a:]
        elif kind == 4:
            text = text[:b]
        else:
            lines = text.split("\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
    return text


@pytest.mark.parametrize("seed", range(4))
def test_mutated_texts_parse_or_explain(seed):
    rng = random.Random(seed)
    outcomes = [parses_or_explains(mutate(EVERYTHING, rng)) for _ in range(250)]
    assert 10 < sum(outcomes) < 240


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map(" ".join))
def test_any_tokens_parse_or_explain(body):
    parses_or_explains(entry(body))
    parses_or_explains(HEADER + body)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_parses_or_explains(text):
    parses_or_explains(text)


def test_every_prefix_parses_or_explains():
    step = 7
    assert not any(parses_or_explains(EVERYTHING[:end]) for end in range(0, len(HEADER) - 25, step))
    for end in range(len(HEADER), len(EVERYTHING), step):
        parses_or_explains(EVERYTHING[:end])


LINES = [
    "mov.b64 \t%rd{n}, {{%r{n}, %r{m}}};",
    "fma.rn.f32x2 \t%rd{n}, %rd{m}, %rd{n}, %rd{m};",
    "add.s32 \t%r{n}, %r{m}, -{n};",
    "setp.lt.s32 \t%p{n}, %r{m}, 0x{n};",
    "@%p{n} bra \t$L__BB0_{n};",
    "ld.shared.v4.b32 \t{{%r1, %r2, %r3, %r{n}}}, [%r{m}+{n}];",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%r{n}+16384], "
    "[%rd{m}, {{%r1, %r2}}], [%r{m}+8], %rd{n};",
    "elect.sync \t%r{n}|%p{m}, -1;",
    "ex2.approx.ftz.f32 \t%r{n}, %r{m};",
    "{{\n\t.reg .pred P1;\n\tLAB_WAIT:\n\tmbarrier.try_wait.parity.shared.b64 P1, [%r{n}], %r{m}, 10000000;\n\t"
    "@P1 bra.uni DONE;\n\tbra.uni LAB_WAIT;\n\tDONE:\n\t}}",
    "cvt.rn.f16x2.f32 \t%r{n}, %r{m}, %r1;",
    "tcgen05.ld.sync.aligned.32x32b.x32.b32 \t{{" + ", ".join(f"%r{i}" for i in range(32)) + "}}, [%r{n}];",
]


def long_kernel(instructions):
    """A kernel with the mix of a compiled attention kernel."""
    labels = "".join(f"$L__BB0_{n}:\n\tret;\n" for n in range(100))
    body = "\n\t".join(LINES[i % len(LINES)].format(n=i % 100, m=(i * 7) % 100) for i in range(instructions * 6 // 7))
    return (
        f"{HEADER}.visible .entry k(.param .u64 p)\n.reqntid 512, 1, 1\n{{\n"
        f".reg .pred %p<100>;\n.reg .b32 %r<3400>;\n.reg .b64 %rd<1200>;\n{body}\n{labels}}}\n"
    )


def test_a_long_kernel_parses_whole():
    """The size of a compiled attention kernel; `python -m benchmarks parser` has its time."""
    assert len(parse(long_kernel(4200)).functions["k"].instructions) >= 4000


def test_no_recursion():
    """A stack of a few frames more than the test's own is enough for any depth."""
    text = entry("{" * 3000 + "}" * 3000) + ".global .b8 x" + "[1]" * 3000 + " = " + "{" * 3000 + "1" + "}" * 3000 + ";"
    limit = sys.getrecursionlimit()
    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 40)
    try:
        module = parse(text)
    finally:
        sys.setrecursionlimit(limit)
    assert module.variables[0].init == b"\1"
