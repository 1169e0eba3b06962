"""Pipelines whose barrier arrivals are arithmetic, checked before a kernel is traced.

A pipeline stage has two mbarriers: *full* (the producer has filled it) and *empty* (the consumer is done with it). A
barrier that expects another number of arrivals than the kernel makes hangs, or worse, opens early. Arrivals in a phase:

    tma      1              one lane of the one warp that issues the copy arrives with the expected bytes
    umma     1              one tcgen05.commit
    threads  32 per warp    every lane arrives

``Pipe`` is pure Python. Nothing here keeps a running state: the turn of a stage follows from the number of the item
that passes through it, so a loop over tiles carries no pipeline object and two warps can't disagree about the phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cutlass import Int32
    from cutlass.pipeline import PipelineAsync, PipelineState

WARP = 32
BARRIER_BYTES = 8

Kind = Literal["tma", "umma", "threads"]


@dataclass(frozen=True)
class Side:
    """Who arrives: ``warps`` warps of the named role, in the given manner."""

    role: str
    kind: Kind
    warps: int

    @property
    def arrivals(self) -> int:
        """Arrivals that the kernel makes in one phase."""
        return WARP * self.warps if self.kind == "threads" else 1

    def arithmetic(self) -> str:
        """``softmax: 4 warps x 32 threads = 128`` or ``mma: 1 tcgen05.commit``."""
        if self.kind == "threads":
            return f"{self.role}: {self.warps} warps x {WARP} threads = {self.arrivals}"
        return f"{self.role}: 1 " + ("elected lane with expect_tx" if self.kind == "tma" else "tcgen05.commit")


@dataclass(frozen=True)
class Pipe:
    """One pipeline: ``full`` and ``empty`` are the counts that its mbarriers are initialised with."""

    name: str
    stages: int
    producer: Side
    consumer: Side
    full: int
    empty: int
    tx_bytes: int = 0

    @property
    def barriers(self) -> int:
        """mbarriers of 8 bytes: one full and one empty for each stage."""
        return 2 * self.stages

    def problems(self) -> list[str]:
        """Every way in which the barriers disagree with the kernel."""
        found = []
        for what, expected, side in (("full", self.full, self.producer), ("empty", self.empty, self.consumer)):
            if expected != side.arrivals:
                found.append(
                    f"pipeline {self.name}: barrier {what!r} expects {expected} arrivals, "
                    f"the kernel makes {side.arrivals} ({side.arithmetic()})"
                )
            if side.kind in ("tma", "umma") and side.warps != 1:
                found.append(
                    f"pipeline {self.name}: {side.role} arrives by {side.kind} from {side.warps} warps; one may"
                )
        if (self.producer.kind == "tma") != (self.tx_bytes > 0):
            found.append(
                f"pipeline {self.name}: tx_bytes={self.tx_bytes}, producer is {self.producer.kind}; only tma has bytes"
            )
        if self.stages < 1:
            found.append(f"pipeline {self.name}: stages={self.stages}; at least 1")
        return found

    def arithmetic(self) -> str:
        """One line: stages, bytes a stage, who arrives where."""
        size = f", {self.tx_bytes} bytes a stage" if self.tx_bytes else ""
        return (
            f"pipeline {self.name}: {self.stages} stages{size}; full <- {self.producer.arithmetic()}; "
            f"empty <- {self.consumer.arithmetic()}"
        )


def make_pipeline(pipe: Pipe, barriers: Any) -> PipelineAsync:
    """The CuTe DSL pipeline for ``pipe`` on ``pipe.barriers`` mbarriers at the shared-memory pointer ``barriers``.

    The caller fences and synchronises once for all pipelines (``defer_sync``).
    """
    from cutlass.pipeline import (
        Agent,
        CooperativeGroup,
        PipelineAsync,
        PipelineTmaUmma,
        PipelineUmmaAsync,
    )

    common = {
        "num_stages": pipe.stages,
        "producer_group": CooperativeGroup(Agent.Thread, pipe.full),
        "consumer_group": CooperativeGroup(Agent.Thread, pipe.empty),
        "barrier_storage": barriers,
        "defer_sync": True,
    }
    kinds = (pipe.producer.kind, pipe.consumer.kind)
    if kinds == ("tma", "umma"):
        return PipelineTmaUmma.create(tx_count=pipe.tx_bytes, **common)
    if kinds == ("umma", "threads"):
        return PipelineUmmaAsync.create(**common)
    if kinds == ("threads", "threads"):
        return PipelineAsync.create(**common)
    raise ValueError(f"pipeline {pipe.name}: no pipeline from {kinds[0]} to {kinds[1]}")


def producer_turn(item: Int32 | int, stages: int) -> PipelineState:
    """Stage and parity at which a producer may fill item ``item``: parity 1 on a fresh barrier is open."""
    return _turn(item, stages, 1)


def consumer_turn(item: Int32 | int, stages: int) -> PipelineState:
    """Stage and parity at which a consumer finds item ``item``."""
    return _turn(item, stages, 0)


def _turn(item: Int32 | int, stages: int, start: int) -> PipelineState:
    from cutlass import Int32
    from cutlass.pipeline import PipelineState

    item = Int32(item)
    return PipelineState(stages, item, item % stages, ((item // stages) & 1) ^ start)
