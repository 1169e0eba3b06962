"""The listener that records a launch for the views: `Recorder(**names)` in `listeners`, then `.recording`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emulator import events
from emulator.views.clocks import Clocks
from emulator.views.labels import Labels, ViewError
from emulator.views.recording import Coordinates, CtaRecord, Line, Mark, Recording, Run, Wait, Work
from emulator.views.tensor_history import TensorHistory, Writer, flat

_BLOCKING = (
    "mbarrier.try_wait", "mbarrier.test_wait", "bar.sync", "bar.cta.sync", "bar.red", "bar.cta.red", "barrier.sync",
    "barrier.cta.sync", "barrier.red", "barrier.cta.red", "barrier.cluster.wait", "cp.async.bulk.wait_group",
    "cp.async.wait", "wgmma.wait_group", "tcgen05.alloc",
)  # fmt: skip
"""Instructions that a warp may have to wait at."""
_RECORDS = (
    events.LaunchBegin, events.LaunchEnd, events.Issue, events.Access, events.Synchronise, events.AsyncBegin,
    events.AsyncEnd, events.TensorAllocation,
)  # fmt: skip
_POLLING = 64
"""Instructions after an unsuccessful wait within which the next try belongs to the same polling loop."""


class _Warp:
    """Where one warp stands."""

    def __init__(self) -> None:
        self.at = -1
        self.step = 0
        self.run: Run | None = None
        self.wait: Wait | None = None
        self.tried = 0
        self.passed: list[tuple[int, int]] = []


class _Track:
    """A CTA that is being recorded, and its cluster."""

    def __init__(self, record: CtaRecord, cta: Any) -> None:
        self.record = record
        self.cta = cta
        self.warps = [_Warp() for _ in range(record.warps)]
        self.peers: list[_Track] = []


class Recorder:
    """Records launches. `recordings` holds all of them, `recording` is the latest.

    fields, roles, barriers: names, as `Labels.of` takes them; `kernels.fmha.names` has those of the attention kernel.
    ctas: coordinates of the CTAs to record in detail, "all", or None for the first cluster; instruction counts are of
    the whole grid always. A launch that raised is recorded up to there. Memory: about 100 bytes a wait or run, and for
    tensor memory at most `tensor_history.JOURNAL_BYTES` a CTA.
    """

    def __init__(
        self,
        fields: Mapping[str, Sequence[object]] | None = None,
        roles: Mapping[int, str] | None = None,
        barriers: Sequence[str] | None = None,
        ctas: Collection[Coordinates] | str | None = None,
    ) -> None:
        self.labels = Labels.of(fields, roles, barriers)
        if isinstance(ctas, str) and ctas != "all":
            raise ViewError(f"ctas={ctas!r}; allowed: 'all', None for the first cluster, or a list of coordinates")
        self.wanted = ctas if ctas is None or isinstance(ctas, str) else {tuple(c) for c in ctas}
        self.recordings: list[Recording] = []
        self.step = 0
        self.records = frozenset(_RECORDS)
        handlers = (
            self._begin, self._end, self._issue, self._access, self._synchronise, self._async_begin, self._async_end,
            self._allocation,
        )  # fmt: skip
        self._handlers: dict[type, Callable[[Any], None]] = dict(zip(_RECORDS, handlers, strict=True))

    def __call__(self, record: Any) -> None:
        self._handlers[type(record)](record)

    @property
    def recording(self) -> Recording:
        """The latest launch, up to now if it still runs. Raises ViewError if there was none."""
        if not self.recordings:
            raise ViewError("nothing was recorded: no kernel was launched with this recorder among the listeners")
        if self.recordings[-1].ended:
            return self.recordings[-1]
        return self._so_far()

    def finished(self) -> list[Recording]:
        """All launches, the last one up to now if it still runs or has failed; none gives an empty list."""
        return [*self.recordings[:-1], self.recording] if self.recordings else []

    # ---------------------------------------------------------------- launches
    def _begin(self, record: events.LaunchBegin) -> None:
        self._grid = record.state
        program = record.state.program
        instructions = program.function.instructions
        self._kinds = [i.opcode.startswith(_BLOCKING) for i in instructions]
        self.recordings.append(
            Recording(
                record.kernel,
                record.grid,
                record.block,
                record.cluster,
                record.state.policy,
                self.labels,
                [Line(i.line, i.text, *_short(i.loc)) for i in instructions],
                np.zeros(len(instructions), np.int64),
            )
        )
        self.step = 0
        self._tracks: dict[Coordinates, _Track | None] = {}
        self._clocks = Clocks()
        self._running: tuple[_Track, _Warp] | None = None
        self._operations: dict[int, tuple[Work, _Track]] = {}
        self._touched: dict[int, dict[int, list[Any]]] = {}

    def _end(self, record: events.LaunchEnd) -> None:
        finished = self._so_far()
        finished.ended = True
        self.recordings[-1] = finished
        # The kernel's memory is not needed any more.
        self._tracks.clear()
        self._running = None

    def _so_far(self) -> Recording:
        ctas = {}
        for where, track in self._tracks.items():
            if track is None:
                continue
            runs = [w.run for w in track.warps if w.run is not None]
            once = [self._asked_once(track, w, w.wait, 1) for w in track.warps if w.wait is not None]
            runs += [run for run in once if run is not None]
            waits = [self._open(track, w, w.wait) for w in track.warps if w.wait is not None and w.tried]
            record = track.record
            ctas[where] = replace(record, runs=[*record.runs, *runs], waits=[*record.waits, *waits])
        program = self._grid.program
        counts = np.repeat(np.array(self._grid.counts, np.int64), program.lengths)
        return replace(self.recordings[-1], ctas=ctas, counts=counts, steps=self.step)

    def _open(self, track: _Track, warp: _Warp, wait: Wait) -> Wait:
        """A wait that has not ended, with what the machine says about it. A warp that polled in vain and ended waits no
        longer; the machine forgets the warps of a cluster that has ended."""
        state = next((w for w in track.cta.warps if w.index == wait.warp), None)
        if state is None or state.done:
            return replace(wait, end=warp.step, logical_end=self._clocks.at((track.record.coordinates, wait.warp)))
        return replace(wait, what=state.waiting, offset=getattr(state.waits_for, "address", -1))

    def _track(self, who: events.WarpId) -> _Track | None:
        if who.cta in self._tracks:
            return self._tracks[who.cta]
        cluster = next(c for c in self._grid.resident if any(x.coordinates == who.cta for x in c.ctas))
        wanted = self.wanted
        if wanted is None:
            chosen = not self._tracks
        else:
            chosen = wanted == "all" or any(tuple(x.coordinates) in wanted for x in cluster.ctas)
        made: list[_Track] = []
        for cta in cluster.ctas:
            record = CtaRecord(cta.coordinates, cta.rank, len(cta.warps))
            if chosen:
                made.append(_Track(record, cta))
            self._tracks[cta.coordinates] = made[-1] if chosen else None
        for track in made:
            track.peers = made
        return self._tracks[who.cta]

    # ---------------------------------------------------------------- instructions
    def _issue(self, record: events.Issue) -> None:
        self.step += 1
        track = self._track(record.who)
        if track is None:
            return
        warp, index = track.warps[record.who.warp], record.index
        warp.at, warp.step = index, self.step
        running = self._running
        if running is not None and running[1] is not warp:
            self._stop(*running)
        self._running = (track, warp)
        if warp.wait is not None and self._still_waits(track, warp, index):
            return
        key = (record.who.cta, record.who.warp)
        if self._kinds[index]:
            self._stop(track, warp)
            now = self._clocks.at(key)
            warp.wait = Wait(self.step, -1, now, now, warp=record.who.warp, index=index)
            warp.tried, warp.passed = 0, []
            return
        now = self._clocks.tick(key)
        if warp.run is None:
            warp.run = Run(self.step - 1, self.step, now - 1, now, record.who.warp, index, index)
        else:
            warp.run.end, warp.run.logical_end, warp.run.last = self.step, now, index

    def _still_waits(self, track: _Track, warp: _Warp, index: int) -> bool:
        """Whether this instruction belongs to the wait that is open; else the wait is closed."""
        wait = warp.wait
        assert wait is not None
        if index == wait.index:
            warp.tried += 1
            warp.passed.clear()
            return True
        polls = "mbarrier" in self.recordings[-1].lines[wait.index].text
        if polls and len(warp.passed) < _POLLING and not self._kinds[index]:
            warp.passed.append((self.step, index))
            return True
        self._go_on(track, warp, None)
        run = self._asked_once(track, warp, wait, 0)
        if run is not None:
            for _ in warp.passed:
                self._clocks.tick((track.record.coordinates, wait.warp))
            warp.run = run
        return False

    def _asked_once(self, track: _Track, warp: _Warp, wait: Wait, behind: int) -> Run | None:
        """What followed an unsuccessful wait that was not tried again: no polling loop, so the warp ran. Its clock is
        `behind` by that many instructions."""
        if warp.tried or not warp.passed:
            return None
        now = self._clocks.at((track.record.coordinates, wait.warp)) + behind
        (begin, first), (end, last) = warp.passed[0], warp.passed[-1]
        return Run(begin - 1, end, now, now + len(warp.passed), wait.warp, first, last)

    def _stop(self, track: _Track, warp: _Warp) -> None:
        if warp.run is not None:
            track.record.runs.append(warp.run)
            warp.run = None

    def _go_on(self, track: _Track, warp: _Warp, release: tuple[int | str | None, int, int] | None) -> None:
        """A wait has ended; `release`: who made it end, and when on both clocks."""
        wait, warp.wait = warp.wait, None
        if wait is None:
            return
        key = (track.record.coordinates, wait.warp)
        by, step, logical = release if release is not None else (None, -1, 0)
        now = self._clocks.meet(key, logical)
        wait.end, wait.logical_end = self.step, now
        wait.by, wait.by_begin, wait.by_logical = by, step, logical
        self._clocks.tick(key)
        if warp.tried or wait.logical_end > wait.logical_begin:
            track.record.waits.append(wait)

    # ---------------------------------------------------------------- synchronisation
    def _synchronise(self, record: events.Synchronise) -> None:
        track = self._track(record.who)
        if track is None:
            return
        key = (record.who.cta, record.who.warp)
        warp = track.warps[record.who.warp]
        what = record.what
        if what.startswith("mbarrier."):
            self._mbarrier(track, warp, record, key)
        elif what == "bar.arrive":
            named = ("bar", record.who.cta, record.key[1], record.detail[1])
            self._clocks.arrive_at(named, self._clocks.at(key), record.who.warp, self.step)
        elif what == "bar.sync":
            self._leave(track, warp, f"barrier {record.key[1]}", ("bar", record.who.cta, record.key[1], *record.detail))
        elif what.startswith("barrier.cluster.arrive"):
            everyone = ("cluster", self._cluster(track), *record.detail)
            self._clocks.arrive_at(everyone, self._clocks.at(key), record.who.warp, self.step)
        elif what == "barrier.cluster.wait":
            self._leave(track, warp, "cluster barrier", ("cluster", self._cluster(track), *record.detail))

    @staticmethod
    def _cluster(track: _Track) -> Coordinates:
        return track.peers[0].record.coordinates

    def _leave(self, track: _Track, warp: _Warp, what: str, barrier: tuple[Any, ...]) -> None:
        if warp.wait is not None:
            warp.wait.what = what
            self._go_on(track, warp, self._clocks.last_arrival(barrier))

    def _mbarrier(self, track: _Track, warp: _Warp, record: events.Synchronise, key: Any) -> None:
        rank, offset = record.key
        if rank >= len(track.peers):
            return
        owner, kind = track.peers[rank], record.what.removeprefix("mbarrier.")
        lane: int | str = record.who.warp
        if record.operation >= 0 and record.operation in self._operations:
            work = self._operations[record.operation][0]
            lane, now = work.unit, work.logical_end
        else:
            now = self._clocks.at(key)
        name = (owner.record.coordinates, offset, record.phase - (kind == "wait"))
        if kind == "wait":
            if warp.wait is not None:
                warp.wait.offset = offset
                self._go_on(track, warp, self._clocks.last_arrival(name))
            self._mark(owner, offset, "wait", name[2], lane, self._clocks.at(key))
        elif kind == "init":
            owner.record.barriers[offset] = record.detail[0]
            self._mark(owner, offset, "init", 0, lane, now)
        elif kind != "inval":
            self._mark(owner, offset, "expect" if "expect_tx" in kind else "arrive", record.phase, lane, now)
            self._clocks.arrive_at(name, now, lane, self.step)
            if record.ended:
                self._mark(owner, offset, "complete", record.phase, lane, self._clocks.last_arrival(name)[2])

    def _mark(self, owner: _Track, offset: int, kind: str, phase: int, lane: int | str, logical: int) -> None:
        owner.record.marks.append(Mark(self.step, logical, offset, kind, phase, lane))

    # ---------------------------------------------------------------- asynchronous units
    def _async_begin(self, record: events.AsyncBegin) -> None:
        track = self._track(record.who)
        if track is None:
            return
        begin = self._clocks.at((record.who.cta, record.who.warp))
        if record.unit == "tensor":
            begin = self._clocks.queue((record.who.cta, record.unit), begin)
        work = Work(
            self.step, -1, begin, begin + 1, record.operation, record.unit, record.what, record.who.warp, record.at
        )
        track.record.work.append(work)
        self._operations[record.operation] = (work, track)

    def _async_end(self, record: events.AsyncEnd) -> None:
        found = self._operations.pop(record.operation, None)
        if found is None:
            return
        work, track = found
        work.end = self.step
        touched = self._touched.pop(record.operation, None)
        if work.unit == "tensor" and "commit" not in work.what:
            self._product(work, track, touched)

    # ---------------------------------------------------------------- tensor memory
    def _allocation(self, record: events.TensorAllocation) -> None:
        track = self._track(record.who)
        if track is None or record.rank >= len(track.peers):
            return
        owner = track.peers[record.rank].record
        if owner.tensor is None:
            owner.tensor = TensorHistory()
        owner.tensor.allocate(self.step, record.column, record.columns, record.release)

    def _access(self, record: events.Access) -> None:
        if record.space != "tensor":
            return
        track = self._track(record.who)
        if track is None:
            return
        if record.operation >= 0:
            ranks = self._touched.setdefault(record.operation, {})
            ranks.setdefault(record.rank, []).append((record.kind, record.addresses))
            return
        history = track.peers[record.rank].record.tensor
        if history is None:
            return
        warp = record.who.warp
        index = track.warps[warp].at
        addresses = np.asarray(record.addresses)
        threads = np.broadcast_to(np.arange(addresses.shape[-1]) + 32 * warp, addresses.shape).ravel()
        if record.kind == "read":
            history.load(flat(addresses), threads, index)
        else:
            words = track.peers[record.rank].cta.tensor.words
            history.write(self.step, words, Writer("st", warp, index), flat(addresses), threads)

    def _product(self, work: Work, track: _Track, touched: dict[int, list[Any]] | None) -> None:
        """A matrix product or a copy has written tensor memory."""
        writer = Writer("cp" if ".cp" in work.what else "mma", work.warp, work.index)
        for rank, owner in enumerate(track.peers):
            if owner.record.tensor is None or (touched is not None and rank not in touched):
                continue
            written = [flat(a) for kind, a in (touched or {}).get(rank, ()) if kind == "write"]
            read = [flat(a) for kind, a in (touched or {}).get(rank, ()) if kind == "read"]
            where = np.unique(np.concatenate(written)) if written else None
            fresh = where is not None and not (read and np.isin(where, np.concatenate(read)).any())
            owner.record.tensor.write(self.step, owner.cta.tensor.words, writer, where, None, fresh)


def _short(loc: tuple[str, int] | None) -> tuple[str, int]:
    """A source file relative to the working directory if it lies inside."""
    if loc is None:
        return "", 0
    here = os.getcwd() + os.sep
    return loc[0].removeprefix(here), loc[1]
