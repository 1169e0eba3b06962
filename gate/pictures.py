"""--debug trace, --view: the case once more with a recorder listening. Only worker processes import this module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from emulator import views
from emulator.errors import EmulatorError
from emulator.views.catalogue import draw
from gate.device import Device
from gate.limits import Reference
from gate.stage import Stop

TEXT = "views.txt"
TRACE = "trace.json"
ERRORS = "errors"
"""The view of the outputs, which is made of no recording."""


class Runs(Protocol):
    """The kernel of the case."""

    stage: Any

    def call(self) -> dict[str, Tensor]:
        """One more call of run()."""


def keep(
    kernel: Runs,
    device: Device,
    references: Mapping[str, Reference],
    folder: Path,
    *,
    trace: bool,
    wanted: list[str],
) -> list[Path]:
    """Call the kernel under `in_order` and leave in `folder` its trace (`trace.json`; of several launches
    `trace_0.json`, …), the figures of the views in `wanted`, and their text in `views.txt`; gives the files.

    A kernel that hangs or faults is drawn up to there. Names of tensor memory, warps and barriers come from the stage's
    `names(case)`, if it has one.
    """
    recorder = _recorder(kernel.stage)
    device.set_policy("in_order")
    device.begin()
    outputs: dict[str, Tensor] = {}
    notes = []
    with device.listening(recorder):
        try:
            outputs = kernel.call()
        except Stop as stop:
            notes.append(f"the launch stopped: {str(stop).splitlines()[0]}")
    launches = recorder.finished()
    kept, lines = [], notes
    for number, recording in enumerate(launches):
        suffix = f"_{number}" if len(launches) > 1 else ""
        if trace:
            path = folder / TRACE.replace(".", f"{suffix}.")
            views.trace(recording, path)
            kept.append(path)
        out = folder / f"views{suffix}"
        for line in draw(recording, [name for name in wanted if name != ERRORS], out):
            lines.append(line)
        kept += sorted(out.glob("*.png")) if out.is_dir() else []
    if not launches:
        lines.append("nothing was launched")
    if ERRORS in wanted:
        for line in _errors(outputs, references, folder, kept):
            lines.append(line)
    (folder / TEXT).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*kept, folder / TEXT] if wanted else kept


def _recorder(stage: Any) -> views.Recorder:
    try:
        return views.Recorder(**stage.names())
    except (EmulatorError, TypeError) as error:
        raise Stop("contract_error", f"{stage.file}: names(): {error}") from None


def _errors(
    outputs: dict[str, Tensor], references: Mapping[str, Reference], folder: Path, kept: list[Path]
) -> Iterator[str]:
    """The error map of each output that has a reference."""
    for name, got in outputs.items():
        if name not in references or got.shape != references[name].want.shape:
            continue
        view = views.error_map(got, references[name].want, name=name)
        path = folder / f"errors_{name}.png"
        yield from view.text().splitlines()
        try:
            kept.append(view.save(path))
            yield f"figure: {os.path.relpath(path)}"
        except views.ViewError as missing:
            yield f"no figure: {missing}"
        yield ""
