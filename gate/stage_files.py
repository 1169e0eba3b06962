"""Stage and mutant files as text: which exist, and whether they keep the contract. Imports none of them.

The contract of `stages/<name>.py`: a docstring whose first line is the claim, and the functions inputs, run, oracle,
plain and wrong with the arguments below. A function names(case), if there is one, gives views the names of tensor
memory, warps and barriers (`emulator.views.Recorder`); a function values(outputs, case) gives further outputs, read
from those of run(): the numbers that codes and scales stand for; a function bench(x, case, backend) gives the call that
--bench times, where run() does more than the kernel: a function without arguments.
"""

from __future__ import annotations

import ast
from pathlib import Path

from gate.errors import Problem
from gate.load import FILE, Gates

FUNCTIONS = {
    "inputs": ("case", "rng"),
    "run": ("x", "case", "backend", "mutant"),
    "oracle": ("x", "case", "kind"),
    "plain": ("x", "case"),
    "wrong": ("x", "case"),
}
"""Every stage has them all, except that of a planned gate, which has no kernel to run yet."""
OPTIONAL = {"names": ("case",), "values": ("outputs", "case"), "bench": ("x", "case", "backend")}


def stage_path(root: Path, stage: str) -> Path:
    """The file of a stage."""
    return root / "stages" / f"{stage}.py"


def stage_names(root: Path) -> list[str]:
    """Stages that have a file."""
    return sorted(p.stem for p in (root / "stages").glob("*.py") if p.stem != "__init__")


def mutants_module(root: Path, stage: str) -> str | None:
    """The module of `mutants/` that belongs to a stage: the longest prefix of its name, cut at `_`, that exists."""
    parts = stage.split("_")
    prefixes = ("_".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in prefixes if (root / "mutants" / f"{name}.py").is_file()), None)


def problems(gates: Gates, names: list[str] | None = None) -> list[Problem]:
    """Everything that is wrong between `gates.yaml`, `stages/` and `mutants/`; `names` restricts it to some gates."""
    found: list[Problem] = []
    for name in gates.order if names is None else names:
        found += _gate_problems(gates, name)
    if names is None:
        judged = {gates.stage(name) for name in gates.order}
        for stage in stage_names(gates.root):
            if stage not in judged:
                found.append(Problem(f"stages/{stage}.py", 1, 1, f"no gate of {FILE} judges this stage"))
    return found


def _gate_problems(gates: Gates, name: str) -> list[Problem]:
    gate, stage = gates[name], gates.stage(name)
    path = stage_path(gates.root, stage)
    here = gates.document.place(("gates", name), key=True)
    if gate.state == "planned" and gate.cases is None:
        if path.is_file() and gate.stage is None:
            text = f"gates.{name}: is planned, but stages/{stage}.py exists: give it cases, or set state: building"
            return [Problem(FILE, here.line, here.column, text)]
        return []
    if not path.is_file():
        text = f"gates.{name}: there is no stages/{stage}.py (a gate without one must be planned)"
        return [Problem(FILE, here.line, here.column, text)]
    needed = [function for function in FUNCTIONS if function != "run" or gate.state != "planned"]
    return [*_contract(path, stage, needed), *_mutants(gates, name, stage)]


def _contract(path: Path, stage: str, needed: list[str]) -> list[Problem]:
    file = f"stages/{stage}.py"
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        return [Problem(file, error.lineno or 1, error.offset or 1, f"is not Python: {error.msg}")]
    found = []
    if not ast.get_docstring(tree):
        found.append(Problem(file, 1, 1, "has no docstring; its first line is the claim that the stage proves"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, wanted in (FUNCTIONS | OPTIONAL).items():
        asked = f"def {name}({', '.join(wanted[:3])}{', mutant=None' if len(wanted) == 4 else ''})"
        if name not in defined and name not in needed:
            continue
        if name not in defined:
            found.append(Problem(file, 1, 1, f"has no function '{name}'; wanted: {asked}"))
            continue
        arguments = defined[name].args
        given = tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args])
        if given != wanted:
            text = f"{name}({', '.join(given)}) has other arguments than the contract; wanted: {asked}"
            found.append(Problem(file, defined[name].lineno, defined[name].col_offset + 1, text))
    return found


def _mutants(gates: Gates, name: str, stage: str) -> list[Problem]:
    gate = gates[name]
    if not gate.falsified_by:
        return []
    op = mutants_module(gates.root, stage)
    here = gates.document.place(("gates", name, "falsified_by"), key=True)
    if op is None:
        text = f"gates.{name}.falsified_by: no file of mutants/ is named like stage '{stage}' or its beginning"
        return [Problem(FILE, here.line, here.column, text)]
    known = _mutant_names(gates.root / "mutants" / f"{op}.py")
    found = []
    for mutant in gate.falsified_by:
        if known is not None and mutant not in known:
            text = f"no mutant '{mutant}' in mutants/{op}.py; it has {', '.join(known)}"
            found.append(gates.document.problem(("gates", name, "falsified_by", mutant), text, key=True))
    return found


def _mutant_names(path: Path) -> list[str] | None:
    """The keys of MUTANTS if it is a plain dict of literals; None if only an import could tell."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return None
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not any(isinstance(t, ast.Name) and t.id == "MUTANTS" for t in targets):
            continue
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and all(isinstance(k, ast.Constant) for k in value.keys):
            return [str(k.value) for k in value.keys if isinstance(k, ast.Constant)]
    return None
