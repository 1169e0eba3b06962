"""Every case on this machine's GPU and on the emulator: `pytest --hw tests/emulator/hw`."""

from __future__ import annotations

import pytest

from tests.emulator.hw import cases
from tests.emulator.hw.case import Result, differences, emulate

pytestmark = pytest.mark.hw


@pytest.fixture(scope="module")
def words() -> dict[str, Result]:
    """All cases on the GPU."""
    from tests.emulator.hw.gpu import results

    return results([*cases.EQUAL, *(c for c, _ in cases.REFUSED)])


@pytest.mark.parametrize("case", cases.EQUAL, ids=lambda c: c.name)
def test_words(case, words) -> None:
    """Equal outputs, bit for bit, whenever asynchronous operations complete."""
    for policy in case.policies:
        assert not differences(case, words[case.name], emulate(case, policy=policy, seed=1))


@pytest.mark.parametrize(("case", "error"), cases.REFUSED, ids=lambda c: getattr(c, "name", ""))
def test_what_the_hardware_refuses(case, error, words) -> None:
    """What faults there has a named error here."""
    if words[case.name].error:
        assert error is not None and emulate(case).error.startswith(error.__name__)


def test_dsl_kernels(tmp_path) -> None:
    """Whole CuTe DSL kernels, compiled once for both."""
    pytest.importorskip("cutlass")
    import backends
    from backends.cache import Cache
    from tests.emulator.hw.dsl import RUNS

    gpu = backends.get("cuda", "sm_90a", cache=Cache(tmp_path / "a"))
    emulated = backends.get("emulated", "sm_90a", cache=Cache(tmp_path / "b"), arithmetic="exact")
    for name, run in RUNS.items():
        assert (run(gpu) == run(emulated)).all(), name
