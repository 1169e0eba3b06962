"""Tokens, places and numbers."""

import math
import struct

import pytest

from emulator.errors import PtxSyntaxError
from emulator.ptx.lexer import DIRECTIVE, END, IDENT, NUMBER, PUNCT, STRING, Tokens, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("42U", 42),
        ("017", 15),
        ("00", 0),
        ("0x1F", 31),
        ("0XffU", 255),
        ("0b101", 5),
        ("0B1U", 1),
        ("18446744073709551615", 2**64 - 1),
        ("0xFFFFFFFFFFFFFFFF", 2**64 - 1),
        ("0b" + "1" * 64, 2**64 - 1),
    ],
)
def test_integers(text, value):
    found = number(text)
    assert (found.bits, found.width, found.text) == (value, 0, text)
    negative = number(text, negative=True)
    assert (negative.bits, negative.width, negative.text) == (-value, 0, "-" + text)


@pytest.mark.parametrize(
    "text", ["09", "08U", "18446744073709551616", "0x1FFFFFFFFFFFFFFFF", "9" * 5000, "0b" + "1" * 65]
)
def test_integers_that_are_none(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "bits", "width"),
    [
        ("0f3F800000", 0x3F800000, 32),
        ("0FfF800000", 0xFF800000, 32),
        ("0d3FF0000000000000", 0x3FF0000000000000, 64),
        ("0D7ff8000000000001", 0x7FF8000000000001, 64),
    ],
)
def test_floats_by_pattern(text, bits, width):
    found = number(text)
    assert (found.bits, found.width) == (bits, width)
    assert number(text, negative=True) is None


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), ("5.", 5.0), (".25", 0.25), ("1e5", 1e5), ("2.5E-3", 2.5e-3)]
)
def test_decimal_floats_are_64_bits(text, value):
    found = number(text)
    assert (found.bits, found.width) == (struct.unpack("<Q", struct.pack("<d", value))[0], 64)
    negative = number(text, negative=True)
    assert negative.bits == found.bits | 1 << 63


def test_a_decimal_float_above_the_range_is_infinite():
    assert number("1e999").bits == struct.unpack("<Q", struct.pack("<d", math.inf))[0]


def test_kinds_and_texts():
    tokens = Tokens('ld.shared::cta.b32 %r1.x, [_+0x10]; .reg .b64 %rd<4>; "a b" @!p')
    pairs = list(zip(tokens.kinds, tokens.texts, strict=True))
    assert pairs[:8] == [
        (IDENT, "ld.shared::cta.b32"),
        (IDENT, "%r1.x"),
        (PUNCT, ","),
        (PUNCT, "["),
        (IDENT, "_"),
        (PUNCT, "+"),
        (NUMBER, "0x10"),
        (PUNCT, "]"),
    ]
    assert pairs[9:15] == [
        (DIRECTIVE, ".reg"),
        (DIRECTIVE, ".b64"),
        (IDENT, "%rd"),
        (PUNCT, "<"),
        (NUMBER, "4"),
        (PUNCT, ">"),
    ]
    assert pairs[16:] == [(STRING, '"a b"'), (PUNCT, "@"), (PUNCT, "!"), (IDENT, "p"), (END, "")]


def test_comments_and_blanks_vanish():
    tokens = Tokens("/* a\n * b **/ret// c\n;/**/\r\n\t// at the end")
    assert tokens.texts == ["ret", ";", ""]
    assert [tokens.line(i) for i in range(3)] == [2, 3, 4]


def test_a_label_is_no_part_of_what_follows():
    assert Tokens("L:mov.u32").texts == ["L", ":", "mov.u32", ""]


def test_an_empty_text_is_its_end():
    tokens = Tokens("")
    assert tokens.kinds == [END]
    assert str(tokens.error("x")) == "1:1: expected x, found the end of the text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mov\n  \u00e9", "2:3: expected a token of PTX, found '\u00e9'"),
        ("a \0", "1:3: expected a token of PTX, found '\0'"),
        ("a /* b", "1:3: expected a token of PTX, found a comment without end"),
        ('.pragma "x\n"', "1:9: expected a token of PTX, found a string without end"),
        ("12abc", "1:1: expected a token of PTX, found '1'"),
        ("0x", "1:1: expected a token of PTX, found '0'"),
        ("a.b.", "1:4: expected a token of PTX, found '.'"),
        ("\u0661", "1:1: expected a token of PTX, found '\u0661'"),
    ],
)
def test_what_is_no_token(text, message):
    with pytest.raises(PtxSyntaxError) as caught:
        Tokens(text)
    assert str(caught.value) == message


def test_long_texts_are_cut_in_messages():
    message = str(Tokens("a" * 200).error("x"))
    assert message == "1:1: expected x, found '" + "a" * 77 + "...'"


def test_the_place_of_an_error():
    tokens = Tokens("a\n\n   b c")
    error = tokens.error("x", 2)
    assert (error.line, error.column) == (3, 6)


def test_steps_through_tokens():
    tokens = Tokens('a , 7 -8 "," { { } } ;')
    assert tokens.take(IDENT, "a name") == "a"
    assert not tokens.next_is(";")
    tokens.expect(",")
    assert tokens.integer() == 7
    assert tokens.signed().bits == -8
    assert not tokens.next_is('","')
    tokens.at += 1
    tokens.skip_block("{", "}")
    with pytest.raises(PtxSyntaxError, match="1:22: expected an integer, found ';'"):
        tokens.integer()
    with pytest.raises(PtxSyntaxError, match="expected ',', found ';'"):
        tokens.expect(",")
    with pytest.raises(PtxSyntaxError, match="expected a number of at most 64 bits, found ';'"):
        tokens.signed()


def test_a_block_without_end():
    tokens = Tokens("{ { }")
    with pytest.raises(PtxSyntaxError, match="1:6: expected '}', found the end of the text"):
        tokens.skip_block("{", "}")


@pytest.mark.parametrize("unit", ["/*", "// x\n", "9", "a.", '"', "[", "0x9", "1e"])
def test_hostile_repetitions_cost_linear_time(unit):
    """Two million characters: anything quadratic would take hours."""
    text = unit * (2_000_000 // len(unit))
    try:
        Tokens(text)
    except PtxSyntaxError as error:
        assert error.line >= 1
