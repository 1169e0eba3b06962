"""What a case leaves in its folder beside its log: for `--debug` PTX or a trace, views, the error map of a failure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from gate.job import Job
from gate.judge import Judge
from gate.report.svg import error_map_svg
from gate.result import CaseResult

# Kernels print shapes at trace time when this variable says so.
SHOW = "WORKBENCH_SHOW"


def judge_and_keep(job: Job, root: Path, emit: Callable[[str], None]) -> CaseResult:
    """Judge the case; the result names the files that it left, relative to the report folder."""
    folder = Path(job.folder)
    judge = Judge(job, root, emit)
    if job.debug == "shapes":
        # only a kernel that is traced prints, so none may come out of the cache
        os.environ[SHOW] = "1"
        with tempfile.TemporaryDirectory(prefix="kernels-", dir=folder) as cache:
            judge.cache = Path(cache)
            result = judge.judge()
    else:
        result = judge.judge()
    kept: list[Path] = []
    if job.debug == "ptx" and judge.device is not None:
        for compiled in judge.device.compiled.values():
            kept.append(folder / f"{compiled.name or 'kernel'}-{compiled.key[:8]}.ptx")
            kept[-1].write_text(compiled.ptx, encoding="utf-8")
    if (job.debug == "trace" or job.views) and judge.kernel is not None and judge.device is not None:
        if judge.device.emulated:
            from gate.pictures import keep

            trace = job.debug == "trace"
            kept += keep(judge.kernel, judge.device, judge.references, folder, trace=trace, wanted=job.views)
    for name, output in result.outputs.items():
        if output.error_map is not None:
            kept.append(folder / f"error_map_{name}.svg")
            kept[-1].write_text(error_map_svg(output.error_map, name), encoding="utf-8")
    run_folder = folder.parents[2]  # RUN/cases/GATE/CASE
    return result.model_copy(update={"artifacts": [str(path.relative_to(run_folder)) for path in kept]})
