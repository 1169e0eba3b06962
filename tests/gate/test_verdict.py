"""From case results to the verdict on a gate."""

from __future__ import annotations

import pytest

from gate.result import CaseResult
from gate.schema import Gate
from gate.verdict import falsifications, judge_gate

OUTPUT = {"y": {"shape": [1], "dtype": "float32"}}
LIMITS = {"y": {"cos": 0.9}}


def gate(**fields):
    cases = [{"id": "a"}, {"id": "b"}]
    return Gate.model_validate({"about": "a claim here", "cases": cases, "limits": LIMITS} | fields)


def case(name, status="pass", *, variants=None, mutant=None, seed=0):
    found = {"gate": "g", "case": name, "seed": seed, "arch": "sm100", "on": "emulated", "evidence": "emulated sm_100a"}
    found |= {"status": status, "mutant": mutant, "variants": variants or {}}
    if status in ("skipped", "blocked"):
        found["reason"] = "because"
    elif status == "pass":
        found |= {"outputs": OUTPUT, "repeat_equal": True, "repeats": 3}
    else:
        found |= {"message": "is wrong", "step": "compare"}
    return CaseResult.model_validate(found)


def judge(results, complete=True, falsified=False, **fields):
    return judge_gate("g", gate(**fields), "sm100", results, complete=complete, falsified=falsified)


SEEN = {"v": "wrong_values"}


def test_all_cases_and_variants_right():
    verdict, _ = judge([case("a", variants=SEEN), case("b", variants={"v": "pass"})])
    assert (verdict.status, verdict.passed, verdict.total, verdict.message) == ("pass", 2, 2, None)
    row = verdict.falsification[0]
    assert (row.verdict, row.rejected_on, row.blind) == ("rejected", ["a-s0-sm100"], ["b-s0-sm100"])


def test_a_variant_that_no_case_rejects():
    verdict, _ = judge([case("a", variants={"v": "pass"}), case("b", variants={"v": "pass"})])
    assert verdict.status == "variant_accepted"
    assert verdict.message == "wrong variant v passes every case (a, b): the limit is too loose or the data too easy"


def test_a_variant_is_not_held_against_a_part_of_the_cases():
    verdict, _ = judge([case("a", variants={"v": "pass"})], complete=False)
    assert verdict.status == "pass" and not verdict.complete


def test_a_failed_case_is_the_verdict():
    verdict, _ = judge([case("a", variants=SEEN), case("b", "not_finite")])
    assert (verdict.status, verdict.message, verdict.passed) == ("not_finite", "1 of 2 cases failed", 1)


@pytest.mark.parametrize(
    ("ends", "wanted", "status", "verdict"),
    [
        (["wrong_values", "pass"], "wrong_values", "pass", "rejected"),
        (["hang", "wrong_values"], "hang", "pass", "rejected"),
        (["not_finite", "pass"], ["wrong_values", "not_finite"], "pass", "rejected"),
        (["pass", "pass"], "wrong_values", "variant_accepted", "accepted"),
        (["runtime_error", "pass"], "hang", "variant_accepted", "wrong_reason"),
        (["contract_error", "contract_error"], "hang", "variant_accepted", "wrong_reason"),
    ],
)
def test_a_mutant_must_end_as_named_on_one_case_at_least(ends, wanted, status, verdict):
    real = [case("a", variants=SEEN), case("b", variants=SEEN)]
    runs = [case(name, end, mutant="m") for name, end in zip(("a", "b"), ends, strict=True)]
    found, _ = judge([*real, *runs], falsified=True, falsified_by={"m": wanted})
    assert found.status == status
    row = next(row for row in found.falsification if row.kind == "mutant")
    assert row.verdict == verdict
    assert row.blind == [f"{name}-s0-sm100" for name, end in zip(("a", "b"), ends, strict=True) if end == "pass"]
    assert found.total == 2


def test_accepted_mutant_and_wrong_reason_are_named():
    real = [case("a", variants=SEEN)]
    found, _ = judge([*real, case("a", "pass", mutant="m")], falsified=True, falsified_by={"m": "hang"})
    assert "mutant m passes every case (a)" in found.message
    found, _ = judge([*real, case("a", "timeout", mutant="m")], falsified=True, falsified_by={"m": ["hang"]})
    assert found.message == "mutant m must end as hang, ended as timeout on a"


def test_a_gate_without_any_wrong_variant_or_mutant_cannot_be_falsified():
    assert judge([case("a"), case("b")])[0].status == "pass"
    verdict, _ = judge([case("a"), case("b")], falsified=True)
    assert verdict.status == "variant_accepted" and "nothing shows that this gate can fail" in verdict.message


def test_mutants_that_were_not_run_say_nothing():
    assert falsifications(gate(falsified_by={"m": "hang"}), [case("a"), case("a", "skipped", mutant="m")]) == []


def test_skipped_blocked_and_partly_run():
    assert judge([case("a", "skipped"), case("b", "skipped")])[0].status == "skipped"
    assert judge([case("a", "blocked"), case("b", "blocked")])[0].status == "blocked"
    verdict, _ = judge([case("a"), case("b", "skipped")])
    assert (verdict.status, verdict.message) == ("skipped", "not every case was run: because")


def test_building_gate_may_fail_but_must_not_pass():
    verdict, results = judge([case("a", variants=SEEN), case("b", "hang")], state="building")
    assert verdict.status == "xfail"
    assert [(r.status, r.found) for r in results] == [("pass", None), ("xfail", "hang")]
    verdict, results = judge([case("a", variants=SEEN), case("b", variants=SEEN)], state="building")
    assert verdict.status == "xpass" and "remove `state: building`" in verdict.message
    assert [(r.status, r.found) for r in results] == [("xpass", "pass")] * 2
    verdict, results = judge([case("a", variants=SEEN)], complete=False, state="building")
    assert verdict.status == "xfail" and results[0].status == "pass"


def test_result_refuses_fields_that_do_not_go_together():
    base = case("a").model_dump()
    for change, text in (
        ({"message": "odd"}, "has no message"),
        ({"repeat_equal": False}, "needs equal repeats"),
        ({"outputs": {}}, "needs equal repeats"),
        ({"status": "hang"}, "needs message, step"),
        ({"status": "skipped"}, "needs a reason"),
        ({"status": "xfail"}, "needs what was found"),
        ({"found": "hang"}, "has nothing found"),
        ({"looks_like": {"variant": "v", "diff": 0, "equal": True}}, "cannot look like a variant"),
    ):
        with pytest.raises(ValueError, match=text):
            CaseResult.model_validate(base | change)
    with pytest.raises(ValueError, match="status"):
        CaseResult.model_validate(base | {"status": "fine"})
