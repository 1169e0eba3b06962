"""A recording as plain JSON values, and back."""

from __future__ import annotations

import base64
import zlib
from dataclasses import astuple, fields
from typing import Any

import numpy as np

from emulator.memory.tmem import COLUMNS, LANES
from emulator.views.labels import Field, Labels
from emulator.views.recording import CtaRecord, Line, Mark, Recording, Run, Wait, Work
from emulator.views.tensor_history import TensorHistory, Writer

_ROWS: dict[str, Any] = {"runs": Run, "waits": Wait, "work": Work, "marks": Mark}


def store(recording: Recording) -> dict[str, Any]:
    """Everything but the past of tensor memory, of which the last state is kept."""
    labels = recording.labels
    return {
        "kernel": recording.kernel,
        "shape": [recording.grid, recording.block, recording.cluster],
        "policy": recording.policy,
        "labels": [[astuple(f) for f in labels.fields], labels.roles, labels.barriers],
        "lines": [astuple(line) for line in recording.lines],
        "counts": recording.counts.tolist(),
        "ctas": [_store_cta(record) for record in recording.ctas.values()],
        "steps": recording.steps,
        "ended": recording.ended,
    }


def restore(data: dict[str, Any]) -> Recording:
    """The recording that `store` was given. Raises KeyError, TypeError, ValueError or IndexError for other data."""
    named, roles, barriers = data["labels"]
    labels = Labels(tuple(Field(*f) for f in named), tuple((int(w), str(r)) for w, r in roles), tuple(barriers))
    grid, block, cluster = (tuple(shape) for shape in data["shape"])
    ctas = [_restore_cta(record) for record in data["ctas"]]
    return Recording(
        data["kernel"],
        grid,
        block,
        cluster,
        data["policy"],
        labels,
        [Line(*line) for line in data["lines"]],
        np.array(data["counts"], np.int64),
        {record.coordinates: record for record in ctas},
        data["steps"],
        data["ended"],
    )


def _store_cta(record: CtaRecord) -> dict[str, Any]:
    rows = {name: [astuple(row) for row in getattr(record, name)] for name in _ROWS}
    barriers = sorted(record.barriers.items())
    about = {"coordinates": record.coordinates, "rank": record.rank, "warps": record.warps, "barriers": barriers}
    return {**about, **rows, "tensor": None if record.tensor is None else _store_tensor(record.tensor)}


def _restore_cta(data: dict[str, Any]) -> CtaRecord:
    rows = {name: [_row(kind, row) for row in data[name]] for name, kind in _ROWS.items()}
    tensor = None if data["tensor"] is None else _restore_tensor(data["tensor"])
    barriers = {int(offset): int(count) for offset, count in data["barriers"]}
    where = tuple(data["coordinates"])
    return CtaRecord(where, data["rank"], data["warps"], barriers=barriers, tensor=tensor, **rows)


def _row(kind: Any, row: list[Any]) -> Any:
    if len(row) != len(fields(kind)):
        raise ValueError(f"a {kind.__name__} of {len(row)} values; it has {len(fields(kind))}")
    return kind(*row)


def _store_tensor(history: TensorHistory) -> dict[str, Any]:
    state = history.at()
    return {
        "step": state.step,
        "words": _pack(state.words),
        "writer": _pack(state.writer),
        "moved": _pack(state.moved),
        "writers": [astuple(writer) for writer in state.writers],
        "allocated": state.allocated,
        "trips": [[*key, count] for key, count in history.trips.items()],
    }


def _restore_tensor(data: dict[str, Any]) -> TensorHistory:
    history = TensorHistory([Writer(*w) for w in data["writers"]])
    history.trips = {(load, to): count for load, to, count in data["trips"]}
    history.allocations = [(0, column, columns, False) for column, columns in data["allocated"]]
    parts = (
        _unpack(data["words"], np.uint32),
        _unpack(data["writer"], np.int16),
        _unpack(data["moved"], np.bool_),
    )
    history.begin(data["step"], parts)
    return history


def _pack(array: Any) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 1)).decode("ascii")


def _unpack(text: str, dtype: Any) -> Any:
    raw = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)
    if raw.size != LANES * COLUMNS:
        raise ValueError(f"{raw.size} words of tensor memory; it has {LANES * COLUMNS}")
    return raw.copy()
