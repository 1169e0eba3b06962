"""What the machine itself refuses, as findings of the checker that would look for it."""

from __future__ import annotations

import re

from emulator.errors import BarrierFault, Deadlock, EmulatorError, IllegalInstruction, Where
from emulator.watch.finding import Finding
from emulator.watch.naming import role
from emulator.watch.report import Reporter

_NOWHERE = Where("", (0, 0, 0), 0, 0, "")

_TENSOR = (
    (r"ended without tcgen05\.dealloc", "tensor memory leak", "tcgen05.dealloc of what was allocated"),
    (r"tcgen05\.alloc: \d+ columns", "illegal allocation size", "a power of two from 32 to 512 columns"),
    (r"after tcgen05\.relinquish_alloc_permit", "allocation after relinquish", "it before the permit is given up"),
    (r"tcgen05\.dealloc.*not an allocation", "dealloc of what is not allocated", "exactly one live allocation"),
    (r"tcgen05\.dealloc", "illegal dealloc", "a dealloc of exactly one live allocation"),
    (r"reaches lanes", "wrong lane quarter", "a warp reads and writes the lanes 32 (warp modulo 4) onwards only"),
    (r"the last one is", "wrong lane quarter", "a warp reads and writes the lanes 32 (warp modulo 4) onwards only"),
    (r"not allocated", "access to unallocated columns", "a tcgen05.alloc that still holds these columns"),
    (r"the last column is", "columns out of range", "columns 0..511"),
)  # fmt: skip
"""Messages of tensor memory: expression, kind, what should have been there."""

_BARRIERS = (
    (r"no mbarrier was initialised", "mbarrier not initialised", "mbarrier.init before this use"),
    (r"with only .* pending", "too many arrivals", "no more arrivals in a phase than mbarrier.init announced"),
    (r"takes the byte count", "byte count overflow", "a transaction count within 2^20 - 1 bytes"),
    (r"names \d+ threads", "thread counts differ", "the same thread count in all warps that meet at this barrier"),
    (r"threads arrived, ", "too many threads", "as many threads at this barrier as its count says"),
    (r"without an arrive before", "cluster wait without arrive", "barrier.cluster.arrive before the wait"),
    (r"", "barrier misuse", "a use that the rules of the barrier allow"),
)  # fmt: skip


class Translator(Reporter):
    """A checker to which the errors that `finding_of` gives its name to are findings."""

    def failed(self, error: BaseException) -> None:
        """A launch has ended with an error: one of its own becomes a finding."""
        found = finding_of(error)
        if found is not None and found.tool == self.tool:
            self._found.add((found.kind, found.where.line), found)


def finding_of(error: BaseException) -> Finding | None:
    """A raised error as a finding of synccheck (barriers, deadlocks, collectives with missing lanes) or of tmemcheck
    (tensor memory); None for what is neither."""
    if not isinstance(error, EmulatorError):
        return None
    text = str(error.args[0]) if error.args else ""
    if isinstance(error, Deadlock):
        return _deadlock(error)
    if isinstance(error, BarrierFault):
        return _finding("synccheck", error, text, _matching(_BARRIERS, text))
    about_tensor = _matching(_TENSOR, text)
    if about_tensor is not None:
        return _finding("tmemcheck", error, text, about_tensor)
    if isinstance(error, IllegalInstruction) and "do not execute it" in text:
        found = ("missing lanes", "all 32 lanes of the warp at this instruction")
        return _finding("synccheck", error, text, found)
    return None


def _matching(table: tuple[tuple[str, str, str], ...], text: str) -> tuple[str, str] | None:
    return next(((kind, missing) for words, kind, missing in table if re.search(words, text)), None)


def _finding(tool: str, error: EmulatorError, text: str, found: tuple[str, str] | None) -> Finding:
    kind, missing = found or ("misuse", "")
    place = error.where or _NOWHERE
    return Finding(tool, kind, place, text, f"missing: {missing}", role=role(place) if error.where else "")


def _deadlock(error: Deadlock) -> Finding:
    """The warp that waits for a barrier, rather than one that only spins, and what has arrived there."""
    waits = [w for w in error.waiting if "barrier" in w.reason or "lanes" in w.reason] or error.waiting
    if not waits:
        return Finding("synccheck", "deadlock", _NOWHERE, str(error), "missing: an arrival that ends a wait")
    w = waits[0]
    place = Where(error.kernel, (w.cta, 0, 0), w.warp, w.line, w.text, w.loc)
    others = f"; {len(error.waiting) - 1} other warp(s) wait too" if len(error.waiting) > 1 else ""
    notes = f" ({'; '.join(error.notes)})" if error.notes else ""
    kind = "missing lanes" if "lanes" in w.reason else "deadlock"
    missing = f"missing: what warp {w.warp} waits for never comes{others}{notes}"
    return Finding("synccheck", kind, place, w.reason, missing, role=role(place))
