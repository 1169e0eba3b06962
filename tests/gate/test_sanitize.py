"""--sanitize: every finding makes a case fail with the status of its tool, and every rendering shows it."""

from __future__ import annotations

import pytest

from emulator.watch import TOOLS
from gate import blocks
from gate.result import CaseResult, FindingResult, Place, Sanitizers
from gate.status import OF_TOOL, REJECTIONS
from tests.gate.conftest import cases_yaml

FAULTS = ("clean", "uninitialised", "beyond", "both", "many", "faults")


@pytest.fixture(scope="module")
def checked(make_project):
    """Every body with all tools."""
    listed = [f"{{id: {fault}, m: 96, n: 64, fault: checked_{fault}}}" for fault in FAULTS]
    listed.append("{id: half, m: 96, n: 64, fault: half}")
    project = make_project("checked").write(cases_yaml(listed))
    return project.run("--sanitize", "-j", "2", "--junit", str(project.root / "junit.xml"))


def test_every_tool_has_a_status_that_a_mutant_may_earn():
    assert tuple(OF_TOOL) == TOOLS
    assert set(OF_TOOL.values()) <= set(REJECTIONS)


def test_a_clean_case_passes_and_says_what_listened(checked):
    case = checked.case("clean")
    assert case["status"] == "pass" and case["sanitizers"]["tools"] == list(TOOLS)
    assert "findings" not in case["sanitizers"] and case["seconds"]["sanitize"] > 0
    assert checked.code == 1


def test_a_finding_is_a_failure_with_the_status_of_its_tool(checked):
    case = checked.case("uninitialised")
    assert (case["status"], case["step"]) == ("uninitialised", "sanitize")
    assert case["message"] == "initcheck: uninitialised output: out + 0 bytes"
    (finding,) = case["sanitizers"]["findings"]
    assert (finding["tool"], finding["kind"]) == ("initcheck", "uninitialised output")
    assert finding["at"]["text"].startswith("st.global.u32") and finding["other"]["text"].startswith("ld.shared.u32")
    assert checked.case("beyond")["status"] == "memory_fault"


def test_the_first_tool_names_a_case_with_findings_of_several(checked):
    case = checked.case("both")
    assert case["status"] == "memory_fault" and case["message"].endswith("(and 1 more)")
    assert [f["tool"] for f in case["sanitizers"]["findings"]] == ["memcheck", "initcheck"]


def test_what_a_case_ended_in_stays_and_findings_are_added(checked):
    """A kernel that the machine stops, and one with wrong values only."""
    case = checked.case("faults")
    assert (case["status"], case["step"]) == ("runtime_error", "run") and "MemoryFault" in case["message"]
    (finding,) = case["sanitizers"]["findings"]
    assert (finding["tool"], finding["kind"], finding["at"]["line"]) == ("memcheck", "out of bounds", 8)
    case = checked.case("half")
    assert case["status"] == "wrong_values" and "findings" not in case["sanitizers"]


def test_ten_findings_are_printed_in_full_and_all_are_kept(checked):
    assert len(checked.case("many")["sanitizers"]["findings"]) == 15
    start = checked.out.index("FAIL scale[many-s0-sm100]")
    block = checked.out[start : checked.out.index("again", start)]
    assert block.count("initcheck: uninitialised output") == 11 and "… and 5 more findings, in result.json" in block
    assert "    at sample, CTA (0, 0, 0), warp 0, PTX line 8: st.global.u32" in block
    assert "    and sample, CTA (0, 0, 0), warp 0, PTX line 8: ld.shared.u32" in block
    assert f"sanitizers {', '.join(TOOLS)}: 20 findings" in checked.out
    assert "-k uninitialised-s0 --arch sm100 --sanitize" in checked.out


def test_the_report_and_junit_show_them(checked):
    html = (checked.folder / "report.html").read_text()
    section = html[html.index('id="sanitizers"') : html.index('id="cost"')]
    assert "2 cases without a finding of memcheck, initcheck" in section
    assert section.count("initcheck: uninitialised output") == 17 and "scale[both-s0-sm100]" in section
    junit = (checked.folder / "junit.xml").read_text()
    assert '<property name="sanitize.initcheck" value="15" />' in junit
    assert 'type="uninitialised"' in junit and 'type="memory_fault"' in junit
    assert "which nobody has written" in (checked.folder / "summary.md").read_text()


