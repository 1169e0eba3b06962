"""One case to be judged, as plain data that travels to a worker process as a line of JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gate.result import case_id

# The compiler's names of the architectures that gates.yaml speaks of.
COMPILER_ARCH = {"sm90": "sm_90a", "sm100": "sm_100a"}


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs: the case, its limits, and where it stands in gates.yaml (`where`)."""

    gate: str
    stage: str
    case: str
    seed: int
    arch: str
    on: str
    fields: dict[str, Any]
    limits: dict[str, dict[str, Any]]
    counts: dict[str, int | str] = field(default_factory=dict)
    memory: dict[str, int] | None = None
    resources: dict[str, int] | None = None
    roofline: dict[str, Any] | None = None
    repeat: int = 3
    timeout_s: float = 120.0
    mutant: str | None = None
    debug: str | None = None
    views: list[str] = field(default_factory=list)
    schedules: int = 0
    replay: str | None = None
    sanitize: list[str] = field(default_factory=list)
    digest: str = ""
    folder: str = ""
    where: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`n256-s0-sm100`."""
        return case_id(self.case, self.seed, self.arch, self.mutant)

    @property
    def label(self) -> str:
        """`fmha_multitile[n256-s0-sm100]`."""
        return f"{self.gate}[{self.id}]"

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """What makes two results results of the same case."""
        return (self.gate, self.case, self.seed, self.arch, self.on)
