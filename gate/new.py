"""`--new NAME`: the skeleton of a stage and its `building` entry in gates.yaml; both pass the checks at once."""

from __future__ import annotations

import re
from pathlib import Path

from gate.errors import UsageError
from gate.load import FILE, Gates, parse
from gate.schema import NAME
from gate.stage_files import stage_path

_STAGE = '''"""{claim}

Formula: y = 2 x. Replace it, the oracle below and this sentence. Not proven here: anything about speed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def inputs(case: Any, rng: torch.Generator) -> dict[str, Tensor]:
    """x: (m, n) bf16, biased and with outliers, so that a wrong sum or a missing scale shows."""
    x = torch.randn(case.m, case.n, generator=rng) + 0.3
    x[::7, ::5] *= 20
    return {{"x": x.to(torch.bfloat16)}}


def run(x: dict[str, Tensor], case: Any, backend: Any, mutant: type | None = None) -> dict[str, Tensor]:
    """y: (m, n) bf16, from one host function of kernels/."""
    raise NotImplementedError("call a host function of kernels/ here, or its mutant where one is given")


def oracle(x: dict[str, Tensor], case: Any, kind: str) -> dict[str, Tensor]:
    """y in fp64, from oracles/."""
    return {{"y": 2 * x["x"].double()}}


def plain(x: dict[str, Tensor], case: Any) -> dict[str, Tensor]:
    """y by plain torch, in the dtype that run() promises."""
    return {{"y": 2 * x["x"]}}


def wrong(x: dict[str, Tensor], case: Any) -> dict[str, dict[str, Tensor]]:
    """The mistakes that this gate exists to catch."""
    return {{
        # the factor is left out: look at the epilogue
        "scale_missing": {{"y": x["x"].double()}},
    }}
'''

_REST = """    state: building
    cases:
      - {{id: m128_n64, m: 128, n: 64}}
      - {{id: m100_n72_ragged, m: 100, n: 72}}
    limits:
      y: {{vs_torch: 2, diff: 1e-5}}
    launches: 1
    syncs: 0
    compiles: 0
"""
_CLAIM = "says in one line what this stage proves"


def create(gates: Gates, name: str) -> list[str]:
    """Write both files; gives what was done, line by line.

    A planned gate of that name becomes `building` and keeps its claim. Nothing is written unless the
    new gates.yaml is valid.

    Raises:
        UsageError: if the name is no name, or the stage or a gate that is not planned exists.
    """
    if not re.match(NAME, name):
        raise UsageError(f"--new '{name}' is no name: small letters, digits and '_' only, a letter first")
    path = stage_path(gates.root, name)
    if path.exists():
        raise UsageError(f"--new {name}: {path.relative_to(gates.root)} exists")
    if name in gates.order and gates[name].state != "planned":
        raise UsageError(f"--new {name}: the gate exists and is {gates[name].state}")
    file = gates.root / FILE
    text = file.read_text(encoding="utf-8")
    planned = name in gates.order
    changed = _promote(gates, text, name) if planned else _append(text, name)
    parse(changed, gates.root)
    claim = gates[name].about if planned else f"{name} {_CLAIM}"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_STAGE.format(claim=claim[:1].upper() + claim[1:].rstrip(".") + "."), encoding="utf-8")
    _replace(file, changed)
    return [
        f"wrote stages/{name}.py",
        f"{'changed' if planned else 'added'} gates.{name} in {FILE} (state: building)",
        f"next: python run_gate.py {name} --oracle-only",
    ]


def _append(text: str, name: str) -> str:
    entry = f"  {name}:\n    about: {name} {_CLAIM}\n" + _REST.format()
    return text.rstrip("\n") + "\n\n" + entry


def _promote(gates: Gates, text: str, name: str) -> str:
    """The text with the planned entry of `name` made a building one.

    Raises:
        UsageError: if the entry is written in one line (flow style), which only its author can open up.
    """
    lines = text.splitlines(keepends=True)
    state = gates.document.keys["gates", name, "state"]
    entry = gates.document.keys["gates", name]
    line = lines[state.line - 1]
    if state.line == entry.line or not re.match(r"^    state:\s*planned\s*(#.*)?$", line.rstrip("\n")):
        place = f"{FILE}:{state.line}:{state.column}"
        raise UsageError(f"{place}: write gates.{name} over several lines, with `state: planned` in one of its own")
    lines[state.line - 1] = _REST.format()
    return "".join(lines)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
