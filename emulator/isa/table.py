"""The opcode table: which dotted opcodes exist, with every modifier accounted for.

A form is written as the PTX manual writes it and matched whole, so a modifier that no form names is refused like an
unknown opcode:

    @op("add[.rnd:rn|rz|rm|rp][.ftz][.sat].type:f32|f32x2", section="9.7.3.3")
    def add_float(b, i, m): ...

`.name:a|b` is a required choice, `[.name:a|b]` an optional one (None when absent), `[.word]` an optional flag (True or
False), `.word` a literal. The semantic function gets the builder, the instruction and the modifiers by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.ptx.module import Instruction

Modifiers = dict[str, Any]
Semantics = Callable[[Any, Instruction, Modifiers], None]

_TOKEN = re.compile(r"\[\.(?P<opt>[^\]]+)\]|\.(?P<req>(?:(?!\[)[^.])+)")


@dataclass(frozen=True)
class Op:
    """One form of one opcode. `starts_block`: the form may block or needs the warp converged, so it begins a basic
    block;
    `ends_block`: it transfers control; `no_effect`: legal, does nothing in a functional run (a checker may care)."""

    pattern: str
    regex: re.Pattern[str]
    flags: frozenset[str]
    build: Semantics
    section: str
    starts_block: bool
    ends_block: bool
    no_effect: bool


_FORMS: dict[str, list[Op]] = {}
_REFUSED: list[tuple[re.Pattern[str], str]] = []
_CACHE: dict[str, tuple[Op, Modifiers] | str] = {}


def op(
    *patterns: str, section: str, starts_block: bool = False, ends_block: bool = False, no_effect: bool = False
) -> Callable[[Semantics], Semantics]:
    """Register a semantic function for the given forms."""

    def register(build: Semantics) -> Semantics:
        for pattern in patterns:
            regex, flags = _compile(pattern)
            form = Op(pattern, regex, flags, build, section, starts_block, ends_block, no_effect)
            _FORMS.setdefault(pattern.split(".")[0].split("[")[0], []).append(form)
        return build

    return register


def refuse(pattern: str, reason: str) -> None:
    """Give the reason why opcodes that match the regular expression, and no form, are refused."""
    _REFUSED.append((re.compile(pattern), reason))


def refused() -> list[tuple[str, str]]:
    """(regular expression, reason) of everything refused by name, for the generated documentation."""
    return [(pattern.pattern, reason) for pattern, reason in _REFUSED]


def lookup(opcode: str) -> tuple[Op, Modifiers] | str:
    """The form that matches `opcode` and its modifiers, or the reason why there is none."""
    if opcode not in _CACHE:
        _CACHE[opcode] = _lookup(opcode)
    return _CACHE[opcode]


def forms() -> list[Op]:
    """Every registered form, for the generated documentation."""
    return [form for family in _FORMS.values() for form in family]


def _lookup(opcode: str) -> tuple[Op, Modifiers] | str:
    family = _FORMS.get(opcode.split(".")[0], [])
    for form in family:
        match = form.regex.fullmatch(opcode)
        if match:
            groups = match.groupdict()
            return form, {k: (v is not None if k in form.flags else v) for k, v in groups.items()}
    for pattern, reason in _REFUSED:
        if pattern.fullmatch(opcode):
            return f"`{opcode}` is not implemented: {reason}"
    if not family:
        return f"unknown opcode `{opcode.split('.')[0]}`"
    known = "; ".join(form.pattern for form in family[:6])
    return f"no implemented form of `{opcode}`; implemented: {known}" + (" …" if len(family) > 6 else "")


def _compile(pattern: str) -> tuple[re.Pattern[str], frozenset[str]]:
    head = re.match(r"[\w]+", pattern)
    if head is None:
        raise ValueError(f"pattern {pattern!r} must begin with an opcode")
    flags: set[str] = set()
    text, position = re.escape(head.group()), head.end()
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise ValueError(f"pattern {pattern!r}: cannot read {pattern[position:]!r}")
        text += _token_regex(token, flags)
        position = token.end()
    return re.compile(text), frozenset(flags)


def _token_regex(token: re.Match[str], flags: set[str]) -> str:
    body = token["opt"] or token["req"]
    choice = re.fullmatch(r"([a-z_]\w*):(?!:)(.+)", body)
    if choice:
        name, alternatives = choice.groups()
        group = rf"\.(?P<{name}>{'|'.join(re.escape(a) for a in alternatives.split('|'))})"
        return f"(?:{group})?" if token["opt"] else group
    if token["opt"]:
        name = re.sub(r"\W+", "_", body)
        flags.add(name)
        return rf"(?P<{name}>\.{re.escape(body)})?"
    return rf"\.{re.escape(body)}"
