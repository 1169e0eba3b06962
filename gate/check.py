"""`--check`: gates.yaml, stages, mutants and their imports, without running anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gate import stage_files
from gate.errors import Problem
from gate.load import Gates

# Imports one module after another, the backend first as the DSL demands; prints a JSON list of [module, error].
_IMPORTER = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import backends
backends.get("emulated", arch="sm_100a")
found = []
for name in sys.argv[2:]:
    module, _, wanted = name.partition(":")
    try:
        loaded = importlib.import_module(module)
        missing = [m for m in wanted.split(",") if m and m not in loaded.MUTANTS]
        if missing:
            found.append([module, f"no mutant {', '.join(missing)}; it has {', '.join(sorted(loaded.MUTANTS))}"])
    except Exception as error:
        found.append([module, f"cannot be imported: {type(error).__name__}: {error}"])
print("\\n" + json.dumps(found))
"""
_TIMEOUT_S = 300


def check(gates: Gates) -> list[Problem]:
    """Every problem; empty if all is well."""
    found = stage_files.problems(gates)
    return found or _imports(gates)


def _imports(gates: Gates) -> list[Problem]:
    """Import every stage that is built, and every module of mutants with the mutants that gates name."""
    modules: dict[str, set[str]] = {}
    for name in gates.order:
        if gates[name].cases is None:
            continue
        stage = gates.stage(name)
        modules.setdefault(f"stages.{stage}", set())
        op = stage_files.mutants_module(gates.root, stage)
        if op is not None:
            modules.setdefault(f"mutants.{op}", set()).update(gates[name].falsified_by)
    if not modules:
        return []
    arguments = [f"{module}:{','.join(sorted(wanted))}" for module, wanted in modules.items()]
    command = [sys.executable, "-c", _IMPORTER, str(gates.root), *arguments]
    try:
        answer = subprocess.run(command, cwd=gates.root, capture_output=True, text=True, timeout=_TIMEOUT_S)
        found = json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return [Problem("stages", 1, 1, f"importing them takes more than {_TIMEOUT_S} s")]
    if found is None:
        last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
        return [Problem("backends/__init__.py", 1, 1, f"importing the stages failed: {last}")]
    return [Problem(str(Path(*module.split("."))) + ".py", 1, 1, text) for module, text in found]
