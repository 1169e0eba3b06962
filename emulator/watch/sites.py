"""Where in the program something was done: static instructions by agent, as numbers that fit into shadow memory.

A tag is `epoch << 30 | site << 6 | lane`: who did it (the site says agent and static instruction), when on the agent's
own clock, and by which lane (32: several; 33: the warp as a whole). 0: nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.events import WarpId

EPOCH_SHIFT, SITE_SHIFT = 30, 6
SITE_MASK, LANE_MASK = (1 << 24) - 1, (1 << 6) - 1


@dataclass(frozen=True)
class Strength:
    """What a strong read or write orders by itself."""

    acquire: bool
    release: bool


def strength_of(opcode: str) -> Strength | None:
    """The memory semantics in an opcode; None for weak accesses and for what does not access memory."""
    parts = opcode.split(".")
    head = parts[0]
    if head not in ("ld", "st", "atom", "red"):
        return None
    if head in ("atom", "red"):
        return Strength("acquire" in parts or "acq_rel" in parts, "release" in parts or "acq_rel" in parts)
    if "volatile" in parts or "relaxed" in parts or "mmio" in parts:
        return Strength(False, False)
    if "acquire" in parts or "release" in parts:
        return Strength("acquire" in parts, "release" in parts)
    return None


@dataclass(frozen=True)
class Site:
    """Who acts (`warp`, the issuing one of an operation) at static instruction `at`; `operation` names an asynchronous
    one; `kind` of access; `agent` the kind of agent."""

    warp: WarpId | None
    at: int
    operation: str
    kind: str
    agent: str


class Code:
    """The static instructions of a launch."""

    def __init__(self, state: Any) -> None:
        self.instructions = state.program.function.instructions if state is not None else ()
        self._strength: dict[int, Strength | None] = {}

    def strength(self, at: int) -> Strength | None:
        """The memory semantics of an instruction."""
        if at not in self._strength:
            known = 0 <= at < len(self.instructions)
            self._strength[at] = strength_of(self.instructions[at].opcode) if known else None
        return self._strength[at]

    def uses(self, opcode: str) -> bool:
        """Whether any instruction's opcode begins like this."""
        return any(i.opcode.startswith(opcode) for i in self.instructions)


class Sites:
    """A numbering of sites. `agent`, `cluster` int64, `strong`, `generic` bool by site: who acts there, whether it is a
    strong access, whether it goes through the generic proxy. `rows` say the rest, by site."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._of: dict[tuple[Any, ...], int] = {}
        self.rows: list[Site] = [Site(None, -1, "", "", "")]
        self.agent = np.zeros(64, np.int64)
        self.cluster = np.full(64, -1, np.int64)
        self.strong = np.zeros(64, np.bool_)
        self.generic = np.zeros(64, np.bool_)

    def site(self, touch: Any) -> int:
        """The number of the place where a touch is made."""
        access, who = touch.access, touch.who
        cluster = who.cluster.number
        key = (cluster, touch.agent, touch.at, who.id.rank, who.id.warp, access.kind)
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = len(self.rows)
            self.rows.append(Site(who.id, touch.at, touch.operation, access.kind, who.cluster.agents[touch.agent].kind))
            if found >= self.agent.size:
                for name in ("agent", "cluster", "strong", "generic"):
                    array = getattr(self, name)
                    setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
            self.agent[found], self.cluster[found] = touch.agent, cluster
            self.strong[found] = access.kind == "atomic" or self.code.strength(touch.at) is not None
            self.generic[found] = access.proxy == "generic"
        return found
