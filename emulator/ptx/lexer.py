"""PTX text to tokens: one compiled expression, one pass, flat lists (no object per token).

Numbers follow the PTX manual, section 4.5 (constants): decimal, hexadecimal, octal and binary integers with an optional
trailing `U`, `0f` and `0d` floats by bit pattern, and decimal floats, which are 64 bits wide.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

from emulator.errors import PtxSyntaxError
from emulator.ptx.module import Imm

IDENT, NUMBER, DIRECTIVE, STRING, PUNCT, END, BAD = range(1, 8)

# Blanks and comments are possessive: an unterminated comment must not be tried again at every shorter prefix.
_TOKEN = re.compile(
    r"""(?:\s++|//[^\n]*+|/\*(?s:.*?)\*/)*+
    (?:([A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
      |((?:0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
         | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U?)(?![\w$]))
      |(\.[A-Za-z_]\w*(?:::\w+)*)
      |("[^"\n]*")
      |([][{}(),;:+\-|!@<>=*])
      |(\Z)
      |(.))""",
    re.VERBOSE | re.ASCII,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAX_INTEGER = (1 << 64) - 1
_MAX_DIGITS = 66  # 64 binary digits and `0b`; longer texts are not even converted


def integer_value(text: str) -> int | None:
    """The value of an integer literal without sign, or None if it is no integer of at most 64 bits."""
    if text[-1] == "U":
        text = text[:-1]
    if len(text) > _MAX_DIGITS:
        return None
    try:
        octal = len(text) > 1 and text[0] == "0" and text.isdigit()
        value = int(text, 8 if octal else 0)
    except ValueError:
        return None
    return value if value <= _MAX_INTEGER else None


def number(text: str, negative: bool = False) -> Imm | None:
    """A number token as an `Imm`; None if it is malformed (`09`, a sign before `0f`) or needs more than 64 bits."""
    shown = "-" + text if negative else text
    kind = text[1:2]
    if text[0] == "0" and kind in ("f", "F", "d", "D"):
        return None if negative else Imm(int(text[2:], 16), 32 if kind in ("f", "F") else 64, text)
    if kind not in ("x", "X") and any(c in ".eE" for c in text):
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(shown)))
        return Imm(bits, 64, shown)
    value = integer_value(text)
    if value is None:
        return None
    return Imm(-value if negative else value, 0, shown)


class Tokens:
    """All tokens of a text and the place of the parser among them.

    `kinds`, `texts` and `starts` run in parallel and end with one END token, which is never passed.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.kinds: list[int] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        kind, text, start = self.kinds.append, self.texts.append, self.starts.append
        for match in _TOKEN.finditer(source):
            index = match.lastindex or END
            kind(index)
            text(match[index])
            start(match.start(index))
            if index >= END:
                break
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", source))]
        if self.kinds[-1] == BAD:
            raise self.error("a token of PTX", len(self.kinds) - 1)

    def line(self, index: int) -> int:
        """The line of a token, from 1."""
        return bisect_right(self._line_starts, self.starts[index])

    def error(self, expected: str, index: int | None = None) -> PtxSyntaxError:
        """The error `expected X, found Y` at a token (the next one if `index` is None)."""
        index = self.at if index is None else index
        start = self.starts[index]
        line = self.line(index)
        column = start - self._line_starts[line - 1] + 1
        return PtxSyntaxError(line, column, f"expected {expected}, found {self._found(index)}")

    def _found(self, index: int) -> str:
        if self.kinds[index] == END:
            return "the end of the text"
        if self.source.startswith("/*", self.starts[index]):
            return "a comment without end"
        if self.texts[index] == '"':
            return "a string without end"
        text = self.texts[index]
        return f"'{text}'" if len(text) <= 80 else f"'{text[:77]}...'"

    def text_of(self, first: int, last: int) -> str:
        """The source from one token to another, without comments and with single blanks."""
        text = self.source[self.starts[first] : self.starts[last] + len(self.texts[last])]
        if "/" in text:
            text = _COMMENT.sub(" ", text)
        return " ".join(text.split())

    def next_is(self, text: str) -> bool:
        """Consume the next token if it reads `text`."""
        if self.texts[self.at] != text or self.kinds[self.at] == STRING:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Consume the next token, which must read `text`."""
        if self.texts[self.at] != text:
            raise self.error(f"'{text}'")
        self.at += 1

    def take(self, kind: int, what: str) -> str:
        """Consume the next token, which must be of `kind`; `what` names it in the error."""
        if self.kinds[self.at] != kind:
            raise self.error(what)
        self.at += 1
        return self.texts[self.at - 1]

    def integer(self, what: str = "an integer") -> int:
        """Consume an integer without sign."""
        text = self.texts[self.at]
        value = integer_value(text) if self.kinds[self.at] == NUMBER else None
        if value is None:
            raise self.error(what)
        self.at += 1
        return value

    def signed(self) -> Imm:
        """Consume a number with an optional sign."""
        negative = self.texts[self.at] == "-"
        if negative or self.texts[self.at] == "+":
            self.at += 1
        value = number(self.texts[self.at], negative) if self.kinds[self.at] == NUMBER else None
        if value is None:
            raise self.error("a number of at most 64 bits")
        self.at += 1
        return value

    def skip_block(self, opening: str, closing: str) -> None:
        """Consume a block from `opening` to the matching `closing`."""
        self.expect(opening)
        depth = 1
        while depth:
            if self.kinds[self.at] == END:
                raise self.error(f"'{closing}'")
            depth += {opening: 1, closing: -1}.get(self.texts[self.at], 0)
            self.at += 1
