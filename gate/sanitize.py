"""--sanitize: the case once more with checkers listening. Only worker processes import this module."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from emulator.errors import Where
from emulator.watch import Finding, checkers, failed, findings
from gate.device import Device
from gate.result import FindingResult, Place, Sanitizers
from gate.stage import Stop

MOST_FINDINGS = 100
"""Different findings that a result keeps."""


class Runs(Protocol):
    """The kernel of the case."""

    def call(self) -> dict[str, Tensor]:
        """One more call of run()."""


def sanitize(tools: list[str], kernel: Runs, device: Device, root: Path) -> tuple[Sanitizers, Stop | None]:
    """Call the kernel under `in_order` with the checkers of these names; gives what they found, and what stopped the
    kernel, if something did. Paths of sources become relative to `root`."""
    chosen = checkers(tools)
    device.set_policy("in_order")
    device.begin()
    stopped: Stop | None = None
    started = time.perf_counter()
    with ExitStack() as stack:
        for checker in chosen:
            stack.enter_context(device.listening(checker))
        try:
            kernel.call()
        except Stop as stop:
            stopped = stop
            # the judge turns exceptions into a Stop; the emulator's own says where it happened
            failed(chosen, stop.__context__)
    found = findings(chosen)
    kept = [_result(finding, root) for finding in found[:MOST_FINDINGS]]
    seconds = time.perf_counter() - started
    return Sanitizers(tools=tools, findings=kept, more=len(found) - len(kept), seconds=seconds), stopped


def _result(finding: Finding, root: Path) -> FindingResult:
    return FindingResult(
        tool=finding.tool,
        kind=finding.kind,
        memory=finding.memory,
        missing=finding.missing,
        count=finding.count,
        at=_place(finding.where, finding.role, root),
        other=None if finding.other is None else _place(finding.other, finding.other_role, root),
    )


def _place(where: Where, role: str, root: Path) -> Place:
    about: dict[str, Any] = {}
    if where.loc is not None:
        about = {"file": where.loc[0].removeprefix(f"{root}/"), "source_line": where.loc[1]}
    return Place(
        kernel=where.kernel, cta=list(where.cta), warp=where.warp, line=where.line, text=where.text, role=role, **about
    )
