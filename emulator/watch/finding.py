"""What a checker reports: one mistake, with both sides, the memory, and the edge that is missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emulator.errors import Where

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck", "tmemcheck")


@dataclass(frozen=True)
class Finding:
    """One mistake. `tool` is one of `TOOLS`; `kind` a short name that tests and gates match (`race`, `missing proxy
    fence`, …); `where` the access or step at which it showed; `other` the other side, if there are two; `memory` the
    place in words (tensor and element, shared variable and offset, tensor-memory lane and column); `missing` one
    sentence: what should have been there. `count` says how often the same pair of instructions did it."""

    tool: str
    kind: str
    where: Where
    memory: str
    missing: str
    other: Where | None = None
    role: str = ""
    other_role: str = ""
    count: int = 1

    def __str__(self) -> str:
        times = f"  ({self.count} times)" if self.count > 1 else ""
        lines = [f"{self.tool}: {self.kind}: {self.memory}{times}", f"  {self.missing}", f"  at {self._side(0)}"]
        if self.other is not None:
            lines.append(f"  and {self._side(1)}")
        return "\n".join(lines)

    def _side(self, n: int) -> str:
        role, where = ((self.role, self.where), (self.other_role, self.other))[n]
        return f"{where} [{role}]" if role else str(where)


def summary(findings: Iterable[Finding]) -> str:
    """All findings as text, in the order found; empty without any."""
    return "\n".join(map(str, findings))
