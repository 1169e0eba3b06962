"""What a schedule does, told as a list of its deviations from `in_order`, from the events of a run that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.events import AsyncBegin, AsyncEnd, Issue, LaunchBegin, Turns, WarpId
from emulator.machine.cta import Coordinates
from emulator.machine.schedule import First, Hold, Schedule, Slice

MOST_WARPS = 4
"""Warps named in one line."""

_UNTIL = {
    "needed": "completes only when nobody can go on without it",
    "stuck": "completes only when no warp can step",
}


@dataclass
class _Late:
    """A held operation: what it is, where it stands in the list, where the warps were when it was issued."""

    place: int
    text: str
    before: dict[WarpId, int]


@dataclass
class _Rest:
    """A warp that rests in consecutive rounds."""

    place: int
    text: str
    first: int
    last: int


@dataclass
class _Launch:
    """The launch in progress."""

    schedule: Schedule
    instructions: Sequence[Any]
    ctas: int
    warps: int
    holds: dict[tuple[Coordinates, int, int], Hold] = field(default_factory=dict)
    firsts: dict[tuple[Coordinates, int], list[int]] = field(default_factory=dict)
    slices: dict[tuple[Coordinates, int], list[Slice]] = field(default_factory=dict)
    issued: dict[WarpId, int] = field(default_factory=dict)
    at: dict[WarpId, int] = field(default_factory=dict)
    late: dict[int, _Late] = field(default_factory=dict)


class Story:
    """A listener of runs that replay `schedules`, one launch each; `lines` are the deviations in order."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._schedules = list(schedules)
        self._launch: _Launch | None = None
        self._told: list[str] = []
        self._resting: dict[tuple[Coordinates, int], _Rest] = {}
        self._stopped: list[tuple[int, Coordinates, int]] = []

    @property
    def lines(self) -> list[str]:
        """One line a deviation, without numbers."""
        return [line for line in self._told if line]

    def __call__(self, record: Any) -> None:
        """Take a record."""
        if isinstance(record, Issue):
            if self._launch is not None:
                self._launch.at[record.who] = record.index
        elif isinstance(record, AsyncBegin):
            self._issued(record)
        elif isinstance(record, AsyncEnd):
            self._completed(record.operation)
        elif isinstance(record, Turns):
            self._turns(record)
        elif isinstance(record, LaunchBegin):
            self._begin(record)

    def _begin(self, record: LaunchBegin) -> None:
        self._resting.clear()
        self._stopped.clear()
        if not self._schedules:
            self._launch = None
            return
        x, y, z = record.block
        ctas = record.grid[0] * record.grid[1] * record.grid[2]
        schedule = self._schedules.pop(0)
        launch = _Launch(schedule, record.state.program.function.instructions, ctas, -(-x * y * z // 32))
        for decision in schedule.decisions:
            if isinstance(decision, Hold):
                launch.holds[decision.cluster, decision.warp, decision.nth] = decision
            elif isinstance(decision, First):
                launch.firsts.setdefault((decision.cluster, decision.round), []).append(decision.warp)
            else:
                launch.slices.setdefault((decision.cluster, decision.round), []).append(decision)
        self._launch = launch

    # ---------------------------------------------------------------- operations
    def _issued(self, record: AsyncBegin) -> None:
        launch = self._launch
        if launch is None:
            return
        who = record.who
        nth = launch.issued.get(who, 0)
        launch.issued[who] = nth + 1
        hold = launch.holds.get((self._cluster(launch, who), who.rank * launch.warps + who.warp, nth))
        if hold is None:
            return
        place = _place(launch.instructions[launch.at[who]]) if who in launch.at else "?"
        until = f"completes only in round {hold.at}" if hold.until == "round" else _UNTIL[hold.until]
        text = (
            f"{record.unit} operation #{record.operation} of {self._name(launch, who)} ({record.what}; {place}) {until}"
        )
        launch.late[record.operation] = _Late(len(self._told), text, dict(launch.at))
        self._told.append(text)

    def _completed(self, operation: int) -> None:
        launch = self._launch
        late = launch.late.pop(operation, None) if launch is not None else None
        if launch is None or late is None:
            return
        moved = [who for who, at in launch.at.items() if late.before.get(who) != at]
        shown = [f"{self._name(launch, who)} to {_place(launch.instructions[launch.at[who]])}" for who in moved]
        if shown:
            more = f" and {len(shown) - MOST_WARPS} more" if len(shown) > MOST_WARPS else ""
            self._told[late.place] += f"; meanwhile {', '.join(shown[:MOST_WARPS])}{more}"

    # ---------------------------------------------------------------- turns
    def _turns(self, record: Turns) -> None:
        launch = self._launch
        if launch is None:
            return
        self._tell_stops(launch, record.cluster)
        key = (record.cluster, record.round)
        firsts = launch.firsts.get(key)
        if firsts:
            behind = [n for n, _ in record.turns if n not in firsts and n < max(firsts)]
            names = ", then ".join(self._where(launch, record.cluster, n) for n in firsts)
            others = ", ".join(self._where(launch, record.cluster, n) for n in behind[:MOST_WARPS])
            more = f" and {len(behind) - MOST_WARPS} more" if len(behind) > MOST_WARPS else ""
            self._told.append(
                f"round {record.round}: {names} runs first" + (f", before {others}{more}" if others else "")
            )
        given = dict(record.turns)
        for cut in launch.slices.get(key, []):
            if given.get(cut.warp) == cut.blocks:
                self._slice(launch, record, cut)

    def _tell_stops(self, launch: _Launch, cluster: Coordinates) -> None:
        """Where the warps stand that were stopped in the round before."""
        for place, of, warp in self._stopped:
            who = self._who(launch, of, warp)
            if of == cluster and who in launch.at:
                self._told[place] += f", behind {_place(launch.instructions[launch.at[who]])}"
        self._stopped = [stop for stop in self._stopped if stop[1] != cluster]

    def _slice(self, launch: _Launch, record: Turns, cut: Slice) -> None:
        where = self._where(launch, record.cluster, cut.warp)
        if cut.blocks:
            blocks = f"{cut.blocks} block{'s' if cut.blocks > 1 else ''}"
            self._stopped.append((len(self._told), record.cluster, cut.warp))
            self._told.append(f"round {record.round}: {where} is stopped after {blocks}")
            return
        rest = self._resting.get((record.cluster, cut.warp))
        if rest is None or rest.last != record.round - 1:
            rest = _Rest(len(self._told), where, record.round, record.round)
            self._resting[record.cluster, cut.warp] = rest
            self._told.append("")
        rest.last = record.round
        rounds = f"round {rest.first}" if rest.first == rest.last else f"rounds {rest.first} to {rest.last}"
        self._told[rest.place] = f"{rounds}: {rest.text} rests"

    # ---------------------------------------------------------------- names
    def _cluster(self, launch: _Launch, who: WarpId) -> Coordinates:
        a, b, c = (at // size * size for at, size in zip(who.cta, launch.schedule.cluster, strict=True))
        return a, b, c

    def _where(self, launch: _Launch, cluster: Coordinates, warp: int) -> str:
        """A warp of a cluster and where it stands."""
        who = self._who(launch, cluster, warp)
        at = f"at {_place(launch.instructions[launch.at[who]])}" if who in launch.at else "not begun"
        return f"{self._name(launch, who)} ({at})"

    @staticmethod
    def _who(launch: _Launch, cluster: Coordinates, warp: int) -> WarpId:
        rank, index = divmod(warp, launch.warps)
        cx, cy, _ = launch.schedule.cluster
        return WarpId(
            (cluster[0] + rank % cx, cluster[1] + rank // cx % cy, cluster[2] + rank // (cx * cy)), rank, index
        )

    @staticmethod
    def _name(launch: _Launch, who: WarpId) -> str:
        return f"warp {who.warp}" + (f" of CTA {who.cta}" if launch.ctas > 1 else "")


def _place(instruction: Any) -> str:
    source = f", {instruction.loc[0]}:{instruction.loc[1]}" if instruction.loc else ""
    return f"PTX line {instruction.line}{source}"
