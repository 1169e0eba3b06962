"""From flags to jobs."""

from __future__ import annotations

import json

import pytest

from gate.errors import EmptySelection, UsageError
from gate.ledger import Ledger, Row
from gate.load import parse
from gate.options import parse as parse_options
from gate.select import JobFactory, gate_names, select

TEXT = """version: 1
defaults: {seeds: [0, 1], repeat: 4, timeout_s: 9}
gates:
  alpha:
    about: a claim here
    arch: [sm100, sm90]
    needs: [alphabet]
    cases:
      - {id: small, m: 1}
      - {id: large, m: 2, launches: 0, heads: [1, 2]}
    limits:
      y: {vs_torch: 2, against: simulated}
    launches: 1
    syncs: "<= 3"
    resources: {registers: 128}
    falsified_by: {one: hang, two: [hang, timeout]}
  alphabet:
    about: a claim here
    arch: [sm100]
    seeds: [5]
    cases: [{id: only}]
    limits: {y: {exact: true}}
  later:
    about: a claim here
    state: planned
"""


@pytest.fixture
def gates(tmp_path):
    return parse(TEXT, tmp_path)


def chosen(gates, *flags, ledger=None):
    return select(gates, parse_options(flags), ledger or Ledger({}, {}))


def ids(jobs):
    return [job.label for job in jobs]


def test_default_is_every_built_gate_in_ladder_order_with_every_arch_seed_and_case(gates):
    selection = chosen(gates)
    assert selection.gates == ["alphabet", "alpha"]
    assert ids(selection.jobs) == [
        "alphabet[only-s5-sm100]",
        *(f"alpha[{c}-s{s}-{a}]" for a in ("sm100", "sm90") for s in (0, 1) for c in ("small", "large")),
    ]
    assert selection.complete == {("alphabet", "sm100"), ("alpha", "sm100"), ("alpha", "sm90")}


def test_job_carries_what_gates_yaml_asks(gates):
    job = next(job for job in chosen(gates, "alpha").jobs if job.case == "large")
    assert job.fields == {"m": 2, "heads": [1, 2]}
    assert job.limits == {"y": {"vs_torch": 2, "against": "simulated"}}
    assert job.counts == {"launches": 0, "syncs": "<= 3"}
    assert job.resources == {"registers": 128} and job.memory is None and job.roofline is None
    assert (job.repeat, job.timeout_s, job.on, job.mutant) == (4, 9, "emulated", None)
    assert job.where == {"case": "gates.yaml:10:9", "limits": "gates.yaml:11:5"}
    small = next(job for job in chosen(gates, "alpha").jobs if job.case == "small")
    assert small.counts["launches"] == 1 and small.digest != job.digest
    assert type(job)(**json.loads(json.dumps(vars(job)))) == job


@pytest.mark.parametrize(
    ("flags", "expected", "complete"),
    [
        (["alpha", "-k", "small and s1 and not sm90"], ["alpha[small-s1-sm100]"], set()),
        (["alphabet"], ["alphabet[only-s5-sm100]"], {("alphabet", "sm100")}),
        (["alphabe"], ["alphabet[only-s5-sm100]"], {("alphabet", "sm100")}),
        (["alphabet", "--seed", "7"], ["alphabet[only-s7-sm100]"], set()),
        (["alpha", "--arch", "sm90", "-k", "s0"], ["alpha[small-s0-sm90]", "alpha[large-s0-sm90]"], set()),
        (["alphabet", "later"], ["alphabet[only-s5-sm100]"], {("alphabet", "sm100")}),
    ],
)
def test_flags(gates, flags, expected, complete):
    selection = chosen(gates, *flags)
    assert ids(selection.jobs) == expected and selection.complete == complete


def test_oracle_only_takes_one_arch(gates):
    jobs = chosen(gates, "alpha", "--oracle-only").jobs
    assert {(job.arch, job.on) for job in jobs} == {("sm100", "oracle")} and len(jobs) == 4


