"""Names of one function: what a name means at this point of the text, and unique names and slots for all of them.

PTX scopes are resolved here. A register or variable is visible from its declaration to the end of its scope, a label in
the whole of its scope, before and after. A name that the function has used before gets a suffix (`P1`, then `P1$2`), so
that a function reads the same without its scopes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emulator.ptx.module import Label, Reg, Symbol, Variable, Vector

MAX_REGISTERS = 1 << 18

Meaning = Reg | Vector | Symbol


@dataclass
class Targets:
    """A `.branchtargets` list while its labels are being found."""

    labels: list[Any] = field(default_factory=list)


Mark = Label | Targets | Symbol | Vector
"""What a `name:` can stand for: a place, a `.branchtargets`, a `.callprototype`, a `.calltargets`."""


@dataclass(frozen=True)
class Use:
    """A mark used before it is known: it goes to `place[position]` and must be one of `kinds`."""

    token: int
    kinds: tuple[type, ...]
    place: list[Any]
    position: int


class _Scope:
    """What one `{ }` has declared: the meanings it hides, its marks, and uses of marks not yet found."""

    def __init__(self) -> None:
        self.hidden: dict[str, Meaning | None] = {}
        self.marks: dict[str, Mark] = {}
        self.waiting: dict[str, list[Use]] = {}


class Scopes:
    """The open scopes of a function. `meaning` maps each visible name to what it stands for; it comes with the names of
    the module and is as it was when the last scope is closed."""

    def __init__(self, meaning: dict[str, Meaning]) -> None:
        self.meaning = meaning
        self.types: list[str] = []
        self.names: list[str] = []
        self.variables: list[Variable] = []
        self._taken: set[str] = set()
        self._copies: dict[str, int] = {}
        self._open = [_Scope()]

    @property
    def depth(self) -> int:
        """Number of open scopes; 1 is the function body."""
        return len(self._open)

    def declared_here(self, name: str) -> bool:
        """Whether the innermost scope declares this name already."""
        return name in self._open[-1].hidden or name in self._open[-1].marks

    def open(self) -> None:
        """Enter a scope."""
        self._open.append(_Scope())

    def close(self) -> Use | None:
        """Leave the innermost scope. Returns the first use that found no mark or a mark of the wrong kind, if any."""
        scope = self._open.pop()
        for name, hidden in scope.hidden.items():
            if hidden is None:
                del self.meaning[name]
            else:
                self.meaning[name] = hidden
        wrong = []
        for name, mark in scope.marks.items():
            for use in scope.waiting.pop(name, ()):
                use.place[use.position] = mark
                if not isinstance(mark, use.kinds):
                    wrong.append(use)
        if self._open:
            self._pass_on(scope.waiting)
        else:
            wrong.extend(use for uses in scope.waiting.values() for use in uses)
        return min(wrong, key=lambda use: use.token, default=None)

    def _pass_on(self, waiting: dict[str, list[Use]]) -> None:
        """Hand unresolved uses to the outer scope; always the few to the many, so that deep nesting is cheap."""
        outer = self._open[-1]
        small, large = sorted((waiting, outer.waiting), key=len)
        for name, uses in small.items():
            few, many = sorted((uses, large.get(name, [])), key=len)
            many.extend(few)
            large[name] = many
        outer.waiting = large

    def unique(self, name: str) -> str:
        """`name`, or `name$2` and so on if the function or the module has it already."""
        chosen = name
        while chosen in self._taken or chosen in self.meaning:
            count = self._copies.get(name, 1) + 1
            self._copies[name] = count
            chosen = f"{name}${count}"
        self._taken.add(chosen)
        return chosen

    def _bind(self, name: str, meaning: Meaning) -> None:
        self._open[-1].hidden[name] = self.meaning.get(name)
        self.meaning[name] = meaning

    def _slot(self, name: str, type_name: str) -> Reg:
        reg = Reg(name, type_name, len(self.names))
        self.names.append(name)
        self.types.append(type_name)
        return reg

    def register(self, name: str, type_name: str, width: int) -> None:
        """Declare a register, or a vector register of `width` 2 or 4 (`name.x`, `name.y`, …)."""
        unique = self.unique(name)
        if width == 1:
            self._bind(name, self._slot(unique, type_name))
            return
        parts = tuple(self._slot(f"{unique}.{part}", type_name) for part in "xyzw"[:width])
        for reg, position, colour in zip(parts, "xyzw", "rgba", strict=False):
            self._bind(f"{name}.{position}", reg)
            self._bind(f"{name}.{colour}", reg)
        self._bind(name, Vector(parts))

    def variable(self, variable: Variable) -> None:
        """Declare a variable under a unique name."""
        unique = self.unique(variable.name)
        self._bind(variable.name, Symbol(unique))
        if unique != variable.name:
            variable = Variable(unique, variable.space, variable.align, variable.nbytes, variable.init, variable.extern)
        self.variables.append(variable)

    def parameter(self, name: str) -> None:
        """Declare a parameter of the function; its name is what callers know and stays."""
        self._taken.add(name)
        self._bind(name, Symbol(name))

    def mark(self, name: str, mark: Mark) -> None:
        """Declare what `name:` stands for in the innermost scope."""
        self._open[-1].marks[name] = mark

    def use(self, name: str, use: Use) -> None:
        """Fill in a mark once the scope that declares it ends."""
        self._open[-1].waiting.setdefault(name, []).append(use)