def test_nothing_is_said_to_be_unchecked_that_was_checked(checked, project):
    unchecked = [item["why"] for item in checked.result["not_checked"]]
    assert not [why for why in unchecked if "sanitize" in why]
    project.write(cases_yaml(["{id: a, m: 96, n: 64, fault: checked_uninitialised}"]))
    some = project.run("--sanitize", "racecheck,memcheck")
    assert some.code == 0 and some.case("a")["sanitizers"]["tools"] == ["memcheck", "racecheck"]
    unchecked = {item["what"]: item["why"] for item in some.result["not_checked"]}
    assert unchecked["uses of what nobody has written"] == "initcheck was not run (--sanitize)"
    assert "data races and missing fences" not in unchecked
    assert "sanitizers memcheck, racecheck: no findings" in some.out


def test_a_mutant_earns_the_status_of_a_finding_without_the_flag(project):
    more = "    falsified_by:\n      checked_uninitialised: uninitialised\n      checked_beyond: [race, memory_fault]\n"
    project.write(cases_yaml(["{id: a, m: 96, n: 64}"], more=more))
    done = project.run("--falsify")
    assert done.code == 0, done.out
    rows = {row["name"]: row for row in done.gate("scale")["falsification"] if row["kind"] == "mutant"}
    assert {row["verdict"] for row in rows.values()} == {"rejected"}
    mutant = done.case("a", mutant="checked_uninitialised")
    assert mutant["sanitizers"]["tools"] == ["initcheck"] and mutant["status"] == "uninitialised"
    assert done.case("a", mutant="checked_beyond")["sanitizers"]["tools"] == ["memcheck", "racecheck"]
    assert "sanitizers" not in done.case("a")


def test_a_mutant_whose_finding_is_not_the_one_wanted_is_not_rejected(project):
    more = "    falsified_by:\n      checked_uninitialised: memory_fault\n"
    project.write(cases_yaml(["{id: a, m: 96, n: 64}"], more=more))
    done = project.run("--falsify")
    assert done.code == 1
    row = next(row for row in done.gate("scale")["falsification"] if row["kind"] == "mutant")
    assert row["verdict"] == "accepted"


def test_an_unknown_status_is_refused_with_those_of_the_tools(project):
    more = "    falsified_by:\n      none: uninitialized\n"
    done = project.write(cases_yaml(["{id: a, m: 96, n: 64}"], more=more)).run("--check")
    assert done.code == 4 and "'uninitialized'" in done.err and "did you mean 'uninitialised'?" in done.err


def _finding(tool: str) -> FindingResult:
    at = Place(kernel="k", cta=[0, 0, 0], warp=1, line=5, text="st", file="kernels/a.py", source_line=7, role="load")
    return FindingResult(tool=tool, kind="race", memory="shared memory offset 0x400", missing="a fence", count=3, at=at)


def test_a_result_with_findings_cannot_have_passed():
    about = {"gate": "g", "case": "c", "seed": 0, "arch": "sm100", "on": "emulated", "evidence": "emulated sm_100a"}
    found = Sanitizers(tools=["racecheck", "synccheck"], findings=[_finding("racecheck")])
    with pytest.raises(ValueError, match="a result with status 'pass' has no findings"):
        CaseResult.model_validate(about | {"on": "oracle", "status": "pass", "sanitizers": found})
    failed = about | {"status": "race", "step": "sanitize", "message": "racecheck: race", "sanitizers": found}
    result = CaseResult.model_validate(failed)
    assert result.statuses == ["race"] and found.by_tool() == {"racecheck": 1, "synccheck": 0}
    assert blocks.finding_lines(found.findings[0]) == [
        "racecheck: race: shared memory offset 0x400  (3 times)",
        "  a fence",
        "  at k, CTA (0, 0, 0), warp 1 [load], PTX line 5 (kernels/a.py:7): st",
    ]
    assert blocks.again(result).endswith("--sanitize racecheck,synccheck")
