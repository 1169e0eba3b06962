"""A sample project whose kernels cheat in every way, and the command line run on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = Path(__file__).with_name("sample")
_MAIN = (
    "import sys; from pathlib import Path; from gate.cli import main; sys.exit(main(sys.argv[2:], Path(sys.argv[1])))"
)


@dataclass
class Run:
    """One run of the command line: exit code, both streams, and its result.json if it wrote one."""

    code: int
    out: str
    err: str
    folder: Path | None

    @property
    def result(self) -> dict[str, Any]:
        assert self.folder is not None, self.err
        return json.loads((self.folder / "result.json").read_text())

    def case(self, case: str, **fields: Any) -> dict[str, Any]:
        """The only case result with this case id (and these fields)."""
        wanted = {"case": case, **fields}
        wanted.setdefault("mutant", None)
        found = [c for c in self.result["cases"] if all(c.get(key) == value for key, value in wanted.items())]
        assert len(found) == 1, (wanted, [c["case"] for c in self.result["cases"]])
        return found[0]

    def gate(self, name: str, arch: str = "sm100") -> dict[str, Any]:
        return next(g for g in self.result["gates"] if (g["gate"], g["arch"]) == (name, arch))


class Project:
    """A copy of the sample project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, gates: str) -> Project:
        """Replace gates.yaml."""
        (self.root / "gates.yaml").write_text(gates)
        return self

    def edit(self, path: str, old: str, new: str) -> Project:
        text = (self.root / path).read_text()
        assert old in text, (path, old)
        (self.root / path).write_text(text.replace(old, new))
        return self

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", _MAIN, str(self.root), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
        return kept | {"PYTHONPATH": str(ROOT)} | more

    def run(self, *arguments: str, timeout: float = 120, **environment: str) -> Run:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=timeout, cwd=self.root,
            env=self.environment(**environment),
        )  # fmt: skip
        latest = self.root / "build" / "gates" / "latest"
        return Run(done.returncode, done.stdout, done.stderr, latest.resolve() if latest.exists() else None)


def cases_yaml(cases: list[str], *, gate: str = "scale", more: str = "", seeds: str = "[0]") -> str:
    """A gates.yaml with one gate over the sample stage; every case is the text of a flow mapping."""
    listed = "\n".join(f"      - {case}" for case in cases)
    return f"""version: 1
defaults: {{seeds: {seeds}, repeat: 3, timeout_s: 20}}
gates:
  {gate}:
    about: 1.7 times the input comes out
    stage: scale
    arch: [sm100]
    cases:
{listed}
    limits:
      y: {{vs_torch: 2, diff: 1e-5, cos: 0.9999}}
      total: {{vs_torch: 4, rel_rms: 1e-2}}
{more}"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy of the sample project."""
    return Project(tmp_path / "project")


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Copies that live as long as the whole test run."""
    return lambda name: Project(tmp_path_factory.mktemp(name) / "project")
