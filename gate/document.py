"""YAML text as plain data plus the line and column of every key and value.

Read through ruamel's node tree, not its round-trip maps: a tree shows *all* duplicate keys with both places, where a
loader stops at the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gate.errors import BadFile, Problem

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """A position in a file; both count from 1."""

    line: int
    column: int


@dataclass
class Document:
    """`data` is what the text says; `keys` and `values` say where each path's key and value stand."""

    name: str
    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    ends: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Where `path` stands: its key, or its value; an unknown path falls back to its parents."""
        first, second = (self.keys, self.values) if key else (self.values, self.keys)
        for length in range(len(path), 0, -1):
            for table in (first, second):
                if path[:length] in table:
                    return table[path[:length]]
        return Place(1, 1)

    def problem(self, path: Path, message: str, *, key: bool = False) -> Problem:
        """A problem at `path`; the message is preceded by the path itself, dotted."""
        place = self.place(path, key=key)
        dotted = ".".join(str(part) for part in path)
        return Problem(self.name, place.line, place.column, f"{dotted}: {message}" if dotted else message)


def read(text: str, name: str) -> Document:
    """Parse `text`; `name` is how messages call the file.

    Raises:
        BadFile: if the text is not YAML. Duplicate keys are collected in `problems` instead.
    """
    yaml = YAML(typ="safe", pure=True)
    document = Document(name)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise BadFile([Problem(name, line, column, f"not YAML: {error.problem or error.context}")]) from None
    except ValueError as error:
        raise BadFile([Problem(name, 1, 1, f"not YAML: {error}")]) from None
    if root is not None:
        document.data = _build(yaml, root, (), document)
    return document


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _build(yaml: YAML, node: Node, path: Path, document: Document) -> Any:
    document.values[path] = _place(node)
    if isinstance(node, MappingNode):
        return _mapping(yaml, node, path, document)
    if isinstance(node, SequenceNode):
        return [_build(yaml, child, (*path, i), document) for i, child in enumerate(node.value)]
    assert isinstance(node, ScalarNode)
    document.ends[path] = node.end_mark.line + 1
    return yaml.constructor.construct_object(node)


def _mapping(yaml: YAML, node: MappingNode, path: Path, document: Document) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = yaml.constructor.construct_object(key_node, deep=True)
        key = key if isinstance(key, str | int) else str(key)
        here = (*path, key)
        if key in found:
            first = document.keys[here]
            place = _place(key_node)
            dotted = ".".join(str(part) for part in here)
            text = f"{dotted}: key '{key}' is used twice (first in line {first.line})"
            document.problems.append(Problem(document.name, place.line, place.column, text))
            continue
        document.keys[here] = _place(key_node)
        found[key] = _build(yaml, value_node, here, document)
    return found
