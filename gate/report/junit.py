"""JUnit XML: a suite per gate, a test case per case, seed and architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from gate import blocks
from gate.bench import table as times
from gate.result import BenchResult, CaseResult, GateResult, Result
from gate.status import CRASHES, is_failure

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")


def render(result: Result) -> str:
    """The XML text. Wrong results are failures; crashes, hangs and what could not be judged are errors."""
    root = ElementTree.Element("testsuites", name="gates")
    for name in dict.fromkeys(gate.gate for gate in result.gates):
        verdicts = [gate for gate in result.gates if gate.gate == name]
        cases = [case for case in result.cases if case.gate == name and case.mutant is None]
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        for case in cases:
            _case(suite, case)
        for verdict in verdicts:
            if verdict.falsification:
                _falsification(suite, verdict)
        _totals(suite, result.run.started)
    for (gate, arch), results in times.by_gate(result.bench.results if result.bench is not None else []).items():
        suite = ElementTree.SubElement(root, "testsuite", name=f"bench {gate}")
        for one in results:
            _time(suite, one, f"{gate}.{arch}.bench")
        _totals(suite, result.run.started)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, case: CaseResult) -> None:
    name = f"{case.case}-s{case.seed}"
    element = ElementTree.SubElement(suite, "testcase", classname=f"{case.gate}.{case.arch}", name=name)
    element.set("time", f"{case.seconds.get('total', 0.0):.3f}")
    values: dict[str, object] = {"evidence": case.evidence, "digest": case.digest, "status": case.status}
    for output, measured in case.outputs.items():
        values |= {f"{output}.{key}": getattr(measured, key) for key in ("diff", "cos", "rel_rms", "max_abs", "torch")}
    values |= {key: value for key, value in case.counts.items()}
    if case.sanitizers is not None:
        values |= {f"sanitize.{tool}": count for tool, count in case.sanitizers.by_tool().items()}
    _describe(element, values)
    if is_failure(case.status):
        _say(element, "error" if case.status in CRASHES else "failure", case.status, blocks.failure(case))
    elif case.status != "pass":
        reason = case.reason or f"building: {case.found}"
        ElementTree.SubElement(element, "skipped", message=_clean(f"{case.status}: {reason}"))


def _time(suite: ElementTree.Element, one: BenchResult, name: str) -> None:
    element = ElementTree.SubElement(suite, "testcase", classname=name, name=one.case, time=f"{one.seconds:.3f}")
    values = {"evidence": one.evidence, "status": one.status, "us": one.us, "floor_us": one.floor_us}
    _describe(element, values)
    if is_failure(one.status):
        _say(element, "error" if one.status in CRASHES else "failure", one.status, times.failure(one))
    elif one.status != "pass":
        ElementTree.SubElement(element, "skipped", message=_clean(f"{one.status}: {one.message}"))


def _describe(element: ElementTree.Element, values: Mapping[str, object]) -> None:
    """The values that there are, as properties."""
    properties = ElementTree.SubElement(element, "properties")
    for key, value in values.items():
        if value is not None:
            ElementTree.SubElement(properties, "property", name=key, value=_clean(str(value)))


def _falsification(suite: ElementTree.Element, verdict: GateResult) -> None:
    """One test case per wrong variant and mutant: it fails if the gate does not reject it as it must."""
    for row in verdict.falsification:
        name = f"rejects {row.kind} {row.name}"
        element = ElementTree.SubElement(
            suite, "testcase", classname=f"{verdict.gate}.{verdict.arch}", name=name, time="0"
        )
        if row.verdict != "rejected" and (verdict.complete or row.kind == "mutant"):
            _say(element, "failure", row.verdict, [verdict.message or row.verdict])


def _say(element: ElementTree.Element, tag: str, kind: str, lines: list[str]) -> None:
    child = ElementTree.SubElement(element, tag, message=_clean(lines[0]), type=kind)
    child.text = _clean("\n".join(lines))


def _totals(suite: ElementTree.Element, started: str) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    suite.set("timestamp", started.rstrip("Z"))


def _clean(text: str) -> str:
    """XML has no place for control characters."""
    return _NOT_XML.sub("�", text)
