"""The body of a function: scopes, declarations, labels and instructions."""

from __future__ import annotations

from emulator.ptx import declarations, directives
from emulator.ptx.lexer import DIRECTIVE, IDENT, Tokens
from emulator.ptx.module import Label, LabelList, Operand, Prototype, Reg, Symbol, Vector
from emulator.ptx.operands import Operands
from emulator.ptx.scopes import Meaning, Scopes, Targets, Use

RawInstruction = tuple[str, list[Operand], Reg | None, bool, int, str, tuple[int, int] | None]
"""opcode, operands, guard, guard negated, line, text, (file number, line)."""

_VARIABLES = declarations.SPACES | declarations.LINKAGE


class Body:
    """Reads one body. `meaning` is what the module declares, `wanted` gets the names that must turn out to be
    functions, `files` the `.file` table."""

    def __init__(
        self, tokens: Tokens, meaning: dict[str, Meaning], wanted: list[tuple[str, int]], files: dict[int, str]
    ) -> None:
        self.scopes = Scopes(meaning)
        self.prototypes: dict[str, Prototype] = {}
        self._tokens = tokens
        self._files = files
        self._operands = Operands(tokens, self.scopes, wanted)
        self._wanted = wanted
        self._instructions: list[RawInstruction] = []
        self._loc: tuple[int, int] | None = None

    def read(self) -> list[RawInstruction]:
        """From `{` to the matching `}`."""
        tokens = self._tokens
        kinds, texts = tokens.kinds, tokens.texts
        tokens.expect("{")
        while True:
            kind, text = kinds[tokens.at], texts[tokens.at]
            if kind == IDENT:
                if texts[tokens.at + 1] == ":":
                    self._label()
                else:
                    self._instruction(tokens.at, None, False)
            elif text == "@":
                self._guarded()
            elif kind == DIRECTIVE:
                self._directive(text)
            elif text == "{":
                tokens.at += 1
                self.scopes.open()
            elif text == "}":
                tokens.at += 1
                self._close()
                if not self.scopes.depth:
                    break
            elif text == ";":
                tokens.at += 1
            else:
                raise tokens.error("an instruction, a label, a directive or '}'")
        for raw in self._instructions:
            if raw[1] and isinstance(raw[1][-1], Targets):
                raw[1][-1] = LabelList(tuple(raw[1][-1].labels))
        return self._instructions

    def _close(self) -> None:
        wrong = self.scopes.close()
        if wrong is not None:
            what = {Label: "a label", Targets: "the name of a .branchtargets"}.get(wrong.kinds[0])
            raise self._tokens.error(f"{what or 'a .callprototype or .calltargets'} of this function", wrong.token)

    def _directive(self, text: str) -> None:
        tokens = self._tokens
        if text == ".reg":
            declarations.registers(tokens, self.scopes)
        elif text == ".loc":
            self._loc = directives.location(tokens)
        elif text in _VARIABLES:
            extern = False
            while tokens.texts[tokens.at] in declarations.LINKAGE:
                extern |= tokens.texts[tokens.at] == ".extern"
                tokens.at += 1
            at = tokens.at
            for variable in declarations.variables(tokens, extern):
                if self.scopes.declared_here(variable.name):
                    raise tokens.error(f"a name other than '{variable.name}', which this scope declares", at)
                self.scopes.variable(variable)
        elif text == ".pragma":
            directives.pragma(tokens)
        elif text == ".file":
            directives.file(tokens, self._files)
        elif text == ".section":
            directives.section(tokens)
        else:
            raise tokens.error("an instruction or a directive of a body")

    def _label(self) -> None:
        """`name:` before an instruction, `.branchtargets`, `.callprototype` or `.calltargets`."""
        tokens = self._tokens
        at = tokens.at
        text = declarations.name(tokens)
        if self.scopes.declared_here(text):
            raise tokens.error("a label that this scope has not declared", at)
        unique = self.scopes.unique(text)
        tokens.expect(":")
        after = tokens.texts[tokens.at]
        if after == ".branchtargets":
            self.scopes.mark(text, self._branch_targets())
        elif after == ".callprototype":
            self.prototypes[unique] = self._prototype()
            self.scopes.mark(text, Symbol(unique))
        elif after == ".calltargets":
            self.scopes.mark(text, self._call_targets())
        else:
            self.scopes.mark(text, Label(unique, len(self._instructions)))

    def _branch_targets(self) -> Targets:
        tokens = self._tokens
        tokens.at += 1
        found = Targets()
        while True:
            at = tokens.at
            text = tokens.take(IDENT, "a label")
            found.labels.append(None)
            self.scopes.use(text, Use(at, (Label,), found.labels, len(found.labels) - 1))
            if not tokens.next_is(","):
                break
        tokens.expect(";")
        return found

    def _call_targets(self) -> Vector:
        tokens = self._tokens
        tokens.at += 1
        found: list[Operand] = []
        while True:
            at = tokens.at
            found.append(Symbol(declarations.name(tokens)))
            self._wanted.append((tokens.texts[at], at))
            if not tokens.next_is(","):
                break
        tokens.expect(";")
        return Vector(tuple(found))

    def _prototype(self) -> Prototype:
        """`.callprototype (returns) _ (parameters) [.noreturn];`"""
        tokens = self._tokens
        tokens.at += 1
        returns, _ = declarations.parameters(tokens)
        tokens.expect("_")
        parameters, _ = declarations.parameters(tokens)
        directives.performance(tokens)
        tokens.expect(";")
        return Prototype(returns, parameters)

    def _guarded(self) -> None:
        tokens = self._tokens
        start = tokens.at
        tokens.at += 1
        negated = tokens.next_is("!")
        guard = self.scopes.meaning.get(tokens.texts[tokens.at])
        if not isinstance(guard, Reg) or guard.type != "pred":
            raise tokens.error("a declared predicate")
        tokens.at += 1
        if tokens.kinds[tokens.at] != IDENT:
            raise tokens.error("an instruction")
        self._instruction(start, guard, negated)

    def _instruction(self, start: int, guard: Reg | None, negated: bool) -> None:
        """From the opcode to the semicolon; the text begins at token `start`."""
        tokens = self._tokens
        kinds, texts = tokens.kinds, tokens.texts
        opcode = texts[tokens.at]
        if opcode[0] == "%":
            raise tokens.error("an instruction")
        tokens.at += 1
        while kinds[tokens.at] == DIRECTIVE:
            opcode += texts[tokens.at]
            tokens.at += 1
        found: list[Operand] = []
        if texts[tokens.at] != ";":
            family = opcode.partition(".")[0]
            if family == "bra":
                self._operands.branch(found)
            elif family == "brx":
                self._operands.indexed_branch(found)
            elif family == "call":
                self._operands.call(found)
            else:
                read = self._operands.read
                found.append(read())
                while texts[tokens.at] == ",":
                    tokens.at += 1
                    found.append(read())
            if texts[tokens.at] != ";":
                raise tokens.error("',' or ';'")
        text = tokens.text_of(start, tokens.at)
        tokens.at += 1
        self._instructions.append((opcode, found, guard, negated, tokens.line(start), text, self._loc))
