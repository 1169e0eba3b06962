"""The words that a GPU gave for every case, as tests/data/hopper_programs.npz holds them, against the emulator."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.hw import cases, maps
from tests.emulator.hw.capture import KEPT, digest
from tests.emulator.hw.case import Case, Result, differences, emulate

_FILE = Path(__file__).resolve().parents[2] / "data" / "hopper_programs.npz"
UNEQUAL: dict[str, str] = {}
"""Exceptions, each with its reason."""


@cache
def archive() -> Any:
    """The archive."""
    return np.load(_FILE)


@cache
def index() -> dict[str, Any]:
    """What is not words."""
    return json.loads(bytes(archive()["index"]))


def words(case: Case) -> Result:
    """What the GPU left behind."""
    held = index()["cases"][case.name]
    assert held["digest"] == case.digest, (
        f"{case.name} has changed since its capture: run tests.emulator.hw.capture again"
    )
    outputs, k = [], 0
    while f"{case.name}/{k}" in archive().files:
        outputs.append(archive()[f"{case.name}/{k}"])
        k += 1
    return Result(outputs, held["printed"], held["error"])


@pytest.mark.parametrize("number", range(len(cases.EQUAL)), ids=lambda n: cases.EQUAL[n].name)
def test_equal(number: int) -> None:
    """Bit for bit, on both engines, under different orders of completion."""
    case = cases.EQUAL[number]
    policy = case.policies[number % len(case.policies)]
    want = words(case)
    assert not want.error
    for engine in ("numpy", "llvm"):
        found = differences(case, want, emulate(case, policy=policy, seed=number, engine=engine))
        assert bool(found) == (case.name in UNEQUAL), found


@pytest.mark.parametrize(("case", "error"), cases.REFUSED, ids=lambda c: getattr(c, "name", ""))
def test_refused(case, error) -> None:
    """What faults on the GPU has a named error here, with its place."""
    got = emulate(case)
    if error is None:
        assert got.error == "" and words(case).error == ""
    else:
        assert got.error.startswith(error.__name__) and "PTX line" in got.error
    if words(case).error:
        assert error is not None


def test_refusals_that_the_hardware_does_not_make() -> None:
    """Where the emulator is stricter: the GPU went on, with results that PTX calls undefined."""
    silent = {case.name for case, error in cases.REFUSED if error is not None and not words(case).error}
    assert silent == {
        "bulk copy of 24 bytes",
        "reduction of 8 bytes",
        "mbarrier of count 2^20",
        "cluster wait without an arrive",
        "tensormap.replace misaligned",
    }


@pytest.mark.parametrize("name", list(index()["dsl"]) if _FILE.exists() else [])
def test_dsl_kernels(name: str, tmp_path_factory) -> None:
    """Whole CuTe DSL kernels, compiled here, on the emulator."""
    pytest.importorskip("cutlass")
    import backends
    from tests.emulator.hw.dsl import RUNS

    got = RUNS[name](backends.get("emulated", "sm_90a", arithmetic="exact"))
    sample = archive()[f"dsl/{name}"]
    assert (got[:KEPT] == sample).all()
    assert digest(got) == index()["dsl"][name]


def test_odd_values_of_replace() -> None:
    """What the hardware writes for values that do not fit a field: the emulator refuses them."""
    (case,) = maps.ODDITIES
    got = words(case).outputs[0].view(np.uint32).reshape(len(maps.ODD), 16)
    assert got.shape == (len(maps.ODD), 16)
    assert emulate(case).error.startswith("IllegalInstruction")
