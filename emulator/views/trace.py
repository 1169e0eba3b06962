"""Traces: a file for ui.perfetto.dev (Chrome's JSON format) that also holds the whole recording, to draw it later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.views.labels import ViewError
from emulator.views.recording import CtaRecord, Recording, Wait, latest
from emulator.views.stages import stages
from emulator.views.store import restore, store
from emulator.views.timeline import timeline
from emulator.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "ptx-emulator-trace"
VERSION = 1
"""Grows whenever a reader of the old form would go wrong."""


class TraceError(ViewError):
    """A file that is no trace, is cut off, or has another version."""


@dataclass(frozen=True, eq=False)
class Trace(View):
    """A written (or loaded) trace."""

    path: Path
    recording: Recording
    events: int

    def text(self) -> str:
        """Where it lies, what it holds, how to open it."""
        ctas = len(self.recording.ctas)
        return "\n".join(
            [
                f"{self.path}: {self.events} events of {self.recording.kernel}, {ctas} CTA(s), format {VERSION}",
                "open it at https://ui.perfetto.dev (Open trace file); 1 us there is one logical step, not time",
                f"draw it with: python -m emulator.views {self.path} --view timeline,stages,tmem,hot",
            ]
        )

    def figure(self) -> Figure:
        """The timeline of the first CTA."""
        return timeline(self.recording).figure()


def trace(given: Any, path: str | Path) -> Trace:
    """Write the trace of a Recorder or Recording to `path` (a temporary name first, so that nobody reads half of it).

    On the time axis one microsecond is one logical step. Processes are CTAs, threads are warps and units, arrows lead
    from who lets a wait end to the wait, counters are the stages of pipelines that are in use.
    """
    recording = latest(given)
    events: list[dict[str, Any]] = []
    for pid, record in enumerate(recording.ctas.values(), 1):
        events += _cta_events(recording, record, pid)
    whole = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "format": FORMAT,
            "version": VERSION,
            "kernel": recording.kernel,
            "clock": "1 us is one logical step; the emulator has no time",
            "events": len(events),
        },
        "recording": store(recording),
    }
    target = Path(path)
    beside = target.with_name(target.name + ".part")
    beside.write_text(json.dumps(whole, separators=(",", ":")), encoding="utf-8")
    beside.replace(target)
    return Trace(target, recording, len(events))


def load_trace(path: str | Path) -> Trace:
    """A trace that `trace` wrote. Raises TraceError for a file that is missing, cut off, no trace, or of another
    version."""
    target = Path(path)
    try:
        text = target.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{target}: cannot be read as a trace: {error}") from None
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{target}: the trace is cut off or damaged at character {error.pos} of {len(text)}") from None
    about = whole.get("otherData") if isinstance(whole, dict) else None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise TraceError(f"{target}: not a trace of this emulator (otherData.format is not {FORMAT!r})")
    if about.get("version") != VERSION:
        raise TraceError(f"{target}: version {about.get('version')!r} of the format; this reads version {VERSION} only")
    events = whole.get("traceEvents")
    if not isinstance(events, list) or len(events) != about.get("events") or "recording" not in whole:
        count = len(events) if isinstance(events, list) else 0
        raise TraceError(f"{target}: the trace is cut off: {count} of {about.get('events')} events, or no recording")
    try:
        recording = restore(whole["recording"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TraceError(f"{target}: the recording in the trace is damaged ({type(error).__name__}: {error})") from None
    return Trace(target, recording, len(events))


def _cta_events(recording: Recording, record: CtaRecord, pid: int) -> list[dict[str, Any]]:
    tids = {lane: k + 1 for k, lane in enumerate(record.lanes)}
    events = [_meta(pid, 0, "process_name", {"name": f"{recording.kernel} CTA {record.coordinates}"})]
    for lane, tid in tids.items():
        events.append(_meta(pid, tid, "thread_name", {"name": recording.lane(lane)}))
        events.append(_meta(pid, tid, "thread_sort_index", {"sort_index": tid}))
    for run in record.runs:
        first, last = recording.lines[run.first], recording.lines[run.last]
        args = {"from": first.place, "to": last.place, "step": run.begin}
        events.append(_slice(pid, tids[run.warp], first.place, "run", run.logical_begin, run.logical_end, args))
    for work in record.work:
        line = recording.lines[work.index]
        args = {"issued by": recording.lane(work.warp), "at": line.place, "ptx": line.text}
        events.append(_slice(pid, tids[work.unit], work.what, "async", work.logical_begin, work.logical_end, args))
    for number, wait in enumerate(record.waits):
        events += _wait_events(recording, record, wait, pid, tids, number)
    return events + _counters(recording, record, pid)


def _wait_events(
    recording: Recording, record: CtaRecord, wait: Wait, pid: int, tids: dict[int | str, int], number: int
) -> list[dict[str, Any]]:
    name = f"waits for {recording.waited_for(record, wait)}"
    args = {"at": recording.lines[wait.index].place, "let go on by": recording.lane(wait.by)}
    end = wait.logical_end if wait.ended else record.last("logical")
    if end <= wait.logical_begin and wait.ended:
        return []
    tid = tids[wait.warp]
    found = [_slice(pid, tid, name, "wait", wait.logical_begin, end, args)]
    if wait.ended and wait.by in tids and wait.by != wait.warp:
        identity = pid * 1_000_000 + number
        common = {"cat": "wait", "name": "lets go on", "id": identity, "pid": pid}
        found.append({**common, "ph": "s", "ts": max(wait.by_logical - 1, 0), "tid": tids[wait.by]})
        found.append({**common, "ph": "f", "bp": "e", "ts": max(end - 1, wait.logical_begin), "tid": tid})
    return found


def _counters(recording: Recording, record: CtaRecord, pid: int) -> list[dict[str, Any]]:
    """How many stages of each pipeline are full or being read, over the logical clock."""
    changes: dict[str, list[tuple[int, int]]] = {}
    view = stages(recording, cta=record.coordinates)
    for stage in view.stages if view.named else ():
        for occupied in stage.states:
            if occupied.state in ("full", "being read"):
                changes.setdefault(stage.pipeline, []).extend([(occupied.begin, 1), (occupied.end, -1)])
    found = []
    for pipeline, steps in changes.items():
        level = 0
        for when, change in sorted(steps):
            level += change
            args = {"stages": level}
            found.append(
                {"ph": "C", "name": f"{pipeline}: stages in use", "pid": pid, "tid": 0, "ts": when, "args": args}
            )
    return found


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slice(pid: int, tid: int, name: str, category: str, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    duration = max(end - begin, 0)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": duration,
        "args": args,
    }
