"""Operands of an instruction: names, literals, addresses, vectors, pairs, and the parentheses of `call`."""

from __future__ import annotations

from typing import Any

from emulator.ptx.lexer import IDENT, NUMBER, Tokens
from emulator.ptx.module import (
    Address,
    Imm,
    Label,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Vector,
)
from emulator.ptx.scopes import Scopes, Targets, Use

_WITH_PARTS = "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid".split()
_PLAIN = (
    "laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank "
    "lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64 "
    "globaltimer globaltimer_lo globaltimer_hi total_smem_size aggr_smem_size dynamic_smem_size current_graph_exec "
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap "
    "reserved_smem_offset_0 reserved_smem_offset_1"
).split()
SPECIALS: dict[str, Operand] = {
    f"%{name}": Special(name)
    for name in (
        _PLAIN
        + [f"{name}.{part}" for name in _WITH_PARTS for part in "xyzw"]
        + [f"pm{i}{suffix}" for i in range(8) for suffix in ("", "_64")]
        + [f"envreg{i}" for i in range(32)]
    )
}
"""Special registers, PTX manual section 10. A whole vector one (`%tid`) reads as a `Vector` of its components."""

_FIXED: dict[str, Operand] = (
    SPECIALS
    | {f"%{name}": Vector(tuple(Special(f"{name}.{part}") for part in "xyzw")) for name in _WITH_PARTS}
    | {"_": Sink(), "WARP_SZ": Imm(32, 0, "WARP_SZ")}
)


class Operands:
    """Reads operands at the place of `tokens`. `functions` gets (name, token) of every name that only a function of the
    module can satisfy: those may be declared later."""

    def __init__(self, tokens: Tokens, scopes: Scopes, functions: list[tuple[str, int]]) -> None:
        self._tokens = tokens
        self._meaning = scopes.meaning
        self._scopes = scopes
        self._functions = functions
        self._numbers: dict[str, Imm] = {}

    def read(self) -> Operand:
        """One operand of any form."""
        tokens = self._tokens
        at = tokens.at
        if tokens.kinds[at] == IDENT:
            text = tokens.texts[at]
            found = self._meaning.get(text) or _FIXED.get(text) or self._function(text, at)
            tokens.at = at + 1
            after = tokens.texts[at + 1]
            if after == "," or after == ";":
                return found
            if after == "|":
                tokens.at += 1
                return Pair(found, self._simple())
            if (after == "+" or after == "-") and isinstance(found, Symbol):
                return Address(found, self._offset())
            return found
        text = tokens.texts[at]
        if text == "[":
            return self._address()
        if text == "{":
            return self._list("{", "}")
        if text == "!":
            tokens.at += 1
            return Not(self._simple())
        return self._number()

    def _simple(self) -> Operand:
        """A name or a literal: what vectors, pairs and arguments hold."""
        tokens = self._tokens
        at = tokens.at
        if tokens.kinds[at] != IDENT:
            return self._number()
        text = tokens.texts[at]
        tokens.at = at + 1
        return self._meaning.get(text) or _FIXED.get(text) or self._function(text, at)

    def _number(self) -> Imm:
        tokens = self._tokens
        at = tokens.at
        if tokens.kinds[at] == NUMBER:
            text = tokens.texts[at]
            found = self._numbers.get(text)
            if found is None:
                found = self._numbers[text] = tokens.signed()
            tokens.at = at + 1
            return found
        if tokens.texts[at] not in ("-", "+"):
            raise tokens.error("an operand")
        return tokens.signed()

    def _function(self, text: str, at: int) -> Symbol:
        if text[0] == "%" or "." in text or "::" in text:
            raise self._tokens.error("a declared register or a special register", at)
        self._functions.append((text, at))
        return Symbol(text)

    def _offset(self) -> int:
        """`+4`, `-4`, `+-4`, or nothing, which is 0."""
        tokens = self._tokens
        if tokens.texts[tokens.at] == "+":
            tokens.at += 1
        elif tokens.texts[tokens.at] != "-":
            return 0
        at = tokens.at
        value = tokens.signed()
        if value.width:
            raise tokens.error("an integer offset", at)
        return value.bits

    def _address(self) -> Address | TensorAddress:
        tokens = self._tokens
        tokens.at += 1
        at = tokens.at
        base = self._simple()
        if not isinstance(base, (Reg, Symbol, Imm)) or (isinstance(base, Imm) and base.width):
            raise tokens.error("a register, a variable or an integer as address", at)
        address = Address(base, self._offset())
        if tokens.next_is("]"):
            return address
        if not tokens.next_is(","):
            raise tokens.error("']'")
        if tokens.texts[tokens.at] != "{":
            raise tokens.error("'{' and coordinates")
        coords = self._list("{", "}").items
        tokens.expect("]")
        return TensorAddress(address, coords)

    def _list(self, opening: str, closing: str) -> Vector:
        """`{a, b}` of one or more, or the `(a, b)` of a call, which may be empty."""
        tokens = self._tokens
        tokens.expect(opening)
        if opening == "(" and tokens.next_is(closing):
            return Vector(())
        items = [self._simple()]
        while tokens.next_is(","):
            items.append(self._simple())
        tokens.expect(closing)
        return Vector(tuple(items))

    def branch(self, place: list[Any]) -> None:
        """The target of `bra`; it is filled in when its scope ends."""
        self._mark(place, (Label,), "a label")

    def indexed_branch(self, place: list[Any]) -> None:
        """The index and the `.branchtargets` of `brx.idx`."""
        place.append(self.read())
        self._tokens.expect(",")
        self._mark(place, (Targets,), "the name of a .branchtargets")

    def _mark(self, place: list[Any], kinds: tuple[type, ...], what: str) -> None:
        tokens = self._tokens
        at = tokens.at
        text = tokens.take(IDENT, what)
        place.append(None)
        self._scopes.use(text, Use(at, kinds, place, len(place) - 1))

    def call(self, place: list[Any]) -> None:
        """`(returns), callee, (arguments), prototype`, everything but the callee optional."""
        tokens = self._tokens
        returns = Vector(())
        if tokens.texts[tokens.at] == "(":
            returns = self._list("(", ")")
            tokens.expect(",")
        at = tokens.at
        callee = self._simple()
        if not isinstance(callee, (Symbol, Reg)):
            raise tokens.error("a function or a register", at)
        place += [returns, callee]
        if not tokens.next_is(","):
            place.append(Vector(()))
            return
        if tokens.texts[tokens.at] == "(":
            place.append(self._list("(", ")"))
            if not tokens.next_is(","):
                return
        else:
            place.append(Vector(()))
        self._mark(place, (Symbol, Vector), "a .callprototype or .calltargets")
