"""PTX text to a `Module`. Knows syntax and names, no semantics: every opcode is accepted."""

from __future__ import annotations

import re
from dataclasses import replace

from emulator.ptx import declarations, directives
from emulator.ptx.body import Body, RawInstruction
from emulator.ptx.lexer import DIRECTIVE, END, IDENT, NUMBER, Tokens
from emulator.ptx.module import Function, Instruction, Module, Symbol, Variable
from emulator.ptx.scopes import Meaning


def parse(text: str) -> Module:
    """Parse one PTX file.

    Raises `PtxSyntaxError` with line and column (from 1) for anything that is not PTX, for names that nothing declares,
    and for the few forms that are refused: register parameters, addresses as initial values, texture addresses,
    constant expressions (`4*3`). Time is linear in the text and its registers; nothing limits the nesting of scopes.
    """
    return _ModuleParser(text).module()


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.names: dict[str, Meaning] = {}
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.wanted: list[tuple[str, int]] = []
        self.files: dict[int, str] = {}
        self.raw: dict[str, list[RawInstruction]] = {}

    def module(self) -> Module:
        tokens = self.tokens
        tokens.expect(".version")
        version = tokens.texts[tokens.at]
        if tokens.kinds[tokens.at] != NUMBER or not re.fullmatch(r"\d+\.\d+", version, re.ASCII):
            raise tokens.error("a version such as 8.8")
        tokens.at += 1
        tokens.expect(".target")
        target = tokens.take(IDENT, "a target such as sm_90a")
        while tokens.next_is(","):
            tokens.take(IDENT, "an option of .target")
        if tokens.next_is(".address_size"):
            at = tokens.at
            if tokens.integer("64") != 64:
                raise tokens.error("64", at)
        while tokens.kinds[tokens.at] != END:
            self._statement()
        self._check_names()
        finished = {f.name: self._finish(f) for name, f in self.functions.items() if name == f.name}
        functions = {name: finished[f.name] for name, f in self.functions.items()}
        return Module(version, target, tuple(self.variables.values()), functions, tokens.source)

    def _statement(self) -> None:
        tokens = self.tokens
        text = tokens.texts[tokens.at]
        if tokens.kinds[tokens.at] != DIRECTIVE:
            if text != ";":
                raise tokens.error("a directive")
            tokens.at += 1
        elif text == ".file":
            directives.file(tokens, self.files)
        elif text == ".section":
            directives.section(tokens)
        elif text == ".pragma":
            directives.pragma(tokens)
        elif text == ".alias":
            self._alias()
        else:
            self._declaration()

    def _declaration(self) -> None:
        """A variable or a function with its linkage."""
        tokens = self.tokens
        linkage = set()
        while tokens.texts[tokens.at] in declarations.LINKAGE:
            linkage.add(tokens.texts[tokens.at])
            tokens.at += 1
        text = tokens.texts[tokens.at]
        if text in (".entry", ".func"):
            self._function()
        elif text in declarations.SPACES and text not in (".param", ".local"):
            at = tokens.at
            for variable in declarations.variables(tokens, ".extern" in linkage):
                known = self.variables.get(variable.name)
                clash = known is not None and not (known.extern or variable.extern)
                if clash or variable.name in self.functions:
                    raise tokens.error(f"a name other than '{variable.name}', which is declared already", at)
                if known is None or known.extern:
                    self.variables[variable.name] = variable
                self.names[variable.name] = Symbol(variable.name)
        else:
            raise tokens.error("a variable, a function or another directive of a module")

    def _function(self) -> None:
        tokens = self.tokens
        entry = tokens.texts[tokens.at] == ".entry"
        tokens.at += 1
        returns, _ = ((), 0) if entry else declarations.parameters(tokens)
        at = tokens.at
        title = declarations.name(tokens)
        known = self.functions.get(title)
        parameters, nbytes = declarations.parameters(tokens)
        asked = directives.performance(tokens)
        body = Body(tokens, self.names, self.wanted, self.files)
        extern = tokens.next_is(";")
        if title in self.variables or (known is not None and not known.extern and not extern):
            raise tokens.error("a name that the module has not declared", at)
        self.names[title] = Symbol(title)
        if not extern:
            for parameter in (*returns, *parameters):
                if body.scopes.declared_here(parameter.name):
                    raise tokens.error(f"parameters of different names, not '{parameter.name}' twice", at)
                body.scopes.parameter(parameter.name)
            self.raw[title] = body.read()
        if extern and known is not None:
            return
        self.functions[title] = Function(
            title, entry, parameters, nbytes, tuple(body.scopes.types), tuple(body.scopes.names), (),
            tuple(body.scopes.variables), asked, returns, extern, body.prototypes,
        )  # fmt: skip

    def _alias(self) -> None:
        tokens = self.tokens
        tokens.at += 1
        at = tokens.at
        title = declarations.name(tokens)
        tokens.expect(",")
        target_at = tokens.at
        target = self.functions.get(declarations.name(tokens))
        tokens.expect(";")
        if target is None or target.extern:
            raise tokens.error("a function with a body", target_at)
        known = self.functions.get(title)
        if title in self.variables or (known is not None and not known.extern):
            raise tokens.error("a name that the module has not defined", at)
        self.functions[title] = target
        self.names[title] = Symbol(title)

    def _check_names(self) -> None:
        for name, at in self.wanted:
            if name not in self.names:
                raise self.tokens.error("a declared name", at)

    def _finish(self, function: Function) -> Function:
        """The function with its instructions, whose files are known only at the end of the text."""
        instructions = []
        for raw in self.raw.get(function.name, ()):
            opcode, operands, guard, negated, line, text, loc = raw
            place = None
            if loc is not None:
                place = (self.files.get(loc[0], f"file {loc[0]}"), loc[1])
            instructions.append(Instruction(opcode, tuple(operands), guard, negated, line, text, place))
        return replace(function, instructions=tuple(instructions))
