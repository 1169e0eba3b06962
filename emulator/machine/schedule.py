"""Schedules: what a run decided otherwise than `in_order` would, as data that can be stored, cut down and replayed.

`in_order` completes an asynchronous operation at its issue, and in every round lets the warps of a cluster run by
index, each until it blocks. A schedule is the list of deviations from that. Each stands by itself: whatever is taken
out of a schedule, the rest is a schedule.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from emulator.errors import ScheduleError
from emulator.machine.cta import Coordinates

FORMAT = "emulator schedule"
VERSION = 1
UNTIL = ("round", "stuck", "needed")


@dataclass(frozen=True)
class Hold:
    """An asynchronous operation does not complete at its issue. It is the `nth` (from 0) of warp `warp` (counted over
    the CTAs of the cluster whose first CTA is `cluster`), and completes at the beginning of round `at` (`round`), as
    the `at`-th of those that are completed because no warp can step (`stuck`), or only when something behind it in its
    pipe completes, a warp waits for just this, or the cluster ends (`needed`)."""

    cluster: Coordinates
    warp: int
    nth: int
    until: Literal["round", "stuck", "needed"] = "needed"
    at: int = 0


@dataclass(frozen=True)
class First:
    """In round `round` (from 1) warp `warp` runs before those that no `First` of the round names; several in their
    order."""

    cluster: Coordinates
    round: int
    warp: int


@dataclass(frozen=True)
class Slice:
    """In round `round` warp `warp` runs at most `blocks` basic blocks; 0: it rests. Without effect in a round that
    follows one in which nothing changed, or resting would look like a deadlock."""

    cluster: Coordinates
    round: int
    warp: int
    blocks: int


Decision = Hold | First | Slice
_KINDS: dict[str, type[Hold] | type[First] | type[Slice]] = {"hold": Hold, "first": First, "slice": Slice}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True)
class Schedule:
    """The decisions of one launch. `ptx` is a digest of the module's text: a schedule fits no other kernel."""

    kernel: str
    ptx: str
    grid: Coordinates
    block: Coordinates
    cluster: Coordinates
    decisions: tuple[Decision, ...] = ()

    def check(self, kernel: str, ptx: str, grid: Coordinates, block: Coordinates, cluster: Coordinates) -> None:
        """Raises ScheduleError if it was recorded for another launch than this one."""
        if (self.kernel, self.ptx) != (kernel, ptx):
            raise ScheduleError(
                f"schedule: recorded for kernel {self.kernel} of PTX {self.ptx}; this is {kernel} of PTX {ptx}. "
                "Record another one"
            )
        for name, own, given in (
            ("grid", self.grid, grid),
            ("block", self.block, block),
            ("cluster", self.cluster, cluster),
        ):
            if own != given:
                raise ScheduleError(f"schedule of {kernel}: recorded for {name} {own}; this launch has {given}")


@lru_cache(64)
def digest(source: str) -> str:
    """16 hexadecimal digits that tell PTX texts apart."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def dumps(schedules: Iterable[Schedule]) -> str:
    """Schedules of consecutive launches as JSON, one decision a line."""
    rows = []
    for schedule in schedules:
        about = {f.name: getattr(schedule, f.name) for f in fields(Schedule) if f.name != "decisions"}
        about["count"] = len(schedule.decisions)
        lines = ",\n  ".join(json.dumps([_NAMES[type(d)], *asdict(d).values()]) for d in schedule.decisions)
        rows.append(f'{json.dumps(about)[:-1]}, "decisions": [\n  {lines}]}}')
    joined = ",\n".join(rows)
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "launches": [\n{joined}]}}\n'


def loads(text: str, name: str = "schedule") -> tuple[Schedule, ...]:
    """The schedules of a text by `dumps`; `name` is what errors call it.

    Raises ScheduleError when the text is cut off, of another version, or no schedule.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ScheduleError(f"{name}: cut off, or no JSON ({error})") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise ScheduleError(f'{name}: no schedule: "format" must be "{FORMAT}"')
    if raw.get("version") != VERSION:
        raise ScheduleError(f"{name}: version {raw.get('version')}; version {VERSION} is read. Record another one")
    try:
        return tuple(_schedule(launch, name) for launch in raw["launches"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ScheduleError(f"{name}: no schedule ({type(error).__name__}: {error})") from None


def save(path: Path, schedules: Iterable[Schedule]) -> None:
    """Write schedules of consecutive launches, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(dumps(schedules), encoding="utf-8")
    temporary.replace(path)


def load(path: Path) -> tuple[Schedule, ...]:
    """Read what `save` has written. Raises ScheduleError as `loads` does, and when there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScheduleError(f"schedule {path}: cannot be read ({error})") from None
    return loads(text, f"schedule {path}")


def _schedule(raw: dict[str, Any], name: str) -> Schedule:
    decisions = tuple(_decision(*row) for row in raw["decisions"])
    if len(decisions) != raw["count"]:
        raise ScheduleError(f"{name}: cut off: {len(decisions)} of {raw['count']} decisions of {raw['kernel']}")
    grid, block, cluster = (_triple(raw[key]) for key in ("grid", "block", "cluster"))
    return Schedule(str(raw["kernel"]), str(raw["ptx"]), grid, block, cluster, decisions)


def _decision(kind: str, cluster: Sequence[int], *rest: Any) -> Decision:
    decision = _KINDS[kind](_triple(cluster), *rest)
    if isinstance(decision, Hold) and decision.until not in UNTIL:
        raise ValueError(f"hold until {decision.until!r}: allowed {', '.join(UNTIL)}")
    numbers = [v for v in asdict(decision).values() if not isinstance(v, (str, tuple, list))]
    if any(type(v) is not int or v < 0 for v in numbers):
        raise ValueError(f"{kind} {[*rest]}: whole numbers from 0 are needed")
    return decision


def _triple(values: Sequence[int]) -> Coordinates:
    x, y, z = values
    if any(type(v) is not int for v in (x, y, z)):
        raise ValueError(f"coordinates {list(values)}: three whole numbers are needed")
    return x, y, z
