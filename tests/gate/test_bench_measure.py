"""One bench case measured: sets, calls, floors, canaries; by a clock that counts instead of timing."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import backends
from gate.bench import measure, timing
from gate.bench.plan import BenchJob
from gate.bench.timing import Sample
from gate.load import load
from gate.stage import Stage


class Clock:
    """Calls everything once and tells what it is told to."""

    device = torch.device("cpu")

    def __init__(self, us: float = 3.0, read: float = 2.0, copy: float = 1.5, rate: float = 4e12) -> None:
        self.us, self.read, self.copy, self.rate = us, read, copy, rate
        self.calls = 0
        self.asked: list[tuple] = []
        self.results: list = []

    def sample(self, calls):
        self.calls = len(calls)
        self.results = [call() for call in calls]
        return Sample(self.us, self.us - 0.25, self.us + 0.5)

    def read_us(self, moved):
        self.asked.append(("read", moved))
        return self.read

    def copy_us(self, moved):
        self.asked.append(("copy", moved))
        return self.copy

    def copy_rate(self):
        return self.rate

    def products_us(self, *sizes):
        self.asked.append(sizes)
        return {"cuBLAS bf16": 7.0}


@pytest.fixture(scope="module")
def backend():
    return backends.get("emulated", arch="sm_90a")


@pytest.fixture(autouse=True)
def few_sets(monkeypatch):
    monkeypatch.setattr(timing, "MOST_SETS", 3)
    monkeypatch.setattr(timing, "CALLS", 4)


def job(stage: str = "quantize_fp8", **changed) -> BenchJob:
    fields = {"m": 2, "k": 256, "format": "fp8"}
    made = BenchJob(stage, stage, "a", "sm90", fields, 1536, "copy", warm=["x"], where={"case": "gates.yaml:7:9"})
    return replace(made, **changed)


def timed(job: BenchJob, backend, root, clock: Clock):
    return measure.measure(job, Stage(measure.judged_as(job), root), backend, clock)


def test_a_case_is_timed_beside_its_floor(root, backend):
    clock = Clock(rate=1e9)
    found = timed(job(at_most=1.3, peers={"Other": 5.0}), backend, root, clock)
    assert found.status == "pass" and found.message is None and found.evidence == "emulated sm_90a"
    assert (found.us, found.low_us, found.high_us, found.sets, found.calls, clock.calls) == (3.0, 2.75, 3.5, 3, 4, 4)
    # 1536 bytes at 1e9 a second are 1.536 us: more than the copy of as many bytes took
    assert (found.floor_us, found.floor_of, found.copy_tb_s) == (pytest.approx(1.536), "copy rate", 1e-3)
    assert found.of_floor == pytest.approx(3 / 1.536) and found.tb_s == pytest.approx(1536 / 3 / 1e6)
    assert (found.at_most, found.peers, found.canaries, clock.asked) == (1.3, {"Other": 5.0}, {}, [("copy", 1536)])


@pytest.mark.parametrize(
    ("floor", "rate", "want"),
    [("read", 1e9, (2.0, "cold read")), ("copy", 4e12, (1.5, "copy")), ("read", 5e8, (3.072, "copy rate"))],
)
def test_the_floor_is_the_larger_of_two_measurements(root, backend, floor, rate, want):
    found = timed(job(floor=floor), backend, root, Clock(rate=rate))
    assert (found.floor_us, found.floor_of) == (pytest.approx(want[0]), want[1])


def test_every_output_is_kept_until_the_end(root, backend):
    clock = Clock()
    timed(job(), backend, root, clock)
    places = {result["codes"].data_ptr() for result in clock.results}
    assert len(places) == 4 and all(torch.equal(r["codes"], clock.results[0]["codes"]) for r in clock.results)


def test_sets_are_clones_but_for_what_is_warm():
    x = {"x": torch.arange(6.0).view(2, 3).t(), "w": torch.ones(4), "g": torch.tensor(2.0)}
    sets = measure.rotated(x, ["w"], 3)
    assert len(sets) == 3 and sets[0] is x
    assert all(one["w"] is x["w"] for one in sets)
    assert len({one["x"].data_ptr() for one in sets}) == 3 and len({one["g"].data_ptr() for one in sets}) == 3
    assert all(torch.equal(one["x"], x["x"]) and one["x"].stride() == x["x"].stride() for one in sets)


@pytest.mark.parametrize(
    ("moved", "sets", "calls"),
    [(1, 256, 256), (1 << 20, 256, 256), (9 << 20, 29, 29), (100 << 20, 3, 24), (1 << 30, 2, 24)],
)
def test_sets_are_256_mb_together(monkeypatch, moved, sets, calls):
    monkeypatch.undo()
    assert (timing.sets_for(moved), timing.calls_for(moved)) == (sets, calls)


def test_quartiles():
    assert timing.summary([5.0, 1.0, 3.0, 2.0, 4.0]) == Sample(3.0, 2.0, 4.0)
    assert timing.summary([7.0]) == Sample(7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"warm": ["x", "q"]}, "contract_error", "gates.yaml:7:9: warm: 'q' is no input of stages/quantize_fp8.py; inputs: x"),
        ({"fields": {"k": 256}}, "contract_error", "gates.yaml:7:9: case 'a' has no field 'm'"),
        ({"fields": {"m": 2, "k": 256, "format": "fp8", "mm": 2}}, "contract_error", "gates.yaml:7:9: case 'a' has 'mm', which is no setting"),
        ({"fields": {"m": 2, "k": 250, "format": "fp8"}}, "runtime_error", "ValueError: quantize_fp8: "),
        ({"fields": {"m": 2, "k": 256, "format": "fp9"}}, "runtime_error", "format='fp9'"),
    ],
)  # fmt: skip
def test_mistakes_are_results(root, backend, changed, status, said):
    found = timed(job(**changed), backend, root, Clock())
    assert found.status == status and said in found.message and found.us is None


def test_other_bits_on_a_clone_are_no_time(root, backend, monkeypatch):
    stage = Stage(measure.judged_as(job()), root)
    count = iter(range(100))

    def bench(x, case, backend):
        assert case.format == "fp8"
        return lambda: {"y": torch.full((3,), next(count))}

    monkeypatch.setattr(stage.module, "bench", bench, raising=False)
    found = measure.measure(job(), stage, backend, Clock())
    assert found.status == "not_repeatable" and found.us is None
    assert found.message == "call 4 of a graph gave other bits of y than call 1, on a clone"


def test_a_bench_that_is_no_function_is_a_mistake_of_the_stage(root, backend, monkeypatch):
    stage = Stage(measure.judged_as(job()), root)
    monkeypatch.setattr(stage.module, "bench", lambda x, case, backend: 3, raising=False)
    found = measure.measure(job(), stage, backend, Clock())
    assert found.status == "contract_error" and found.message.endswith("must return a function, returned int")


@pytest.mark.parametrize(
    ("stage", "fields", "kind", "asked"),
    [
        ("nvfp4_linear", {"m": 1, "n": 32, "k": 128}, "linear", ("linear", 1, 32, 128, 1)),
        ("multi_linear", {"m": 2, "n": [16, 24], "k": 128}, "linear", ("linear", 2, 40, 128, 1)),
        ("grouped_linear", {"m": 1, "n": 16, "k": 128, "weights": 2}, "grouped", ("grouped", 1, 16, 128, 2)),
    ],
)
def test_canaries_have_the_sizes_of_the_linear(root, backend, stage, fields, kind, asked):
    clock = Clock()
    found = timed(job(stage, fields=fields, canaries=kind, floor="read"), backend, root, clock)
    assert found.status == "pass", found.message
    assert found.canaries == {"cuBLAS bf16": 7.0} and asked in clock.asked


def test_what_run_does_beside_the_kernel_is_not_timed(root, backend):
    x = {"x": torch.ones(2, 3, 64).bfloat16(), "cos": torch.zeros(2, 32), "sin": torch.ones(2, 32)}
    stage = Stage(measure.judged_as(job("rope", fields={"t": 2, "h": 3, "c": 64, "yarn": True})), root)
    with backend.count() as counters:
        measure.timed(stage, x, backend)()
    assert (counters.launches, x["x"].float().sum()) == (1, 0.0) and x["x"][0, 0, :2].tolist() == [-1.0, 1.0]
    stage = Stage(measure.judged_as(job("multi_linear", fields={"m": 1, "n": [16, 24], "k": 128})), root)
    x = measure.inputs(job("multi_linear"), stage, torch.device("cpu"))
    call = measure.timed(stage, x, backend)
    call()
    with backend.count() as counters:
        found = call()
    assert counters.launches == 1 and {name: y.shape[1] for name, y in found.items()} == {"y0": 16, "y1": 24}


def _small(root):
    """The last bench case of every gate of passes, at few tokens: the one with most fields."""
    most = {"m": 2, "t": 2, "h": 2, "k": 512, "d": 512}
    gates, found = load(root), {}
    for name in gates.order:
        bench = gates[name].bench
        if bench is None or gates[name].group != "passes":
            continue
        for case in bench.cases:
            fields = {key: min(value, most[key]) if key in most else value for key, value in case.fields().items()}
            found[name] = (name, gates.stage(name), fields, bench.of(case, "warm"))
    return list(found.values())


def test_the_bench_cases_of_the_passes_run(root, backend, monkeypatch):
    monkeypatch.setattr(timing, "MOST_SETS", 2)
    monkeypatch.setattr(timing, "CALLS", 2)
    listed = _small(root)
    assert len({name for name, *_ in listed}) == 8
    for name, stage, fields, warm in listed:
        found = timed(job(stage, gate=name, fields=fields, warm=list(warm)), backend, root, Clock())
        assert found.status == "pass", (name, fields, found.message)
