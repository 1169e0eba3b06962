"""The `case` that a stage's functions get: the fields of one entry of `cases:`, which remembers what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any


class MissingField(Exception):
    """A stage asked for a field that the case does not have; names the line that asked."""


class Case(Mapping[str, Any]):
    """Fields by attribute (`case.heads`), by item (`case["heads"]`) or with a default (`case.get("causal", False)`).

    `case.id` is the id from gates.yaml. Asking for a field that is not there raises `MissingField`, which is neither an
    AttributeError nor a KeyError, so that no `hasattr` or `except` in a stage can hide it.
    """

    def __init__(self, id: str, fields: Mapping[str, Any]) -> None:
        self.id = id
        self._fields = dict(fields)
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        return self._get(name, sys._getframe(1))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._get(name, sys._getframe(1))

    def _get(self, name: str, caller: Any) -> Any:
        self._asked.add(name)
        if name not in self._fields:
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            raise MissingField(f"case '{self.id}' has no field '{name}' ({place} asks for it)")
        return self._fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The field, or `default` if the case does not have it."""
        self._asked.add(name)
        return self._fields.get(name, default)

    def __contains__(self, name: object) -> bool:
        self._asked.add(str(name))
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        self._asked.update(self._fields)
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Case({self.id}: {self._fields})"

    def never_asked(self) -> list[str]:
        """Fields that no function of the stage has looked at."""
        return [name for name in self._fields if name not in self._asked]
