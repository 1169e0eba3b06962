"""Views of a run: text and figures from what a listener has recorded.

    recorder = views.Recorder(**names)           # among the listeners of the launch
    views.tmem_map(recorder)                     # tensor memory: owner, last writer, values, defined or not
    views.timeline(recorder)                     # who waits for whom
    views.stages(recorder)                       # pipeline stages
    views.hot_lines(recorder)                    # counts by line
    views.trace(recorder, "trace.json")          # for ui.perfetto.dev, and for `python -m emulator.views`
    views.error_map(got, want, tile=(128, 64))   # where an output is wrong

Each gives an object with `text()`, `figure()` and `save(path)`; Jupyter shows the figure. matplotlib is imported by
`figure()` only.
"""

from __future__ import annotations

from emulator.views.error_map import error_map
from emulator.views.hot_lines import hot_lines
from emulator.views.labels import Labels, ViewError
from emulator.views.recorder import Recorder
from emulator.views.recording import Recording
from emulator.views.stages import stages
from emulator.views.timeline import timeline
from emulator.views.tmem import tmem_map
from emulator.views.trace import TraceError, load_trace, trace

# Imported at once: some functions are called like their modules, and the function must be what the package shows.
__all__ = [
    "Labels", "Recorder", "Recording", "TraceError", "ViewError", "error_map", "hot_lines", "load_trace", "stages",
    "timeline", "tmem_map", "trace",
]  # fmt: skip
