"""The key of a result: a digest over everything whose change makes a pass stale.

Sources are found by following imports from the stage file through the tree's own packages, without importing anything.
A module inside a package brings the whole of its folder with it (one folder holds one op, and picks its architecture at
run time). The judge's own sources count where they decide a verdict.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

PACKAGES = ("stages", "mutants", "model", "kernels", "oracles", "backends", "emulator")
JUDGING = ("budgets.py", "case.py", "compare.py", "judge.py", "limits.py", "stage.py", "variants.py")
# What a result of this kind was obtained with, beside what the stage imports.
_TOOLS_ON = {"emulated": ("backends", "emulator"), "cuda": ("backends",), "oracle": ()}
# Taken as a whole or not at all, so their imports need no following.
_CLOSED = ("backends", "emulator")


class Sources:
    """Digests of the source files of one tree; every file is read at most once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digests: dict[Path, str] = {}
        self._imports: dict[Path, list[Path]] = {}
        self._stages: dict[tuple[str, str], dict[str, str]] = {}

    def of_stage(self, stage: str, on: str) -> dict[str, str]:
        """Relative path to digest of every source that a result of `stage` on `on` depends on."""
        if (stage, on) not in self._stages:
            self._stages[stage, on] = self._closure(stage, on)
        return self._stages[stage, on]

    def _closure(self, stage: str, on: str) -> dict[str, str]:
        todo = [self.root / "stages" / f"{stage}.py"]
        for package in _TOOLS_ON[on]:
            todo += sorted((self.root / package).rglob("*.py"))
        found: dict[Path, str] = {}
        while todo:
            path = todo.pop()
            if path not in found and path.is_file():
                found[path] = self._digest(path)
                if path.relative_to(self.root).parts[0] not in _CLOSED:
                    todo += self._imported(path)
        return {str(path.relative_to(self.root)): digest for path, digest in sorted(found.items())}

    @cached_property
    def judging(self) -> dict[str, str]:
        """The judge's own sources that decide a verdict."""
        return {f"gate/{name}": self._digest(Path(__file__).parent / name) for name in JUDGING}

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def _imported(self, path: Path) -> list[Path]:
        if path not in self._imports:
            self._imports[path] = [file for name in imports(path, self.root) for file in self._files(name)]
        return self._imports[path]

    def _files(self, module: str) -> list[Path]:
        """The files behind a dotted name: a file and, if it lies in a sub-package, its neighbours."""
        parts = module.split(".")
        if parts[0] not in PACKAGES:
            return []
        path = self.root.joinpath(*parts)
        found = [parent / "__init__.py" for parent in path.parents if self.root in parent.parents]
        if path.is_dir():
            inside = sorted(path.glob("*.py")) if len(parts) > 1 else [path / "__init__.py"]
            return found + inside
        file = path.with_suffix(".py")
        if file.is_file() and len(parts) > 2:
            return found + sorted(file.parent.glob("*.py"))
        return [*found, file]


def imports(path: Path, root: Path) -> Iterator[str]:
    """Dotted names that a source file imports, relative ones made absolute; nothing for a file that does not parse."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = path.relative_to(root).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, node.module] if node.module else base)
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def case_digest(sources: Sources, stage: str, on: str, asked: dict[str, Any], versions: dict[str, str]) -> str:
    """The key of one case result; `asked` is what gates.yaml asks of it (fields, limits, arch and the like)."""
    parts = [sources.of_stage(stage, on), sources.judging, asked, versions]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
