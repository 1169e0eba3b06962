"""Every planted fault is caught by the right tool; the kernels without faults raise nothing."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.faults.catalogue import SAMPLES
from tests.faults.fault import Fault
from tests.faults.faults import FAULTS

needs_dsl = pytest.mark.skipif(find_spec("cutlass") is None, reason="kernels need nvidia-cutlass-dsl")


@needs_dsl
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_caught_by_its_tool(fault: Fault) -> None:
    from tests.faults.judge import judge
    from tests.faults.table import PAGE, row

    outcome = judge(fault)
    assert outcome.caught, row(outcome)
    assert row(outcome) in PAGE.read_text().split("\n"), f"stale; run python -m tests.faults.table\n{row(outcome)}"


@needs_dsl
@pytest.mark.parametrize("name", SAMPLES)
def test_a_kernel_without_faults_raises_nothing(name: str) -> None:
    import emulator
    from emulator.watch import summary
    from tests.faults.judge import SCHEDULES, check, prepared

    sample = prepared(name)
    module = emulator.parse(sample.ptx)
    for policy, seed in SCHEDULES:
        found = check(sample, module, policy, seed)
        assert not found, summary(found)
        assert sample.right(), policy


def test_the_page_is_what_its_rows_give() -> None:
    from tests.faults.table import PAGE, render

    text = PAGE.read_text()
    rows = [line for line in text.split("\n") if line.startswith("| `")]
    assert len(rows) == len(FAULTS) >= 60
    assert text == render(rows)


def test_faults_have_names_of_their_own_and_known_kernels() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert {fault.sample for fault in FAULTS} == set(SAMPLES)
    assert all(bool(fault.edits) != bool(fault.mutant) for fault in FAULTS)
