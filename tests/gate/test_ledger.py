"""What earlier runs prove: newest results, staleness, evidence that is never added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gate.ledger import read_ledger
from gate.load import parse

GATES = parse(
    """version: 1
gates:
  g:
    about: a claim here
    arch: [sm100]
    seeds: [0, 1]
    cases: [{id: a}, {id: b}]
    limits: {y: {cos: 0.9}}
""",
    Path("."),
)
NOW = {"a": "da", "b": "db"}


def write(root, run, cases, verdict="pass", ended=None):
    folder = root / "build" / "gates" / run
    folder.mkdir(parents=True)
    rows = []
    for case in cases:
        base = {
            "gate": "g",
            "arch": "sm100",
            "on": "emulated",
            "evidence": "emulated sm_100a",
            "seconds": {"total": 2.0},
        }
        rows.append(base | {"digest": NOW[case["case"]], "status": "pass"} | case)
    gate = {"gate": "g", "arch": "sm100", "status": verdict}
    times = {"started": f"2026-01-0{run[0]}T00:00:00Z", "ended": ended or f"2026-01-0{run[0]}T00:10:00Z"}
    (folder / "result.json").write_text(json.dumps({"schema": 1, "run": times, "gates": [gate], "cases": rows}))


def both(**fields):
    return [{"case": case, "seed": seed, **fields} for case in ("a", "b") for seed in (0, 1)]


def entry(root, on="emulated", digests=None):
    return read_ledger(root).entry(GATES, "g", "sm100", on, digests or NOW)


def test_never_partial_pass(tmp_path):
    assert entry(tmp_path).state == "never"
    write(tmp_path, "1", both()[:3])
    assert entry(tmp_path).state == "partial" and not entry(tmp_path).proven
    write(tmp_path, "2", both()[3:])
    found = entry(tmp_path)
    assert (found.state, found.stale, found.proven, found.passed, found.wanted) == ("pass", False, True, 4, 4)
    assert (found.evidence, found.run, found.seconds) == ("emulated sm_100a", "2", 8.0)


def test_pass_is_stale_once_a_digest_changes(tmp_path):
    write(tmp_path, "1", both())
    found = entry(tmp_path, digests={"a": "da", "b": "other"})
    assert (found.state, found.stale, found.proven) == ("pass", True, False)


def test_newest_result_of_a_case_counts(tmp_path):
    write(tmp_path, "1", both())
    write(tmp_path, "2", [{"case": "a", "seed": 1, "status": "hang"}], verdict="hang")
    assert entry(tmp_path).state == "fail"
    assert read_ledger(tmp_path).failed() == {("g", "a", 1, "sm100", "emulated")}
    write(tmp_path, "3", [{"case": "a", "seed": 1}])
    assert entry(tmp_path).proven and read_ledger(tmp_path).failed() == set()


def test_skipped_blocked_resumed_and_mutants_say_nothing(tmp_path):
    write(tmp_path, "1", both())
    write(tmp_path, "2", both(status="skipped"))
    write(tmp_path, "3", both(status="wrong_values", mutant="m"))
    write(tmp_path, "4", both(status="hang", resumed_from="1"))
    found = entry(tmp_path)
    assert found.proven and found.run == "1"


def test_evidence_of_another_kind_is_not_added_up(tmp_path):
    write(tmp_path, "1", both()[:2])
    write(tmp_path, "2", both(on="cuda", evidence="sm_100 NVIDIA B200")[2:])
    assert entry(tmp_path).state == entry(tmp_path, on="cuda").state == "partial"
    assert entry(tmp_path, on="cuda").evidence == "sm_100 NVIDIA B200"
    write(tmp_path, "3", both(on="oracle", evidence="oracle only"))
    assert entry(tmp_path).state == "partial"


def test_accepted_variant_is_a_failure_although_every_case_passes(tmp_path):
    write(tmp_path, "1", both(), verdict="variant_accepted")
    assert entry(tmp_path).state == "fail"


def test_blind_cases_and_history(tmp_path):
    write(tmp_path, "1", both(), verdict="hang")
    write(tmp_path, "2", both(blind_to=["v"])[:1])
    assert entry(tmp_path).blind == {"a": ("v",)}
    assert [v.status for v in read_ledger(tmp_path).history("g", "sm100")] == ["hang", "pass"]
    assert [v.run for v in read_ledger(tmp_path).history("g", "sm100", most=1)] == ["2"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 0, "run": {}}'])
def test_foreign_files_are_passed_over(tmp_path, text):
    write(tmp_path, "1", both())
    for name in ("2", "3-empty"):
        (tmp_path / "build" / "gates" / name).mkdir()
    (tmp_path / "build" / "gates" / "2" / "result.json").write_text(text)
    (tmp_path / "build" / "gates" / "latest").symlink_to("2")
    assert entry(tmp_path).proven


def test_passed_needs_the_same_digest(tmp_path):
    write(tmp_path, "1", both())
    key = ("g", "a", 0, "sm100", "emulated")
    assert read_ledger(tmp_path).passed(key, "da").run == "1"
    assert read_ledger(tmp_path).passed(key, "other") is None
    assert read_ledger(tmp_path).passed(("g", "c", 0, "sm100", "emulated"), "da") is None
