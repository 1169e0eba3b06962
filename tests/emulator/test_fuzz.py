"""Mutated kernels: nothing but success or an EmulatorError with its place, on both engines.

`python -m tests.emulator.fuzz.campaign` runs many more; what it found is in `fuzz/found.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.emulator.fuzz import campaign, found, mutate, watch
from tests.emulator.fuzz.seeds import captured, written

COUNT = 3000
STEP = 300


@pytest.mark.parametrize("seed", [*written(), *captured()], ids=lambda s: s.name)
def test_seeds_run(seed) -> None:
    """As they stand, all kernels run to their end, on both engines with the same memory behind them."""
    outcomes = [watch.run(watch.Case(seed), engine) for engine in ("numpy", "llvm")]
    assert [o.kind for o in outcomes] == ["ok", "ok"], outcomes
    assert outcomes[0].output == outcomes[1].output


@pytest.mark.parametrize("first", range(0, COUNT, STEP))
def test_mutated_kernels(first) -> None:
    """The reference. Most mutants get as far as the machine."""
    kinds: Counter[str] = Counter()
    for number in range(first, first + STEP):
        outcome = watch.run(mutate.mutated(number))
        assert outcome.kind != "bug", f"case {number}: {outcome.message}"
        kinds[outcome.kind] += 1
    assert kinds["ok"] > STEP // 5 and kinds["PtxSyntaxError"] < STEP // 2
    assert kinds["MemoryFault"] and kinds["BarrierFault"] and kinds["IllegalInstruction"]


def test_native_code_does_not_crash() -> None:
    """The native engine in a process of its own, which has to survive."""
    records = campaign.results(COUNT, STEP, "llvm")
    assert len(records) == STEP
    assert [r for r in records if r["kind"] == "bug"] == []


@pytest.mark.parametrize("case", found.CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_found(case, engine) -> None:
    """Inputs that once ended in something else."""
    outcome = watch.run(case.case(), engine)
    assert (outcome.kind, case.says in outcome.message) == (case.kind, True), outcome.message
    if outcome.kind in ("MemoryFault", "IllegalInstruction", "BarrierFault"):
        assert case.at in outcome.message
