"""Views by the names that command lines use. Imports nothing heavy, so that a wrong name is refused at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.views.recording import Recording

VIEWS = {
    "timeline": "who waits for whom, a lane for each warp and unit",
    "stages": "pipeline stages: free, filling, full, being read",
    "tmem": "tensor memory: owner, last writer, values",
    "hot": "the most executed lines",
}
"""Name → what it shows; all of them draw from a recording."""


OUTPUTS = {"errors": "where an output is wrong"}
"""What is drawn from outputs and not from a recording."""


def choose(names: str, known: Mapping[str, str] = VIEWS) -> list[str]:
    """`timeline,tmem` as a list. Raises ViewError for an unknown name, with the list."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    wrong = [name for name in chosen if name not in known]
    if wrong or not chosen:
        from emulator.views.labels import ViewError

        listed = "; ".join(f"{name} ({what})" for name, what in known.items())
        raise ViewError(f"unknown view {wrong[0] if wrong else names!r}; views: {listed}")
    return list(dict.fromkeys(chosen))


def draw(recording: Recording, names: Sequence[str], out: Path | None) -> Iterator[str]:
    """The text of each view, line by line; figures go to `out`/NAME.png. A view that has nothing to show says so."""
    from emulator.views.labels import ViewError

    for name in names:
        try:
            view = _make(name, recording)
        except ViewError as nothing:
            yield f"{name}: {nothing}"
            continue
        yield from view.text().splitlines()
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            try:
                yield f"figure: {os.path.relpath(view.save(out / f'{name}.png'))}"
            except ViewError as missing:
                yield f"no figure: {missing}"
        yield ""


def _make(name: str, recording: Recording) -> Any:
    from emulator.views import hot_lines, stages, timeline, tmem_map

    makers: dict[str, Any] = {"timeline": timeline, "stages": stages, "tmem": tmem_map, "hot": hot_lines}
    return makers[name](recording)
