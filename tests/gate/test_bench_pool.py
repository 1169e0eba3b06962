"""Workers that time: in order, in one process unless it fails, and what becomes of those that die or hang."""

from __future__ import annotations

import io
import json

import pytest

from gate.bench.plan import BenchJob
from gate.bench.pool import Pool
from gate.bench.worker import serve
from gate.errors import GateError
from gate.result import BenchResult

STAND_IN = "tests.gate.bench_stand_in"


def jobs(*cases: str, timeout_s: float = 20.0) -> list[BenchJob]:
    return [BenchJob("scale", "scale", case, "sm100", {"m": 4}, 64, "read", timeout_s=timeout_s) for case in cases]


@pytest.fixture
def pool(tmp_path):
    return Pool(tmp_path, tmp_path, module=STAND_IN)


def handled(tmp_path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "handled").read_text().splitlines()]


def test_results_come_in_order_from_one_process(pool, tmp_path):
    found = list(pool.results(jobs("b", "a", "c")))
    assert [(one.case, one.us, one.status) for one in found] == [(case, 2.0, "pass") for case in "bac"]
    assert len({pid for _, _, pid in handled(tmp_path)}) == 1


def test_a_worker_that_died_or_failed_is_replaced(pool, tmp_path):
    found = list(pool.results(jobs("a", "dies", "fails", "b")))
    assert [one.status for one in found] == ["pass", "runtime_error", "runtime_error", "pass"]
    assert found[1].message == "the worker process ended (exit code 3)" and "illegal memory access" in found[1].tail
    assert found[2].message == "CUDA error: misaligned address"
    lines = handled(tmp_path)
    assert [case for _, case, _ in lines] == ["a", "dies", "fails", "b"]
    assert lines[0][2] == lines[1][2] and len({pid for _, _, pid in lines}) == 3


def test_a_worker_that_hangs_is_ended(pool):
    ticks = []
    pool.tick = lambda: ticks.append(1)
    found = list(pool.results([*jobs("a"), *jobs("hangs", timeout_s=0.5), *jobs("b")]))
    assert [one.status for one in found] == ["pass", "timeout", "pass"]
    assert found[1].message == "not done after 0.5 s" and found[1].seconds < 10 and ticks


def test_a_worker_that_cannot_start_ends_the_run(pool, tmp_path):
    (tmp_path / "no_start").touch()
    with pytest.raises(GateError, match="no module named torch"):
        list(pool.results(jobs("a")))


def test_kernels_are_prepared_by_several_and_their_faults_forgotten(pool, tmp_path):
    pool.prepare(jobs("a", "dies", "b", "c", "d"), at_once=2)
    lines = handled(tmp_path)
    assert {mode for mode, *_ in lines} == {"prepare"}
    # the second worker died with its first job, and its other one with it
    assert sorted(case for _, case, _ in lines) == ["a", "b", "d", "dies"] and len({pid for *_, pid in lines}) == 2


def test_the_protocol():
    lines = [json.dumps(vars(job)) + "\n" for job in jobs("a", "b")]
    out = io.StringIO()

    def handle(job: BenchJob) -> BenchResult:
        about = {"gate": job.gate, "case": job.case, "arch": job.arch, "bytes": job.bytes}
        return BenchResult(**about, status="skipped", message="called once")

    serve(lines, out, handle)
    ready, *events = (json.loads(line) for line in out.getvalue().splitlines())
    assert ready == {"event": "ready"}
    assert [event["id"] for event in events] == ["scale[a-sm100]", "scale[b-sm100]"]
    assert BenchResult.model_validate(events[0]["result"]).message == "called once"
