"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.plant import Edit

VALUES = "values"
"""The tool of faults that break no rule of the machine: only a comparison with the oracle shows them."""


@dataclass(frozen=True)
class Fault:
    """One fault: `sample` names the kernel, `edits` plant it, or `mutant` names a class of `mutants.fmha`. `tool` must
    report it. `kind` groups faults; `what` says in words what was done."""

    sample: str
    name: str
    tool: str
    kind: str
    what: str
    edits: tuple[Edit, ...] = ()
    mutant: str = ""

    @property
    def id(self) -> str:
        """`sample-name`."""
        return f"{self.sample}-{self.name}"


def faults_of(sample: str, *rows: tuple[str, str, str, str, tuple[Edit, ...]]) -> tuple[Fault, ...]:
    """Rows of (name, tool, kind, what, edits) for one kernel."""
    return tuple(Fault(sample, *row) for row in rows)
