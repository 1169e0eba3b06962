"""Other people's sm_90a kernels on this machine's GPU and on the emulator, from the same inputs: `pytest --hw`.

Products, sums and conversions are the hardware's bit for bit (`exact` arithmetic). What differs are the approximate
functions of f32 (ex2, rcp, rsqrt, …), whose tables are not public: at most a few units in the last place of an output.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance.worker import Worker

pytestmark = pytest.mark.hw
MODULES = {"quack": "tests.conformance.test_quack", "flash_attn": "tests.conformance.test_flash_attn"}
UNITS = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Largest difference, as a part of an output's largest value: a unit of the type, more for f32 sums of functions."""


def _cases(package: str) -> list[str]:
    cases = import_module(MODULES[package]).CASES
    return [name for name in cases if "sm_90a" in cases[name].arches]


def _both(package: str, folder: Path) -> dict[str, dict[str, Any]]:
    """{case: {engine: answer}}; outputs lie in folder/engine."""
    answers: dict[str, dict[str, Any]] = {name: {} for name in _cases(package)}
    for engine in ("gpu", "exact"):
        (folder / engine).mkdir()
        worker = Worker(MODULES[package], "sm_90a", engine, str(folder / engine))
        for name in answers:
            answers[name][engine] = worker.run(name)
        worker.close()
    return answers


def _difference(got: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    """(share of elements whose bits differ, largest difference as a part of the largest value)."""
    if not got.is_floating_point():
        return (got != want).double().mean().item(), float((got != want).any())
    finite = want.isfinite()
    assert torch.equal(finite, got.isfinite())
    a, b = got[finite].double(), want[finite].double()
    largest = b.abs().max().item() or 1.0
    return (a != b).double().mean().item(), ((a - b).abs().max() / largest).item()


@pytest.mark.parametrize("package", MODULES)
def test_equal_outputs(package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    wrong = []
    for name, answers in _both(package, tmp_path).items():
        errors = {engine: a["error"] for engine, a in answers.items() if "error" in a}
        if len(errors) == 2 and len({e.rstrip().rsplit("\n", 1)[-1][:40] for e in errors.values()}) == 1:
            print(f"{name:32s} not compared: the package itself fails on this machine: {errors['gpu'][-200:]}")
            continue
        if errors:
            wrong += [f"{name} on {engine}: {text[-600:]}" for engine, text in errors.items()]
            continue
        got, want = (torch.load(tmp_path / engine / f"{name}.pt") for engine in ("exact", "gpu"))
        for output in want:
            share, largest = _difference(got[output], want[output])
            print(f"{name:32s} {output:8s} {share:8.2%} of the values differ, by at most {largest:.1e}")
            if largest > UNITS.get(want[output].dtype, 0):
                wrong.append(f"{name} {output}: {largest:.1e}")
    assert not wrong, "\n".join(wrong)
