"""Markdown, HTML, JUnit, annotations and the failure blocks, all from one result."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gate import blocks
from gate.ledger import read_ledger
from gate.load import load
from gate.report import html, junit, markdown
from gate.report.svg import error_map_svg, history_svg, ladder_svg
from gate.result import ErrorMap, Result, read_result
from tests.gate.conftest import cases_yaml


@pytest.fixture(scope="session")
def run(make_project):
    """A run with a pass, a wrong result, a hang, a crash, a skip, a block, a building gate and accepted mutants."""
    listed = [
        "{id: good, m: 96, n: 64}",
        "{id: bad, m: 96, n: 64, fault: tile_zero}",
        "{id: stuck, m: 96, n: 8, fault: hang}",
    ]
    text = cases_yaml([*listed, "{id: gone, m: 96, n: 8, fault: exits}"], gate="first", more="    group: sample\n")
    for name, case, more in (
        ("second", "{id: a, m: 96, n: 8}", "    needs: [first]\n"),
        ("third", "{id: a, m: 96, n: 8}", "    falsified_by: {none: hang, zero: wrong_values}\n"),
        ("fourth", "{id: a, m: 96, n: 8, fault: zero}", "    state: building\n"),
        ("fifth", "{id: a, m: 96, n: 8}", ""),
    ):
        text += cases_yaml([case], gate=name, more=more).partition("gates:\n")[2]
    project = make_project("reports").write(text + "  far:\n    about: '<b>planned</b> & more'\n    state: planned\n")
    (project.root / "mutants" / "third.py").write_text((project.root / "mutants" / "scale.py").read_text())
    return project, project.run("--falsify", "--format", "github", GITHUB_STEP_SUMMARY=str(project.root / "step.md"))


@pytest.fixture(scope="session")
def result(run) -> Result:
    return read_result(run[1].folder / "result.json")


class _Page(HTMLParser):
    """Collects headings, text, and tags that are left open."""

    VOID = {"meta", "br", "rect", "path"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.words = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture(scope="session")
def page(run) -> _Page:
    parser = _Page()
    parser.feed((run[1].folder / "report.html").read_text())
    return parser


def test_run_ends_as_built(run, result):
    assert run[1].code == 1
    assert {(g.gate, g.status) for g in result.gates} == {
        ("first", "wrong_values"), ("second", "blocked"), ("third", "variant_accepted"), ("fourth", "xfail"), ("fifth", "pass"),
    }  # fmt: skip


def test_html_is_one_file_without_script_in_the_order_of_reading(page):
    assert page.open == []
    assert page.headings == ["Ladder", "Failures", "Gates", "Sanitizers", "Cost", "What was not checked"]
    assert not page.tags & {"script", "link", "img", "iframe"} and "svg" in page.tags


def test_html_says_what_failed_and_escapes_what_it_shows(page, run):
    for text in (
        "FAIL first[bad-s0-sm100]", "looks like    tile_0_reused", "rows by 32 (warps): 0 99 99 %", "stages/scale.py:",
        "mutant none passes every case (a): the limit is too loose or the data too easy",
        "needs first, which failed", "emulated sm_100a", "xfail (wrong_values)", "kv_full[0] phase 1, 0 of 1 arrived",
    ):  # fmt: skip
        assert text in page.words, text
    raw = (run[1].folder / "report.html").read_text()
    assert "<b>planned</b>" not in raw and "&lt;b&gt;planned&lt;/b&gt; &amp; more" in raw


def test_what_was_not_checked_is_complete(result, page):
    listed = {(item.what, item.why) for item in result.not_checked}
    whats = {what for what, _ in listed}
    assert ("second: a-s0-sm100", "needs first, which failed") in listed
    assert ("1 stages: far", "only planned") in listed
    assert ("third sm100: mutant none", "blind cases: a") in listed
    assert ("first sm100: mutants", "gates.yaml names none for it") in listed
    assert {"time and bandwidth", "the hardware", "data races and missing fences"} <= whats
    for what in whats:
        assert what in page.words


def test_not_checked_is_never_empty_even_in_the_best_run(project):
    done = project.run("--falsify")
    assert done.code == 0 and len(done.result["not_checked"]) >= 4


def test_markdown(result, run):
    text = (run[1].folder / "summary.md").read_text()
    assert text == markdown.render(result)
    first = text.splitlines()[0]
    assert first.startswith("### ❌ gates: 2 failed, 1 passed, 1 building, 1 blocked  (emulated sm_100a, nogit)")
    assert "| first | sm100 | emulated sm_100a | ❌ 1/4 | y.diff" in text and "looks like `tile_0_reused`" in text
    assert "| fifth | sm100 | emulated sm_100a | ✅ 1/1 |" in text
    assert text.count("<details>") == text.count("</details>") == 4
    assert (run[0].root / "step.md").read_text() == text


def test_markdown_stays_small(result):
    case = next(c for c in result.cases if c.case == "gone").model_copy(update={"tail": "x" * 30_000})
    many = result.model_copy(update={"cases": [case] * 300})
    assert len(markdown.render(many).encode()) < 200_000


def test_annotations_for_github(run):
    lines = [line for line in run[1].out.splitlines() if line.startswith("::error ")]
    assert len(lines) == 3
    assert re.match(
        r"::error file=stages/scale\.py,line=\d+,title=first\[bad-s0-sm100\]: wrong_values::FAIL first", lines[0]
    )
    assert "%0A  looks like" in lines[0] and lines[1].startswith("::error file=stages/first.py,line=1,")


def test_junit(result, run):
    root = ElementTree.parse(run[1].folder / "junit.xml").getroot()
    suites = {suite.get("name"): suite for suite in root}
    first = suites["first"]
    assert (first.get("tests"), first.get("failures"), first.get("errors"), first.get("skipped")) == (
        "6",
        "1",
        "2",
        "0",
    )
    bad = next(case for case in first if case.get("name") == "bad-s0")
    assert bad.get("classname") == "first.sm100" and bad.find("failure").get("type") == "wrong_values"
    assert "looks like" in bad.find("failure").text
    properties = {p.get("name"): p.get("value") for p in bad.find("properties")}
    assert properties["evidence"] == "emulated sm_100a" and float(properties["y.diff"]) > 0.1
    assert suites["second"][0].find("skipped").get("message") == "blocked: needs first, which failed"
    assert suites["fourth"][0].find("skipped").get("message") == "xfail: building: wrong_values"
    rejects = {case.get("name"): case.find("failure") is not None for case in suites["third"]}
    assert rejects["rejects mutant none"] is True and rejects["rejects mutant zero"] is False


def test_junit_leaves_out_characters_that_xml_has_not(result):
    case = next(c for c in result.cases if c.case == "gone").model_copy(update={"tail": "a\x00b\x1b[31m"})
    ElementTree.fromstring(junit.render(result.model_copy(update={"cases": [case]})))


def test_every_report_of_an_empty_result_can_be_rendered(run, result):
    empty = result.model_copy(update={"cases": [], "gates": [], "not_checked": []})
    gates = load(run[0].root)
    assert "No gate was run." in html.render(empty, gates, read_ledger(run[0].root))
    assert "nothing ran" in markdown.render(empty)
    assert ElementTree.fromstring(junit.render(empty)).tag == "testsuites"


def test_failure_block(result):
    bad = next(c for c in result.cases if c.case == "bad")
    lines = blocks.failure(bad)
    assert lines[0].startswith("FAIL first[bad-s0-sm100]  y.diff ") and "allowed" in lines[0]
    labels = [line[2:16].strip() for line in lines[1:] if line[2:16].strip()]
    wanted = ["first wrong", "worst", "where", "first wrong", "worst", "where", "looks like", "again"]
    assert [label for label in labels if label in wanted] == wanted
    assert lines[-1] == "  again         python run_gate.py first -k bad-s0 --arch sm100 --debug shapes"
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize(
    ("case", "begins"), [("stuck", "HANG first[stuck"), ("gone", "ERROR first[gone"), ("a", "BLOCK second[a-s0-sm100]")]
)
def test_first_word_of_a_block(result, case, begins):
    found = next(c for c in result.cases if c.case == case and c.gate in ("first", "second"))
    assert blocks.failure(found)[0].startswith(begins)


def test_error_map_svg_merges_equal_neighbours():
    svg = error_map_svg(ErrorMap(rows=4, columns=64, row_block=2, column_block=32, percent=[[0, 0], [0, 100]]), "out")
    root = ElementTree.fromstring(svg)
    boxes = [box for box in root.iter() if box.tag.endswith("rect")]
    assert len(boxes) == 4  # one row, two halves of the other, the frame
    titles = [title.text for title in root.iter() if title.tag.endswith("title")]
    assert titles == ["rows 0–1, columns 0–63: 0%", "rows 2–3, columns 0–31: 0%", "rows 2–3, columns 32–63: 100%"]
    assert error_map_svg(ErrorMap(rows=0, columns=0, row_block=1, column_block=1, percent=[]), "out") == ""


def test_ladder_svg_puts_a_gate_right_of_its_needs():
    root = ElementTree.fromstring(
        ladder_svg([("a", "pass", []), ("b", "hang", ["a"]), ("c", "idle", ["b", "x"]), ("d", "pass", [])])
    )
    boxes = [box for box in root.iter() if box.tag.endswith("rect")]
    x = [float(box.get("x")) for box in boxes]
    assert x[0] < x[1] < x[2] and x[3] == x[0] and float(boxes[3].get("y")) > float(boxes[0].get("y"))
    assert boxes[1].get("fill") == "#c53030" and len([p for p in root.iter() if p.tag.endswith("path")]) == 2
    ElementTree.fromstring(ladder_svg([]))
    ElementTree.fromstring(history_svg([("20260101<T>", "pass")]))


def test_latest_is_a_link_to_the_newest_run(run):
    link = run[1].folder.parent / "latest"
    assert link.is_symlink() and Path(link).resolve() == run[1].folder
    assert re.fullmatch(r"\d{8}T\d{6}Z-nogit", run[1].folder.name)