def test_falsify_adds_every_mutant_on_every_case_at_its_first_seed(gates):
    jobs = chosen(gates, "--falsify").jobs
    mutants = [(job.case, job.seed, job.arch, job.mutant) for job in jobs if job.mutant]
    cases = [("small", "sm100"), ("large", "sm100"), ("small", "sm90"), ("large", "sm90")]
    assert mutants == [(case, 0, arch, mutant) for mutant in ("one", "two") for case, arch in cases]
    assert [job.gate for job in jobs] == ["alphabet"] + ["alpha"] * 16


def test_last_failed_and_resume_follow_the_ledger(gates):
    job = chosen(gates, "alphabet").jobs[0]
    row = Row(job.key, "hang", job.digest, "emulated sm_100a", "2026-01-01T00:00:00Z", "run", 1.0, ())
    assert ids(chosen(gates, "--lf", ledger=Ledger({job.key: row}, {})).jobs) == ["alphabet[only-s5-sm100]"]
    passed = Row(job.key, "pass", job.digest, "emulated sm_100a", "2026-01-01T00:00:00Z", "run", 1.0, ())
    selection = chosen(gates, "--resume", ledger=Ledger({job.key: passed}, {}))
    assert ids(selection.resumed) == ["alphabet[only-s5-sm100]"] and len(selection.jobs) == 8
    assert ("alphabet", "sm100") in selection.complete
    stale = Row(job.key, "pass", "other", "emulated sm_100a", "2026-01-01T00:00:00Z", "run", 1.0, ())
    assert chosen(gates, "--resume", ledger=Ledger({job.key: stale}, {})).resumed == []


@pytest.mark.parametrize(
    ("flags", "error", "text"),
    [
        (["alphq"], UsageError, "no gate 'alphq'; did you mean alpha?"),
        (["al"], UsageError, "'al' is the beginning of several gates: alphabet, alpha"),
        (["later"], EmptySelection, "later is only planned"),
        (["alphabet", "--arch", "sm90"], EmptySelection, "--arch sm90: no selected gate is for it"),
        (["-k", "zzz"], EmptySelection, "-k 'zzz' matches no case of alphabet, alpha; cases: only small large"),
    ],
)
def test_refusals(gates, flags, error, text):
    with pytest.raises(error) as caught:
        chosen(gates, *flags)
    assert text in str(caught.value)


def test_a_planned_gate_with_cases_runs_for_oracle_only_and_only_then(tmp_path):
    cases = "    state: planned\n    cases: [{id: one}]\n    limits: {y: {exact: true}}\n"
    gates = parse(TEXT.replace("    state: planned\n", cases), tmp_path)
    assert ids(chosen(gates, "--oracle-only").jobs)[-2:] == ["later[one-s0-sm100]", "later[one-s1-sm100]"]
    assert ids(chosen(gates, "later", "--oracle-only", "--seed", "3").jobs) == ["later[one-s3-sm100]"]
    assert "later" not in chosen(gates).gates
    with pytest.raises(EmptySelection, match=r"later is only planned: .* \(--oracle-only judges its oracle\)"):
        chosen(gates, "later")
    assert chosen(gates, "alpha", "later").notes == ["later is only planned (--oracle-only judges its oracle)"]


def test_exact_name_wins_over_being_a_prefix(gates):
    assert gate_names(gates, ["alpha"]) == ["alpha"]


def test_gpu_is_taken_only_where_it_has_the_arch(gates, monkeypatch):
    from gate import machine

    gpu = machine.Gpu("NVIDIA H200", "sm90", "580.1")
    monkeypatch.setattr(machine, "gpus", lambda: (gpu,))
    assert {(job.arch, job.on) for job in chosen(gates, "alpha").jobs} == {("sm100", "emulated"), ("sm90", "cuda")}
    selection = chosen(gates, "alpha", "--on", "gpu")
    assert {job.arch for job in selection.jobs} == {"sm90"}
    assert selection.skipped[0][1] == "arch sm100 on gpu: this GPU is sm90 (NVIDIA H200). Use --on emulator."
    assert {job.on for job in chosen(gates, "alpha", "--on", "emulator").jobs} == {"emulated"}


def test_digests_are_those_of_the_jobs(gates):
    factory = JobFactory(gates, parse_options([]))
    assert factory.digests("alphabet", "sm100", "emulated") == {"only": chosen(gates, "alphabet").jobs[0].digest}
