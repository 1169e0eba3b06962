"""The language of `-k`: words joined by `and`, `or`, `not` and parentheses; a word matches where it occurs in an id."""

from __future__ import annotations

import re
from collections.abc import Callable

from gate.errors import UsageError

_TOKEN = re.compile(r"\s*(?:([()])|([^\s()]+))")
Matcher = Callable[[str], bool]


def compile_expression(text: str) -> Matcher:
    """A function that says whether an id matches `text` (letter case does not matter).

    Raises:
        UsageError: with the column of the first word that does not fit.
    """
    parser = _Parser(text)
    matcher = parser.disjunction()
    if parser.word is not None:
        raise parser.error(f"did not expect '{parser.word}'")
    return matcher


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(1) or m.group(2), m.start(m.lastindex or 0)) for m in _TOKEN.finditer(text)]
        self.at = 0

    @property
    def word(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def error(self, message: str) -> UsageError:
        column = self.tokens[self.at][1] + 1 if self.at < len(self.tokens) else len(self.text) + 1
        return UsageError(f"-k '{self.text}', column {column}: {message}; use words with and, or, not, ( )")

    def take(self, word: str) -> bool:
        if self.word == word:
            self.at += 1
            return True
        return False

    def disjunction(self) -> Matcher:
        parts = [self.conjunction()]
        while self.take("or"):
            parts.append(self.conjunction())
        return lambda text: any(part(text) for part in parts)

    def conjunction(self) -> Matcher:
        parts = [self.negation()]
        while self.take("and"):
            parts.append(self.negation())
        return lambda text: all(part(text) for part in parts)

    def negation(self) -> Matcher:
        if self.take("not"):
            inner = self.negation()
            return lambda text: not inner(text)
        if self.take("("):
            inner = self.disjunction()
            if not self.take(")"):
                raise self.error("')' is missing")
            return inner
        word = self.word
        if word is None or word in ("and", "or", ")"):
            raise self.error("a word is missing here" if word is None else f"did not expect '{word}'")
        self.at += 1
        wanted = word.lower()
        return lambda text: wanted in text.lower()
