"""The notebook of a stage, from one template: `run_gate.py NAME --notebook` writes it, or opens one that exists."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from gate.errors import UsageError
from gate.load import Gates
from gate.stage_files import stage_path

FOLDER = "notebooks"
_SETUP = """import sys
from pathlib import Path

sys.path.insert(0, str(Path("..").resolve()))  # the project, seen from notebooks/
import torch

torch.set_num_threads(1)  # the products are small
from gate.lab import Lab"""

WITHOUT_KERNELS = ("caches", "model")
"""Groups whose stages launch no kernel of their own."""

_SHAPES = (
    "## Shapes at trace time\n\nRead the modes: name, shape and stride of every tensor that the kernel cuts up. A line "
    "`PINNED` names a mode with more than one index of which a slice keeps one for ever.",
    "%lab.shapes()",
)
_RUN = (
    "## One run beside the oracle\n\n`difference` is 1 − 2xy / (x² + y²): 0 for equal outputs, and unlike the cosine "
    "it sees a wrong scale. The map shows which elements are wrong, by warp and column block.",
    "%one = lab.run()\n{name: one.difference(name) for name in one.got}",
    "%one.errors()",
)
_TENSOR_MEMORY = (
    "## Tensor memory\n\nWho owns which columns at the end, and who wrote them last.",
    "%one.tmem()",
)
_TIMELINE = (
    "## Who waits for whom\n\nThe emulator has no time: the axis counts instructions.",
    "%one.timeline()",
)


def path(gates: Gates, gate: str) -> Path:
    """Where the notebook of a gate is."""
    return gates.root / FOLDER / f"stage_{gate}.ipynb"


def write_or_open(gates: Gates, names: list[str]) -> list[str]:
    """For each gate write its notebook, or leave the one that is there; one alone is opened in JupyterLab when this is
    a terminal. Gives what to say. Raises UsageError for a gate without cases (a planned one)."""
    lines = []
    for name in names:
        target = path(gates, name)
        if target.exists():
            lines.append(f"{target.relative_to(gates.root)} is there")
        else:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text(gates, name), encoding="utf-8")
            lines.append(f"wrote {target.relative_to(gates.root)}")
    first = path(gates, names[0])
    lab = shutil.which("jupyter-lab", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if len(names) == 1 and lab and sys.stdout.isatty():
        print("\n".join(lines), flush=True)
        os.execv(lab, [lab, str(first)])
    return [*lines, f"open: jupyter lab {first.relative_to(gates.root)}"]


def text(gates: Gates, gate: str) -> str:
    """The notebook as JSON, without outputs."""
    cases = gates[gate].cases
    if not cases or gates[gate].state == "planned":
        raise UsageError(f"{gate} is {gates[gate].state}: it has no kernel, so no notebook")
    cells = []
    for number, source in enumerate(_cells(gates, gate, _telling(gates, gate))):
        made = new_code_cell(source[1:]) if source.startswith("%") else new_markdown_cell(source)
        made["id"] = str(number)  # as nbstripout numbers them
        cells.append(made)
    book = new_notebook(cells=cells)
    book["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return nbformat.writes(book, version=4) + "\n"


def _telling(gates: Gates, gate: str) -> str:
    """The case that shows most within a minute: the first that wraps the pipeline's stages, else the first."""
    ids = [case.id for case in gates[gate].cases or []]
    return next((id for id in ids if "wraps_stages" in id), ids[0])


def _shown(gates: Gates, gate: str) -> str | None:
    """The first mutant that gives outputs to look at."""
    wanted = ("wrong_values", "not_finite")
    return next((m for m, status in gates[gate].falsified_by.items() if set(status) & set(wanted)), None)


def _cells(gates: Gates, gate: str, case: str) -> list[str]:
    """Sources of the cells in order; those of code begin with %."""
    kernel = gates[gate].group not in WITHOUT_KERNELS
    source = stage_path(gates.root, gates.stage(gate)).read_text(encoding="utf-8")
    mutant = _shown(gates, gate)
    return [
        f"# {gate}\n\n{gates[gate].about}.\n\n"
        "Everything runs on the emulator and this processor; no GPU is needed. The limits are those of `gates.yaml`, "
        "and the last cell asks the judge itself.",
        f'%{_SETUP}\n\nlab = Lab("{gate}", "{case}")\nlab',
        "## What it stands on\n\nGates that this one needs must have passed with the sources as they are now; those "
        "that have not are judged here.",
        "%lab.needs()",
        *(_SHAPES if kernel else ()),
        *_RUN,
        *(_TENSOR_MEMORY if "def names(" in source else ()),
        *(_TIMELINE if kernel else ()),
        *(_broken(gate, case, mutant) if mutant else ()),
        f"## The judge\n\nOne case here; `python run_gate.py {gate}` judges all of them, and `--falsify` plants every "
        "fault.",
        "%status, said = lab.judge()\nprint(said)\nassert status == 0, said",
    ]


def _broken(gate: str, case: str, mutant: str) -> list[str]:
    return [
        f"## The same with a planted fault\n\n`{mutant}` is a mutant that this gate must reject.",
        f'%broken = Lab("{gate}", "{case}", mutant="{mutant}").run()\nbroken.difference()',
        "%broken.errors()",
    ]
