"""--schedules and --replay on pipelines of copies: a fault that only some schedules show is found, shrunk, replayed."""

from __future__ import annotations

import json

import pytest

from gate.schedules import numbered
from tests.gate.conftest import Project

STAGE = '''"""A small pipeline of copies: every lane folds the words of all tiles."""

from types import SimpleNamespace

import numpy as np
import torch

import emulator
from tests.emulator.machine import pipeline


def inputs(case, rng):
    """The tiles."""
    return {"x": torch.from_numpy(pipeline.words().view(np.int32))}


def run(x, case, backend, mutant=None):
    """One launch on the emulator."""
    body = getattr(pipeline, case.kernel)

    def launch(out):
        settings = {"policy": backend.policy, "seed": backend.seed, "listeners": backend.listeners}
        if backend.policy == "replay":
            settings["schedule"] = backend.schedules.pop(0)
        found, record = pipeline.run(body, **settings)
        out.copy_(torch.from_numpy(found.view(np.int32)))
        backend.last_launches = [record]

    out = backend.empty((2, 32), torch.int32)
    backend.launch(backend.compile(launch, name=case.kernel), out)
    return {"y": out}


def oracle(x, case, kind):
    """The same, tile by tile."""
    return {"y": torch.from_numpy(pipeline.expected().view(np.int32)).double()}


def plain(x, case):
    """The same."""
    return {"y": torch.from_numpy(pipeline.expected().view(np.int32))}


def wrong(x, case):
    """Nothing was copied."""
    return {"zero": {"y": torch.zeros(2, 32, dtype=torch.float64)}}
'''

GATES = """version: 1
defaults: {seeds: [0], repeat: 3, timeout_s: 60}
gates:
  pipeline:
    about: tiles travel through two stages
    arch: [sm100]
    cases:
      - {id: right, kernel: RIGHT}
      - {id: early, kernel: GIVEN_EARLY}
      - {id: one_waits, kernel: ONE_WAITS}
    limits:
      y: {exact: true}
"""


@pytest.fixture(scope="module")
def project(make_project) -> Project:
    made = make_project("schedules").write(GATES)
    (made.root / "stages" / "pipeline.py").write_text(STAGE)
    return made


@pytest.fixture(scope="module")
def done(project):
    return project.run("pipeline", "--schedules", "8", "-j", "2")


def test_without_other_schedules_nothing_is_wrong(project):
    plain = project.run("pipeline", "-j", "2", "--report", "plain")
    assert plain.code == 0 and plain.gate("pipeline")["passed"] == 3
    assert "schedules: not run (--schedules N)" in plain.out
    listed = [item["what"] for item in plain.result["not_checked"]]
    assert "schedules other than in_order and latest" in listed


def test_the_right_kernel_gives_the_same_bits(done):
    case = done.case("right")
    assert case["status"] == "pass" and case["schedules"] == {"seeds": 8, "equal": True}
    assert "schedules other than in_order and latest" not in [item["what"] for item in done.result["not_checked"]]


def test_other_bits_are_a_race(done):
    case = done.case("early")
    assert (done.code, case["status"], case["step"]) == (1, "race", "schedules")
    assert case["message"].startswith("random schedule 4 of 8 gave other bits: ")
    assert case["repeat_equal"] and case["policies"] == ["in_order", "latest"]
    (decision,) = case["schedules"]["decisions"]
    assert decision.startswith("round 2: warp 1 (at PTX line ") and "is stopped after 16 blocks, behind " in decision
    assert "  shortest schedule found that shows it: 1 of 21 decisions, none of which can be left out:" in done.out
    assert "--debug" not in done.out
    assert "    1. round 2: warp 1 (at PTX line " in done.out
    assert "same bits under 8 random schedules: NO" in done.out
    assert max(len(line) for line in case["message"].splitlines()) <= 120


def test_a_hang_under_one_schedule_is_a_hang(done):
    case = done.case("one_waits")
    assert (case["status"], case["step"]) == ("hang", "schedules")
    assert case["message"].startswith("random schedule 3 of 8: kernel: no warp can step and nothing is in flight")
    assert 1 <= len(case["schedules"]["decisions"]) <= 3


def test_every_report_tells_the_decisions(done):
    for name in ("report.html", "summary.md", "junit.xml"):
        assert "round 2: warp 1 (at PTX line" in (done.folder / name).read_text()


@pytest.mark.parametrize(("case", "status"), [("early", "race"), ("one_waits", "hang")])
def test_the_file_replays_it(project, done, case, status):
    file = done.case(case)["schedules"]["file"]
    assert file.startswith("build/gates/") and f"--replay {file}" in done.out
    again = project.run("pipeline", "-k", f"{case}-s0", "--arch", "sm100", "--replay", file)
    found = again.case(case)
    assert (again.code, found["status"]) == (1, status)
    assert found["message"].startswith(f"the schedule of {file}")
    assert found["schedules"]["decisions"] == done.case(case)["schedules"]["decisions"]


def test_a_schedule_of_another_kernel_is_refused_by_the_case(project, done):
    file = done.case("early")["schedules"]["file"]
    other = project.run("pipeline", "-k", "right", "--replay", file)
    assert other.code == 4
    assert "--replay: schedule: recorded for kernel kernel of PTX " in other.case("right")["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "cut off, or no JSON"),
        (lambda text: text.replace('"version": 1', '"version": 0'), "version 0; version 1 is read"),
        (lambda text: json.dumps({"launches": []}), "no schedule"),
    ],
)
def test_a_bad_file_is_refused_before_anything_runs(project, done, change, words):
    good = project.root / done.case("early")["schedules"]["file"]
    (project.root / "bad.json").write_text(change(good.read_text()))
    refused = project.run("pipeline", "--replay", "bad.json")
    assert refused.code == 4 and words in refused.err and "bad.json" in refused.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--schedules", "0"], "'0' is not a whole number from 1"),
        (["--schedules", "2", "--oracle-only"], "--schedules runs kernels"),
        (["--schedules", "2", "--on", "gpu"], "a GPU schedules by itself"),
        (["--schedules", "2", "--resume"], "--resume leaves out cases that pass"),
        (["--schedules", "2", "--replay", "x"], "give one of them"),
        (["--replay", "missing.json"], "missing.json: cannot be read"),
    ],
)
def test_flags_that_make_no_sense(project, flags, words):
    refused = project.run("pipeline", *flags)
    assert refused.code == 4 and words in refused.err


def test_long_lists_are_wrapped_and_cut():
    lines = numbered(["word " * 40] * 41)
    assert max(map(len, lines)) <= 110 and lines[0].startswith("  1. word") and lines[1].startswith("     word")
    assert lines[-1] == "     and 1 more"
