"""Directives that carry no code: debugging, pragmas, and what a function asks of its launch (PTX manual, 11)."""

from __future__ import annotations

from emulator.ptx.lexer import DIRECTIVE, IDENT, NUMBER, STRING, Tokens

PERFORMANCE = frozenset(
    (
        "maxnreg maxntid reqntid minnctapersm maxnctapersm noreturn reqnctapercluster explicitcluster "
        "maxclusterrank blocksareclusters abi_preserve abi_preserve_control"
    ).split()
)


def performance(tokens: Tokens) -> dict[str, tuple[int, ...]]:
    """What stands between parameters and body: `.reqntid 128, 1, 1` becomes `{"reqntid": (128, 1, 1)}`."""
    found: dict[str, tuple[int, ...]] = {}
    while tokens.kinds[tokens.at] == DIRECTIVE:
        title = tokens.texts[tokens.at][1:]
        if title == "pragma":
            pragma(tokens)
            continue
        if title not in PERFORMANCE:
            raise tokens.error("a performance directive or '{'")
        tokens.at += 1
        values: list[int] = []
        while tokens.kinds[tokens.at] == NUMBER or (values and tokens.next_is(",")):
            values.append(tokens.integer())
        found[title] = tuple(values)
    return found


def pragma(tokens: Tokens) -> None:
    """`.pragma "…", …;`: advice to the compiler, not kept."""
    tokens.expect(".pragma")
    tokens.take(STRING, "a string")
    while tokens.next_is(","):
        tokens.take(STRING, "a string")
    tokens.expect(";")


def file(tokens: Tokens, files: dict[int, str]) -> None:
    """`.file 1 "path"[, timestamp, size]`: adds the path to `files`."""
    tokens.expect(".file")
    index = tokens.integer("a file number")
    files[index] = tokens.take(STRING, "a path in quotes")[1:-1]
    while tokens.next_is(","):
        tokens.integer()


def location(tokens: Tokens) -> tuple[int, int] | None:
    """`.loc file line column[, function_name label[+n], inlined_at file line column]`: file number and line.

    The place is the innermost one. Line 0 is the compiler's mark for code of no line: None."""
    tokens.expect(".loc")
    place = (tokens.integer("a file number"), tokens.integer("a line"))
    tokens.integer("a column")
    while tokens.next_is(","):
        at = tokens.at
        word = tokens.take(IDENT, "'function_name' or 'inlined_at'")
        if word == "function_name":
            tokens.take(IDENT, "a label")
            if tokens.next_is("+"):
                tokens.integer()
        elif word == "inlined_at":
            for what in ("a file number", "a line", "a column"):
                tokens.integer(what)
        else:
            raise tokens.error("'function_name' or 'inlined_at'", at)
    return place if place[1] else None


def section(tokens: Tokens) -> None:
    """`.section name { … }`: debug data, not kept."""
    tokens.expect(".section")
    if tokens.kinds[tokens.at] not in (DIRECTIVE, IDENT):
        raise tokens.error("the name of a section")
    tokens.at += 1
    tokens.skip_block("{", "}")
