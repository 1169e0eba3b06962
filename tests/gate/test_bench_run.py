"""A whole run of --bench with a stand-in for the GPU: verdicts, baselines, tables, reports, exit codes."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from xml.etree import ElementTree

import pytest
from rich.console import Console

from gate import machine
from gate.bench import baseline, table
from gate.bench.plan import BenchJob
from gate.bench.run import bench
from gate.errors import UsageError
from gate.ledger import read_ledger
from gate.load import load
from gate.machine import Gpu
from gate.options import parse
from gate.result import BenchResult, Result, read_result
from tests.gate.conftest import cases_yaml

BENCH = """    bench:
      bytes: m * n * 1000
      at_most: 1.5
      canaries: null
      cases:
        - {id: small, m: 4, n: 64, at_most_us: 3, peers: {Marlin NVFP4: 5.16, Other: 4}}
        - {id: large, m: 64, n: 64}
        - {id: free, m: 1, n: 64, at_most: 1e9}
"""


@dataclass
class Timer:
    """Times by case: (us, floor), a status, or an exception."""

    times: dict[str, object]
    evidence: str = "sm_100 NVIDIA B200"
    calls: list[tuple[str, list[str]]] = field(default_factory=list)

    def prepare(self, jobs, at_once):
        self.calls.append((f"prepare {at_once}", [job.case for job in jobs]))

    def results(self, jobs, mode="time"):
        self.calls.append((mode, [job.case for job in jobs]))
        for job in jobs:
            yield self.result(job)

    def result(self, job: BenchJob) -> BenchResult:
        names = ("gate", "case", "arch", "bytes", "at_most", "at_most_us", "peers")
        about = {name: getattr(job, name) for name in names} | {"evidence": self.evidence}
        given = self.times[job.case]
        if isinstance(given, type):
            raise given
        if isinstance(given, str):
            return BenchResult.model_validate(about | {"status": given, "message": "said the worker", "tail": "line 1"})
        us, floor = given
        times = {"us": us, "low_us": us - 0.1, "high_us": us + 0.1, "floor_us": floor, "floor_of": "cold read"}
        canaries = {"cuBLAS bf16": 6.33}
        return BenchResult.model_validate(about | times | {"status": "pass", "copy_tb_s": 4.23, "canaries": canaries})


FINE = {"small": (2.5, 2.0), "large": (3.0, 2.5), "free": (9.0, 2.0)}


@pytest.fixture
def run(project, monkeypatch):
    """A run of the sample project on a B200: gives exit code, text, and result."""
    monkeypatch.setattr(machine, "gpus", lambda: (Gpu("NVIDIA B200", "sm100", "580.1"),))
    for name in (
        "NSYS_PROFILING_SESSION_ID",
        "NV_COMPUTE_PROFILER_PERFWORKS_DIR",
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
    ):
        monkeypatch.delenv(name, raising=False)
    project.write(cases_yaml(["{id: a, m: 4, n: 8}"], more=BENCH))

    def run(times, flags="", timer=None) -> tuple[int, str, Result]:
        text = io.StringIO()
        out = Console(file=text, width=120, highlight=False, markup=False, no_color=True)
        options = parse(["scale", "--bench", *flags.split()])
        code = bench(load(project.root), options, "run_gate.py scale --bench", out, timer or Timer(times))
        return code, text.getvalue(), read_result(project.root / "build" / "gates" / "latest" / "result.json")

    run.root = project.root
    return run


def test_times_within_their_limits(run):
    timer = Timer(FINE)
    code, text, result = run(FINE, timer=timer, flags="-j 3")
    assert code == 0 and timer.calls == [
        ("prepare 3", ["small", "large", "free"]),
        ("time", ["small", "large", "free"]),
    ]
    lines = [line.split() for line in text.splitlines()]
    assert [
        "small",
        "2.50",
        "8.0%",
        "0.256",
        "0.10",
        "2.00",
        "1.25",
        "1.5×",
        "3us",
        "6.33",
        "5.16",
        "4.00",
        "pass",
    ] in lines
    assert ["large", "3.00", "6.7%", "4.10", "1.37", "2.50", "1.20", "1.5×", "6.33", "-", "-", "pass"] in lines
    assert "NVIDIA B200 (sm100) · driver 580.1 · torch" in text and "· copies at 4.23 TB/s" in text
    assert "DONE  3 timed" in text and max(map(len, text.splitlines())) <= 160
    assert [one.status for one in result.bench.results] == ["pass"] * 3 and result.gates == [] and result.cases == []
    assert result.bench.results[0].label == "scale[small-sm100]" and result.bench.failures() == []
    assert result.not_checked[0].what == "values: scale"
    # times prove nothing
    assert read_ledger(run.root).rows == {}


def test_beyond_a_limit_is_a_failure(run):
    code, text, result = run(FINE | {"small": (3.2, 2.0), "large": (3.8, 2.5)})
    small, large, _ = result.bench.results
    assert code == 1 and "FAIL  3 timed, 2 too_slow" in text
    assert (
        small.message == "takes 3.20 us = 1.60 x its cold read of 2.00 us, allowed 1.5 x; takes 3.20 us, allowed 3 us"
    )
    assert large.message == "takes 3.80 us = 1.52 x its cold read of 2.50 us, allowed 1.5 x"
    assert f"FAIL  {small.label}  {small.message}" in text
    assert "again         python run_gate.py scale --bench -k small --arch sm100" in text


@pytest.mark.parametrize(
    ("times", "flags", "code", "statuses"),
    [
        ({"small": "runtime_error"}, "", 1, ["runtime_error", "pass", "pass"]),
        ({"small": "not_repeatable"}, "", 1, ["not_repeatable", "pass", "pass"]),
        ({"small": "timeout"}, "-x", 1, ["timeout"]),
        ({"small": "contract_error"}, "", 4, ["contract_error", "pass", "pass"]),
        ({"small": "skipped", "large": "skipped"}, "", 0, ["skipped", "skipped", "pass"]),
        ({"small": "skipped", "large": "skipped", "free": "skipped"}, "", 5, ["skipped"] * 3),
        ({"large": KeyboardInterrupt}, "", 2, ["pass"]),
    ],
)
def test_exit_codes(run, times, flags, code, statuses):
    found, text, result = run(FINE | times, flags)
    assert (found, [one.status for one in result.bench.results]) == (code, statuses)
    if statuses[0] != "pass":
        assert f"{result.bench.results[0].label}  said the worker" in text and "│ line 1" in text
    if len(statuses) < 3:
        assert result.not_checked[-1].why == "the run had ended"


def test_under_a_profiler_nothing_is_timed(run, monkeypatch):
    monkeypatch.setenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/x")
    timer = Timer(dict.fromkeys(FINE, "skipped"))
    code, text, _ = run(None, timer=timer)
    assert code == 5 and timer.calls == [("profile", ["small", "large", "free"])]
    assert "Nsight Compute is attached, whose work would be timed too: every kernel is called once" in text


def test_saved_times_are_compared(run):
    code, text, _ = run(FINE, "--save main")
    assert code == 0 and "kept as build/bench/main.json" in text
    kept = json.loads((run.root / "build" / "bench" / "main.json").read_text())
    assert kept["scale[small-sm100]"] == {"us": 2.5, "evidence": "sm_100 NVIDIA B200"}
    slower = {name: (us * 1.15, floor * 1.15) for name, (us, floor) in FINE.items()}
    code, text, result = run(slower, "--compare main")
    assert code == 0 and "2.88 +15.0%" in text and result.bench.results[0].baseline_us == 2.5
    assert (result.bench.compared, result.bench.fail_slower) == ("main", 15.0)
    slower["large"] = (3.0 * 1.151, 3.0)
    code, _, result = run(slower, "--compare main")
    assert code == 1 and [one.status for one in result.bench.results] == ["pass", "too_slow", "pass"]
    assert result.bench.results[1].message == "is 15.1 % slower than the 3.00 us of 'main', allowed 15 %"
    assert run(slower, "--compare main --fail-slower 15.2%")[0] == 0
    assert run(slower, "--compare main --fail-slower 1%")[0] == 1


def test_times_that_were_never_kept_are_failures(run):
    code, _, result = run(FINE, "--compare main")
    assert code == 1 and {one.status for one in result.bench.results} == {"no_baseline"}
    assert result.bench.results[0].message == "has no time under 'main' to be compared with (--save main keeps one)"
    run(FINE, "--save main -k small")
    code, _, result = run(FINE, "--compare main")
    assert [one.status for one in result.bench.results] == ["pass", "no_baseline", "no_baseline"]
    code, _, result = run(FINE | {"large": (9.0, 2.0)}, "--compare main")
    assert [one.status for one in result.bench.results] == ["pass", "too_slow", "no_baseline"]


def test_times_of_another_device_are_not_compared(run):
    run(FINE, "--save main")
    code, _, result = run(None, "--compare main", timer=Timer(FINE, evidence="sm_100 NVIDIA GB300"))
    assert code == 1 and {one.status for one in result.bench.results} == {"no_baseline"}
    assert result.bench.results[0].message.startswith(
        "was timed on sm_100 NVIDIA B200 for 'main', now on sm_100 NVIDIA GB300"
    )


def test_a_later_save_keeps_what_it_did_not_time(run):
    run(FINE, "--save main")
    run(FINE | {"large": (2.9, 2.5)}, "--save main -k large")
    kept = baseline.load(run.root, "main")
    assert {label: one.us for label, one in kept.items()} == {
        "scale[small-sm100]": 2.5, "scale[large-sm100]": 2.9, "scale[free-sm100]": 9.0,
    }  # fmt: skip


def test_a_spoilt_baseline_is_refused_before_anything_runs(run):
    run(FINE, "--save main")
    (run.root / "build" / "bench" / "main.json").write_text('{"scale[small-sm100]": 3}')
    timer = Timer(FINE)
    with pytest.raises(UsageError, match="build/bench/main.json holds no times"):
        run(None, "--compare main", timer=timer)
    assert timer.calls == []


def test_reports_show_the_same(run):
    run(FINE | {"small": (3.25, 2.0), "large": "runtime_error"})
    folder = run.root / "build" / "gates" / "latest"
    summary = (folder / "summary.md").read_text()
    assert summary.startswith("### ❌ times: 2 timed, 1 too_slow, 1 runtime_error  (")
    assert (
        "| case | us | spread | MB | TB/s | floor | × floor | allowed | cuBLAS bf16 | Marlin NVFP4 (quoted) | Other (quoted) | verdict |"
        in summary
    )
    assert "| small | 3.25 | 6.2% | 0.256 | 0.08 | 2.00 | 1.62 | 1.5× 3us | 6.33 | 5.16 | 4.00 | too_slow |" in summary
    assert "NVIDIA B200 (sm100) · driver 580.1" in summary and "FAIL  scale[large-sm100]  said the worker" in summary
    page = (folder / "report.html").read_text()
    assert all(page.count(f"<{tag}") == page.count(f"</{tag}") for tag in ("table", "tr>", "td", "h3", "span"))
    assert '<h2 id="bench">Times</h2>' in page and "NVIDIA B200 (sm100) · driver 580.1" in page
    assert '<td class="n quiet">5.16</td>' in page and "allowed 3 us" in page and ">too_slow</span>" in page
    suite = next(
        s for s in ElementTree.fromstring((folder / "junit.xml").read_text()) if s.get("name") == "bench scale"
    )
    assert [(c.get("name"), [e.tag for e in c if e.tag != "properties"]) for c in suite] == [
        ("small", ["failure"]), ("large", ["error"]), ("free", []),
    ]  # fmt: skip
    assert suite[0][0][2].attrib == {"name": "us", "value": "3.25"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0123, "0.012"), (0.988, "0.988"), (2.594, "2.59"), (70.41, "70.4"), (1254.66, "1254.7")],
)
def test_numbers(value, text):
    assert table.number(value) == text


def test_quiet_prints_failures_and_the_sum(run):
    _, text, _ = run(FINE | {"small": (3.2, 2.0)}, "-q")
    assert [line[:22] for line in text.splitlines() if not line.startswith(("  again", "NVIDIA"))] == [
        "FAIL  scale[small-sm10", "FAIL  3 timed, 1 too_s",
    ]  # fmt: skip


def test_on_github_failures_are_annotations(run):
    _, text, _ = run(FINE | {"small": (3.2, 2.0)}, "--format github")
    said = [line for line in text.splitlines() if line.startswith("::error")]
    assert len(said) == 1 and said[0].startswith(
        "::error file=gates.yaml,title=scale[small-sm100]: too_slow::takes 3.20 us"
    )


def test_a_result_without_a_time_cannot_pass():
    about = {"gate": "g", "case": "c", "arch": "sm90", "bytes": 8}
    with pytest.raises(ValueError, match="needs a time and a floor"):
        BenchResult(**about, status="pass")
    with pytest.raises(ValueError, match="a bench result with status 'skipped' and message None"):
        BenchResult(**about, status="skipped")
